//! Runs the sides of a table in turn, each in a process of its own, as often as asked.

use std::{
    cell::{OnceCell, RefCell},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use anyhow::Context as _;

use crate::{
    go,
    job::{Job, Mode, Side},
    kube_apiserver,
    measure::Measures,
    place::{Place, Places},
    report::{Column, Goal, Goals, Row, print},
    results::{Origin, Results, Table},
    server::Server,
};

/// The settings from the command line.
pub(crate) struct Settings {
    pub(crate) runs: usize,
    pub(crate) extent: Extent,
    pub(crate) kept: Kept,
    /// A title must contain this text to be measured.
    only: Option<String>,
    /// The titles that did not contain it; empty once one did.
    left_out: RefCell<Option<Vec<String>>>,
    go: OnceCell<Result<PathBuf, String>>,
    kube_apiserver: OnceCell<bool>,
    places: Places,
}

/// What to do with the figures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// They are printed.
    Printed,
    /// They are saved as well, for README and book.
    Saved,
}

/// How much is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Very small: to try a bench. The benches without sizes measure what they always do.
    Small,
    /// Sizes that take about two minutes.
    Usual,
    /// A million objects as well.
    Full,
}

impl Settings {
    pub(crate) fn new(runs: usize, extent: Extent, kept: Kept, only: Option<String>) -> Self {
        let (go, kube_apiserver, places) = (OnceCell::new(), OnceCell::new(), Places::default());
        let left_out = RefCell::new(Some(Vec::new()));
        Self { runs, extent, kept, only, left_out, go, kube_apiserver, places }
    }

    /// Whether a table is requested.
    fn asks_for(&self, title: &str) -> bool {
        let asks = self.only.as_ref().is_none_or(|only| title.contains(only));
        let mut left_out = self.left_out.borrow_mut();
        if asks {
            *left_out = None;
        } else if let Some(titles) = &mut *left_out {
            titles.push(title.to_owned());
        }
        asks
    }

    /// Returns the titles of the tables that were left out, unless one was measured.
    pub(crate) fn left_out(self) -> Option<Vec<String>> {
        self.left_out.into_inner()
    }

    /// Returns whether there is a real kube-apiserver.
    fn has_kube_apiserver(&self) -> bool {
        *self.kube_apiserver.get_or_init(|| {
            let program = kube_apiserver::program();
            if let Err(why) = &program {
                println!("kube-apiserver is left out: {why}");
            }
            program.is_ok()
        })
    }

    /// Returns the path of the Go peers' program, or why it is missing.
    fn go_peers(&self) -> &Result<PathBuf, String> {
        self.go.get_or_init(|| {
            let built = go::build();
            if let Err(why) = &built {
                println!("client-go and controller-runtime are left out: {why}");
            }
            built
        })
    }
}

/// One table: its sides and columns.
pub(crate) struct Contest {
    title: String,
    job: Job,
    load: Load,
    turns: Turns,
    places: Vec<Place>,
    /// How many events the Go peers get, if they take too long for all.
    events_of_go: Option<usize>,
    rows: Vec<Contestant>,
    columns: Vec<Column>,
}

/// Returns whether a load generator runs next to the sides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Unneeded,
    Served,
}

/// Returns whether sides run one after another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    Apart,
    AtOnce,
}

struct Contestant {
    side: Side,
    mode: Mode,
    label: String,
    goals: Vec<(&'static str, Goal)>,
}

impl Contest {
    /// Begins a table of what happens inside one process.
    pub(crate) fn new(title: impl Into<String>, job: Job) -> Self {
        Self {
            title: title.into(),
            job,
            load: Load::Unneeded,
            turns: Turns::Apart,
            places: vec![Place::Usual],
            events_of_go: None,
            rows: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Begins a table of what happens against the load generator.
    pub(crate) fn served(title: impl Into<String>, job: Job) -> Self {
        Self { load: Load::Served, ..Self::new(title, job) }
    }

    /// Runs all sides at once: for sides that need little CPU.
    pub(crate) fn at_once(self) -> Self {
        Self { turns: Turns::AtOnce, ..self }
    }

    /// Measures the same in further tables: on one core, and with mimalloc.
    pub(crate) fn everywhere(self) -> Self {
        Self { places: vec![Place::Usual, Place::OneCore, Place::Mimalloc], ..self }
    }

    /// Measures the same in a further table: on one core.
    pub(crate) fn also_on_one_core(self) -> Self {
        Self { places: vec![Place::Usual, Place::OneCore], ..self }
    }

    /// Gives Go's peers fewer events than the others; what is counted is counted for each event.
    pub(crate) fn events_of_go(self, events: usize) -> Self {
        Self { events_of_go: Some(events), ..self }
    }

    /// Adds a figure that counts.
    pub(crate) fn column(mut self, column: Column) -> Self {
        self.columns.push(column);
        self
    }

    /// Adds a side that works in its default way.
    pub(crate) fn side(self, side: Side, goals: &Goals) -> Self {
        let label = side.to_string();
        self.row(side, Mode::Default, label, goals)
    }

    /// Adds a side with settings.
    pub(crate) fn variant(self, side: Side, mode: Mode, note: &str, goals: &Goals) -> Self {
        let label = format!("{side}, {note}");
        self.row(side, mode, label, goals)
    }

    fn row(mut self, side: Side, mode: Mode, label: String, goals: &Goals) -> Self {
        self.rows.push(Contestant { side, mode, label, goals: goals.to_vec() });
        self
    }

    /// Measures every side in turn, round by round, and prints the tables; returns the usual one.
    ///
    /// # Errors
    /// The load generator does not start.
    pub(crate) fn run(self, settings: &Settings) -> anyhow::Result<Vec<Row>> {
        let tables = self.places.iter().map(|place| self.table(settings, *place));
        Ok(tables.collect::<anyhow::Result<Vec<_>>>()?.into_iter().next().unwrap_or_default())
    }

    fn table(&self, settings: &Settings, place: Place) -> anyhow::Result<Vec<Row>> {
        let title = format!("{}{}", self.title, place.suffix());
        if !settings.asks_for(&title) {
            return Ok(Vec::new());
        }
        let mut contestants: Vec<&Contestant> = self.rows.iter().filter(|row| place.has(row.side)).collect();
        if contestants.iter().any(|row| row.side.is_go()) && settings.go_peers().is_err() {
            contestants.retain(|row| !row.side.is_go());
        }
        if contestants.iter().any(|row| row.side == Side::KubeApiserver) && !settings.has_kube_apiserver() {
            contestants.retain(|row| row.side != Side::KubeApiserver);
        }
        let mut rows: Vec<Row> =
            contestants.iter().map(|row| Row::new(row.label.clone(), row.goals.clone())).collect();
        let server = match self.load {
            Load::Served => Some(Server::start(self.job.objects)?),
            Load::Unneeded => None,
        };
        let port = server.as_ref().map_or(0, |server| server.port);
        let jobs = contestants.iter().map(|contestant| {
            let (side, mode, cores) = (contestant.side, contestant.mode, place.cores());
            let events = self.events_of_go.filter(|_| side.is_go()).unwrap_or(self.job.events);
            let job = Job { side, mode, port, cores, events, ..self.job.clone() };
            let program = match contestant.side.is_go() {
                true => settings.go_peers().clone().map_err(anyhow::Error::msg)?,
                false => std::env::current_exe()?,
            };
            Ok((program, job))
        });
        let jobs = jobs.collect::<anyhow::Result<Vec<(PathBuf, Job)>>>()?;
        let command = |program: &PathBuf| settings.places.command(place, program);
        if jobs.first().is_some_and(|(program, _)| command(program).is_none()) {
            return Ok(Vec::new());
        }
        for _ in 0..settings.runs {
            let measured = match self.turns {
                Turns::Apart => jobs.iter().map(|(program, job)| measure(command(program), job)).collect(),
                Turns::AtOnce => at_once(jobs.iter().map(|(program, job)| (command(program), job))),
            };
            rows.iter_mut().zip(measured).for_each(|(row, measured)| row.add(measured));
        }
        print(&title, &self.columns, &rows);
        if settings.kept == Kept::Saved {
            Results::keep(&title, Table::of(&self.columns, &rows, Origin::now()?))?;
        }
        Ok(rows)
    }
}

fn at_once<'j>(jobs: impl Iterator<Item = (Option<Command>, &'j Job)>) -> Vec<anyhow::Result<Measures>> {
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.map(|(command, job)| scope.spawn(move || measure(command, job))).collect();
        threads.into_iter().map(|thread| thread.join().expect("measuring does not panic")).collect()
    })
}

/// Runs one side once, in its own process.
fn measure(command: Option<Command>, job: &Job) -> anyhow::Result<Measures> {
    let output = command
        .context("it can't be run there")?
        .args(["measure", &serde_json::to_string(job)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(output.status.success(), "{}", output.status);
    let line = text.lines().last().context("it said nothing")?;
    serde_json::from_str(line).with_context(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_told_where_no_table_was_asked_for() {
        let asked = |only: Option<&str>| {
            let settings = Settings::new(1, Extent::Small, Kept::Printed, only.map(str::to_owned));
            let asked = ["get: 1000 objects", "get: 1M objects"].map(|title| settings.asks_for(title));
            (asked, settings.left_out())
        };
        assert_eq!(asked(None), ([true, true], None));
        assert_eq!(asked(Some("1M")), ([false, true], None));
        assert_eq!(asked(Some("1000")), ([true, false], None));
        let both = ["get: 1000 objects", "get: 1M objects"].map(str::to_owned).to_vec();
        assert_eq!(asked(Some("1k")), ([false, false], Some(both)));
    }
}

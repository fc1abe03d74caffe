//! Tables: medians, how far runs lie apart, ratios, and what must be reached.

use std::fmt;

use crate::measure::{Measures, Sorted};

/// A figure that a table shows.
pub(crate) struct Column {
    key: &'static str,
    title: &'static str,
    better: Better,
    missing: Missing,
}

/// What a missing figure means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The side does not count it.
    Uncounted,
    /// The side did not come that far in time.
    Unreached,
}

/// The text in place of a figure that was not reached.
pub(crate) const NOT_REACHED: &str = "not reached";

/// Which of two figures is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// A rate.
    More,
    /// A cost.
    Less,
    /// Neither: it is only shown.
    Neither,
}

/// A row's target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// On a peer's row: the first row is at least this many times better.
    Times(f64),
    /// On a peer's row: the first row takes at most this share.
    Share(f64),
    /// This row's own figure is at most that.
    AtMost(f64),
    /// This row's own figure is at least that.
    AtLeast(f64),
}

/// The targets of rows, by the key of the column.
pub(crate) type Goals = [(&'static str, Goal)];

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(f, ">= {times} x"),
            Self::Share(share) => write!(f, "<= {share} x"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::AtLeast(least) => write!(f, ">= {least}"),
        }
    }
}

impl Column {
    const fn new(key: &'static str, title: &'static str, better: Better) -> Self {
        Self { key, title, better, missing: Missing::Uncounted }
    }

    /// Every side has this figure: a run without it did not reach it.
    pub(crate) const fn awaited(self) -> Self {
        Self { missing: Missing::Unreached, ..self }
    }

    /// A figure where less is better.
    pub(crate) const fn cost(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Better::Less)
    }

    /// A figure where more is better.
    pub(crate) const fn rate(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Better::More)
    }

    pub(crate) fn key(&self) -> &'static str {
        self.key
    }

    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// A figure that is only shown.
    pub(crate) const fn fact(key: &'static str, title: &'static str) -> Self {
        Self::new(key, title, Better::Neither)
    }
}

/// The figures of one side, one set a run.
pub(crate) struct Row {
    label: String,
    goals: Vec<(&'static str, Goal)>,
    runs: Vec<Measures>,
    failure: Option<String>,
}

impl Row {
    pub(crate) fn new(label: String, goals: Vec<(&'static str, Goal)>) -> Self {
        Self { label, goals, runs: Vec::new(), failure: None }
    }

    /// Adds a run; the table's notes list one that failed.
    pub(crate) fn add(&mut self, run: anyhow::Result<Measures>) {
        match run {
            Ok(measures) => self.runs.push(measures),
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Returns a figure of all runs, in order; `None` if this side does not have it.
    pub(crate) fn figures(&self, key: &str) -> Option<Sorted> {
        let figures: Vec<f64> = self.runs.iter().filter_map(|run| run.get(key).copied()).collect();
        (!figures.is_empty()).then(|| Sorted::new(figures))
    }

    /// Returns whether a figure is missing in all runs, because none got that far.
    pub(crate) fn is_unreached(&self, column: &Column) -> bool {
        let none = self.runs.iter().all(|run| !run.contains_key(column.key));
        none && (self.runs.is_empty() || column.missing == Missing::Unreached)
    }

    /// Counts the runs that did not come as far as to a figure.
    fn unreached(&self, column: &Column) -> usize {
        match column.missing {
            Missing::Uncounted => 0,
            Missing::Unreached => self.runs.iter().filter(|run| !run.contains_key(column.key)).count(),
        }
    }

    pub(crate) fn median(&self, key: &str) -> Option<f64> {
        self.figures(key).map(|figures| figures.median())
    }
}

/// Prints a table for each figure; the first row is what the others are compared with.
pub(crate) fn print(title: &str, columns: &[Column], rows: &[Row]) {
    println!("\n# {title}");
    for column in columns {
        lines(column, rows).iter().for_each(|line| println!("{line}"));
    }
    for row in rows {
        if let Some(failure) = &row.failure {
            println!("{}: a run failed: {failure}", row.label);
        }
    }
}

/// Lays out the table of a figure. A side that does not count it has no line.
fn lines(column: &Column, rows: &[Row]) -> Vec<String> {
    let better = match column.better {
        Better::More => ", more is better",
        Better::Less => ", less is better",
        Better::Neither => "",
    };
    let title = format!("{}{better}", column.title);
    let head =
        format!("\n{title:<46} {:>10} {:>10} {:>10} {:>8}  must reach", "median", "min", "max", "ratio");
    let first = rows.first().and_then(|row| row.median(column.key));
    let mut lines = vec![head];
    lines.extend(rows.iter().filter_map(|row| line(column, row, first)));
    lines
}

fn line(column: &Column, row: &Row, first: Option<f64>) -> Option<String> {
    let goal = row.goals.iter().find(|(key, _)| *key == column.key).map(|(_, goal)| *goal);
    let Some(figures) = row.figures(column.key) else {
        let goal = goal.map_or_else(String::new, |goal| format!("{goal} NOT MET"));
        let line = format!("  {:<44} {NOT_REACHED:>10} {:>30} {goal}", row.label, "");
        return row.is_unreached(column).then(|| line.trim_end().to_owned());
    };
    let [median, least, most] = [figures.median(), figures.least(), figures.most()].map(shown);
    let ratio = first.and_then(|first| times_better(column.better, first, figures.median()));
    let ratio_shown = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
    let goal = goal.map_or_else(String::new, |goal| verdict(goal, first, figures.median(), ratio));
    let part = match row.unreached(column) {
        0 => String::new(),
        runs => format!(" {NOT_REACHED} in {runs} of {} runs", row.runs.len()),
    };
    Some(format!("  {:<44} {median:>10} {least:>10} {most:>10} {ratio_shown:>8}  {goal}{part}", row.label))
}

/// How many times better the first row is.
fn times_better(better: Better, first: f64, other: f64) -> Option<f64> {
    match better {
        Better::More => Some(first / other),
        Better::Less => Some(other / first),
        Better::Neither => None,
    }
}

fn verdict(goal: Goal, first: Option<f64>, own: f64, ratio: Option<f64>) -> String {
    let met = match goal {
        Goal::Times(times) => ratio.is_some_and(|ratio| ratio >= times),
        Goal::Share(share) => first.is_some_and(|first| first <= own * share),
        Goal::AtMost(most) => own <= most,
        Goal::AtLeast(least) => own >= least,
    };
    format!("{goal} {}", if met { "met" } else { "NOT MET" })
}

/// Writes how many there are.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Shows a figure with as many digits as matter.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        1_000.0.. => format!("{figure:.0}"),
        100.0.. => format!("{figure:.1}"),
        1.0.. => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_the_right_way_round() {
        assert_eq!(times_better(Better::Less, 1.0, 2.3), Some(2.3));
        assert_eq!(times_better(Better::More, 100.0, 50.0), Some(2.0));
        assert_eq!(verdict(Goal::Times(2.3), Some(1.0), 2.3, Some(2.3)), ">= 2.3 x met");
        assert_eq!(verdict(Goal::Times(2.4), Some(1.0), 2.3, Some(2.3)), ">= 2.4 x NOT MET");
        assert_eq!(verdict(Goal::Share(0.65), Some(64.0), 100.0, None), "<= 0.65 x met");
        assert_eq!(verdict(Goal::Share(0.65), Some(66.0), 100.0, None), "<= 0.65 x NOT MET");
        assert_eq!(verdict(Goal::AtMost(10.0), None, 10.5, None), "<= 10 NOT MET");
    }

    #[test]
    fn a_run_that_failed_is_no_figure() {
        let mut row = Row::new("side".to_owned(), Vec::new());
        row.add(Ok(crate::measure::measures([("wall", 2.0)])));
        row.add(Err(anyhow::anyhow!("it fell over")));
        assert_eq!((row.median("wall"), row.median("cpu")), (Some(2.0), None));
        assert_eq!(row.failure.as_deref(), Some("it fell over"));
    }

    #[test]
    fn a_side_that_does_not_reach_its_end_says_so() {
        let run = |figures: &[(&str, f64)]| {
            Ok(figures.iter().map(|(key, figure)| ((*key).to_owned(), *figure)).collect())
        };
        let mut rows: Vec<Row> = ["quick", "slow", "uncertain", "broken"]
            .map(|label| Row::new(label.to_owned(), vec![("p99", Goal::AtMost(5.0))]))
            .into();
        rows[0].add(run(&[("p99", 2.0), ("heap", 1.0)]));
        rows[1].add(run(&[("came", 10.0)]));
        rows[2].add(run(&[("p99", 3.0)]));
        rows[2].add(run(&[("came", 10.0)]));
        rows[3].add(Err(anyhow::anyhow!("it fell over")));
        let of = |column: &Column| {
            let lines = lines(column, &rows);
            lines
                .iter()
                .skip(1)
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let p99 = [
            "quick 2.00 2.00 2.00 1.00 <= 5 met",
            "slow not reached <= 5 NOT MET",
            "uncertain 3.00 3.00 3.00 1.50 <= 5 met not reached in 1 of 2 runs",
            "broken not reached <= 5 NOT MET",
        ];
        assert_eq!(of(&Column::cost("p99", "p99").awaited()), p99);
        // A side can't reach a target for a figure that it does not measure.
        assert_eq!(of(&Column::cost("heap", "heap")), ["quick 1.00 1.00 1.00 1.00", "broken not reached"]);
    }
}

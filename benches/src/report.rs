//! Tables: medians, how far runs lie apart, ratios, and what must be reached.

use std::fmt;

use crate::measure::{Measures, Sorted};

/// A figure that a table shows.
pub(crate) struct Column {
    key: &'static str,
    title: &'static str,
    better: Better,
}

/// Says which figure is the better one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    /// A rate.
    More,
    /// A cost.
    Less,
    /// Neither: it is shown, and compared with nothing.
    Neither,
}

/// What a row must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// On a peer's row: the first row is at least so many times better.
    Times(f64),
    /// On a peer's row: the first row takes at most this share.
    Share(f64),
    /// This row's own figure is at most that.
    AtMost(f64),
    /// This row's own figure is at least that.
    AtLeast(f64),
}

/// What rows must reach, by the key of the column.
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
    /// A figure of which less is better.
    pub(crate) const fn cost(key: &'static str, title: &'static str) -> Self {
        Self { key, title, better: Better::Less }
    }

    /// A figure of which more is better.
    pub(crate) const fn rate(key: &'static str, title: &'static str) -> Self {
        Self { key, title, better: Better::More }
    }

    pub(crate) fn key(&self) -> &'static str {
        self.key
    }

    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// A figure that is only shown.
    pub(crate) const fn fact(key: &'static str, title: &'static str) -> Self {
        Self { key, title, better: Better::Neither }
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

    /// Adds a run; one that failed is told below the table.
    pub(crate) fn add(&mut self, run: anyhow::Result<Measures>) {
        match run {
            Ok(measures) => self.runs.push(measures),
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Returns a figure of all runs, in order; `None` where this side does not have it.
    pub(crate) fn figures(&self, key: &str) -> Option<Sorted> {
        let figures: Vec<f64> = self.runs.iter().filter_map(|run| run.get(key).copied()).collect();
        (!figures.is_empty()).then(|| Sorted::new(figures))
    }

    pub(crate) fn median(&self, key: &str) -> Option<f64> {
        self.figures(key).map(|figures| figures.median())
    }
}

/// Prints a table for each figure; the first row is what the others are compared with.
pub(crate) fn print(title: &str, columns: &[Column], rows: &[Row]) {
    println!("\n# {title}");
    for column in columns {
        print_column(column, rows);
    }
    for row in rows {
        if let Some(failure) = &row.failure {
            println!("{}: a run failed: {failure}", row.label);
        }
    }
}

fn print_column(column: &Column, rows: &[Row]) {
    let better = match column.better {
        Better::More => ", more is better",
        Better::Less => ", less is better",
        Better::Neither => "",
    };
    let title = format!("{}{better}", column.title);
    println!("\n{title:<46} {:>10} {:>10} {:>10} {:>8}  must reach", "median", "min", "max", "ratio");
    let first = rows.first().and_then(|row| row.median(column.key));
    for row in rows {
        let Some(figures) = row.figures(column.key) else { continue };
        let [median, least, most] = [figures.median(), figures.least(), figures.most()].map(shown);
        let ratio = first.and_then(|first| times_better(column.better, first, figures.median()));
        let ratio_shown = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let goal = row.goals.iter().find(|(key, _)| *key == column.key);
        let goal = goal.map_or_else(String::new, |(_, goal)| verdict(*goal, first, figures.median(), ratio));
        println!("  {:<44} {median:>10} {least:>10} {most:>10} {ratio_shown:>8}  {goal}", row.label);
    }
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
}

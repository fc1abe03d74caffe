//! The latest results, kept in a file; the READMEs and the book show only these.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::report::{Column, Row};

/// The path of the results.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/results.json");

/// All tables that were measured, by title.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Results(BTreeMap<String, Table>);

/// One table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// Missing in tables that were saved before it was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    pub(crate) columns: Vec<Title>,
    pub(crate) rows: Vec<Measured>,
}

/// What was measured, and when: figures of different origins can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The commit, with `+` if files differed from it.
    commit: String,
    /// The day, as `git log` writes it.
    day: String,
}

impl Origin {
    /// Asks git for the commit, and the system for the day.
    ///
    /// # Errors
    /// There is no git, no repository, or no `date`.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let commit = said("git", &["rev-parse", "--short", "HEAD"])?;
        let changed = said("git", &["status", "--porcelain", "--", "*.rs", "*.toml", "*.lock", "*.go"])?;
        let mark = if changed.is_empty() { "" } else { "+" };
        Ok(Self { commit: format!("{commit}{mark}"), day: said("date", &["-u", "+%Y-%m-%d"])? })
    }
}

/// Runs a command, and returns what it prints.
fn said(command: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new(command).args(arguments).current_dir(folder).output();
    let output = output.with_context(|| format!("{command} can't be run"))?;
    anyhow::ensure!(output.status.success(), "{command} {arguments:?} fails");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A column: the figure and its title.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Title {
    pub(crate) key: String,
    pub(crate) title: String,
}

/// One side: the median of each figure, the least and the most.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) side: String,
    pub(crate) figures: BTreeMap<String, [f64; 3]>,
    /// The figures as far as which no run came.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unreached: BTreeSet<String>,
}

impl Table {
    pub(crate) fn of(columns: &[Column], rows: &[Row], origin: Origin) -> Self {
        let title =
            |column: &Column| Title { key: column.key().to_owned(), title: column.title().to_owned() };
        let measured = |row: &Row| {
            let figures = columns.iter().filter_map(|column| {
                let figures = row.figures(column.key())?;
                let shown = [figures.median(), figures.least(), figures.most()].map(rounded);
                Some((column.key().to_owned(), shown))
            });
            let unreached = columns.iter().filter(|column| row.is_unreached(column));
            Measured {
                side: row.label().to_owned(),
                figures: figures.collect(),
                unreached: unreached.map(|column| column.key().to_owned()).collect(),
            }
        };
        Self {
            origin: Some(origin),
            columns: columns.iter().map(title).collect(),
            rows: rows.iter().map(measured).collect(),
        }
    }
}

/// Keeps four digits: more are noise, and change with every run.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().unwrap_or(figure)
}

impl Results {
    /// Reads the saved results; empty without a file.
    pub(crate) fn read() -> anyhow::Result<Self> {
        match fs::read_to_string(FILE) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("{FILE} is damaged")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("{FILE} can't be read")),
        }
    }

    /// Keeps a table, in the place of one of that title.
    ///
    /// # Errors
    /// Another table is of another build or day; or the file can't be read or written.
    pub(crate) fn keep(title: &str, table: Table) -> anyhow::Result<()> {
        let mut results = Self::read()?;
        results.insert(title, table)?;
        let text = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(FILE, text).with_context(|| format!("{FILE} can't be written"))
    }

    fn insert(&mut self, title: &str, table: Table) -> anyhow::Result<()> {
        let other = self.0.iter().find(|(kept, other)| *kept != title && other.origin != table.origin);
        if let Some((kept, other)) = other {
            let of = |origin: &Option<Origin>| match origin {
                Some(Origin { commit, day }) => format!("of commit {commit} on {day}"),
                None => "of an unknown build".to_owned(),
            };
            anyhow::bail!(
                "{title:?} is {}, and {kept:?} is {}: figures of different builds or days can't be compared; move \
                 {FILE} away, and save all tables again",
                of(&table.origin),
                of(&other.origin)
            );
        }
        self.0.insert(title.to_owned(), table);
        Ok(())
    }

    /// Refuses to save figures next to those of another build or day, before anything is measured.
    ///
    /// # Errors
    /// As [`keep`](Self::keep), for a table of any title.
    pub(crate) fn may_keep(origin: &Origin) -> anyhow::Result<()> {
        let table = Table { origin: Some(origin.clone()), columns: Vec::new(), rows: Vec::new() };
        Self::read()?.insert("the next table", table)
    }

    /// Returns the tables, by title.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&str, &Table)> {
        self.0.iter().map(|(title, table)| (title.as_str(), table))
    }

    /// Returns the median of a figure, by the whole title of its table and the whole label of its row.
    ///
    /// # Errors
    /// No table, no row or more than one, or no figure has that name: a near match would quote another mode.
    pub(crate) fn median(&self, title: &str, side: &str, key: &str) -> anyhow::Result<f64> {
        let table = self.0.get(title).with_context(|| format!("no table is saved as {title:?}"))?;
        let mut rows = table.rows.iter().filter(|row| row.side == side);
        let row = rows.next().with_context(|| format!("{title:?} has no row {side:?}"))?;
        anyhow::ensure!(rows.next().is_none(), "{title:?} has more than one row {side:?}");
        let [median, ..] = row.figures.get(key).with_context(|| format!("{side:?} has no figure {key:?}"))?;
        Ok(*median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_the_whole_name_of_its_table_and_row() -> anyhow::Result<()> {
        assert_eq!([rounded(591_234.0), rounded(0.123_456)], [591_200.0, 0.1235]);
        let results: Results = serde_json::from_str(
            r#"{"latency: 1000 changes":{"columns":[{"key":"p50","title":"median, µs"}],
                "rows":[{"side":"kube-rs 5.0, shared","figures":{"p50":[7.0,6.0,9.0]}}]}}"#,
        )?;
        let title = "latency: 1000 changes";
        assert_eq!(results.median(title, "kube-rs 5.0, shared", "p50")?, 7.0);
        for (title, side, key) in [
            ("latency", "kube-rs 5.0, shared", "p50"),
            (title, "kube-rs 5.0", "p50"),
            (title, "kube-rs 5.0, shared", "p99"),
        ] {
            assert!(results.median(title, side, key).is_err(), "{title}, {side}, {key}");
        }
        let twice: Results = serde_json::from_str(
            r#"{"a":{"columns":[],"rows":[{"side":"b","figures":{"c":[1.0,1.0,1.0]}},{"side":"b","figures":{}}]}}"#,
        )?;
        assert!(twice.median("a", "b", "c").is_err(), "it is ambiguous");
        Ok(())
    }

    #[test]
    fn tables_of_another_build_or_day_are_not_mixed() -> anyhow::Result<()> {
        let table = |commit: &str, day: &str| {
            let origin = Origin { commit: commit.to_owned(), day: day.to_owned() };
            Table { origin: Some(origin), columns: Vec::new(), rows: Vec::new() }
        };
        let mut results = Results::default();
        results.insert("a", table("1", "2026-11-25"))?;
        results.insert("b", table("1", "2026-11-25"))?;
        assert!(results.insert("c", table("2", "2026-11-25")).is_err(), "another build");
        let error = results.insert("c", table("1", "2026-11-26")).unwrap_err().to_string();
        assert!(error.contains("commit 1 on 2026-11-26") && error.contains("2026-11-25"), "{error}");
        let mut old: Results = serde_json::from_str(r#"{"a":{"columns":[],"rows":[]}}"#)?;
        assert!(old.insert("b", table("1", "2026-11-25")).is_err(), "its build is not known");
        assert!(
            old.insert("a", table("1", "2026-11-25")).is_ok(),
            "it takes the place of the only other one"
        );
        Ok(())
    }
}

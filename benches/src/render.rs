//! Writes the saved results into the READMEs and the book, between their marks: no figure there is typed by hand.

use std::fs;

use anyhow::Context as _;

use crate::{
    findings,
    report::{NOT_REACHED, shown},
    results::{Results, Table},
};

const BEGIN: &str = "<!-- figures: `watchkeeper-benches render` writes them -->\n";
const END: &str = "<!-- end of figures -->";

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const SERVER_README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../apiserver/README.md");
const BOOK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/reference/tables.md");
const COSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/reference/costs.md");
const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/pictures");

/// README's columns.
const SIDES: [&str; 3] = ["watchkeeper", "kube-rs 5.0", "controller-runtime 0.25"];

/// A line of README's table: its text, the quoted table, the figures, each times a factor, and the rows.
struct Line {
    says: &'static str,
    title: &'static str,
    figures: &'static [(&'static str, f64)],
    /// For each of [`SIDES`] the modes that are shown, by what follows the side's name in the row's label.
    modes: [&'static [&'static str]; 3],
}

/// Rows that have one mode each.
const PLAIN: [&[&str]; 3] = [&[""], &[""], &[""]];
/// kube-rs's default, and what its documentation recommends where several controllers read one kind.
const SHARED: [&[&str]; 3] = [&[""], &["", "one shared stream"], &[""]];

/// kube-rs alone was measured.
const OF_RUST: [&[&str]; 3] = [&[""], &[""], &[]];

const READ: &str = "lister-get: 100000 objects, a place holds 10, a label value selects 1 %";
const WRITE: &str = "readers-writer: 100000 objects, one writer, 0 readers that count a list";
const BUILD: &str =
    "build-cost: one operator, from an empty target folder, in release; crates are fetched before";

const LINES: [Line; 9] = [
    Line {
        says: "no-op reconciles per second, 50,000 keys, 64 workers",
        title: "reconcile-throughput: 50000 keys, 64 workers, reconciles that do nothing",
        figures: &[("rate", 1e3)],
        modes: PLAIN,
    },
    Line {
        says: "20,000 concurrent reconciles including the initial list, CPU seconds",
        title: "reconcile-throughput: 20000 in flight that end within 3 s",
        figures: &[("cpu", 1.0)],
        modes: PLAIN,
    },
    Line {
        says: "from event to reconcile at 1,000 events per second, median and p99, µs",
        title: "latency: 1000 changes a second of 10000 objects, 8 workers",
        figures: &[("p50", 1.0), ("p99", 1.0)],
        modes: PLAIN,
    },
    Line {
        says: "initial list of 100,000 objects of 1.7 KB: seconds, peak MB",
        title: "initial-list: 100000 objects of 1.7 KB (each kube-rs row has the mode of the row above it)",
        figures: &[("wall", 1.0), ("peak", 1.0)],
        modes: [
            &["streaming (default)", "pages of 500"],
            &["pages of 500 (default)", "streaming"],
            &["streaming (default)"],
        ],
    },
    Line {
        says: "50 controllers on one kind with 10,000 objects, MB",
        title: "fan-out: 50 controllers on 10000 objects, 1000 changes a second",
        figures: &[("rss", 1.0)],
        modes: SHARED,
    },
    Line {
        says: "the same: CPU of one event for all 50, µs",
        title: "fan-out: 50 controllers on 10000 objects, 1000 changes a second",
        figures: &[("cpu", 1.0)],
        modes: SHARED,
    },
    Line { says: "a read by key, ns", title: READ, figures: &[("get", 1.0)], modes: PLAIN },
    Line {
        says: "a write to the cache without readers, µs",
        title: WRITE,
        figures: &[("p50", 1.0)],
        modes: PLAIN,
    },
    Line {
        says: "building an operator: CPU seconds, seconds again after a change, MB of the program",
        title: BUILD,
        figures: &[("cpu", 1.0), ("again", 1.0), ("size", 1.0)],
        modes: OF_RUST,
    },
];

/// The start of the titles of the server's tables.
const OF_SERVER: &str = "server: ";

/// Renders the READMEs and the book again.
///
/// # Errors
/// Nothing was saved, or a file has no marks.
pub(crate) fn render() -> anyhow::Result<()> {
    let results = Results::read()?;
    for (file, figures) in texts(&results)? {
        let text = fs::read_to_string(file).with_context(|| format!("{file} can't be read"))?;
        fs::write(file, with_figures(file, &text, &figures)?)?;
    }
    for (name, picture) in findings::pictures(&results)? {
        fs::write(format!("{PICTURES}/{name}"), picture)?;
    }
    Ok(())
}

/// Renders the text between the marks of each file; a part without saved results stays as it is.
fn texts(results: &Results) -> anyhow::Result<Vec<(&'static str, String)>> {
    let findings = format!("{}### All at a glance\n\n{}", findings::page(results)?, readme(results)?);
    let mut texts = vec![(README, readme(results)?), (BOOK, tables(results, "")), (COSTS, findings)];
    let of_server = tables(results, OF_SERVER);
    if !of_server.is_empty() {
        texts.push((SERVER_README, of_server));
    }
    Ok(texts)
}

/// Puts figures between the marks of a text.
fn with_figures(file: &str, text: &str, figures: &str) -> anyhow::Result<String> {
    let marks = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marks.with_context(|| format!("{file} has no marks for figures"))?;
    Ok(format!("{before}{BEGIN}\n{figures}\n{END}{after}"))
}

fn readme(results: &Results) -> anyhow::Result<String> {
    let mut text = format!("| | {} |\n|---|---:|---:|---:|\n", SIDES.join(" | "));
    for line in &LINES {
        let cells: anyhow::Result<Vec<String>> =
            SIDES.iter().zip(line.modes).map(|(side, modes)| cell(results, line, side, modes)).collect();
        let cells = cells.context("run that bench with --save first")?;
        text += &format!("| {} | {} |\n", line.says, cells.join(" | "));
    }
    Ok(text)
}

/// Shows a side's figures, mode by mode.
fn cell(results: &Results, line: &Line, side: &str, modes: &[&str]) -> anyhow::Result<String> {
    if modes.is_empty() {
        return Ok("–".to_owned());
    }
    let shown = modes.iter().map(|mode| match *mode {
        "" => figures(results, line, side),
        mode => Ok(format!("{mode}: {}", figures(results, line, &format!("{side}, {mode}"))?)),
    });
    Ok(shown.collect::<anyhow::Result<Vec<_>>>()?.join("; "))
}

fn figures(results: &Results, line: &Line, row: &str) -> anyhow::Result<String> {
    let median = |(key, factor): &(&str, f64)| Ok(short(results.median(line.title, row, key)? * factor));
    Ok(line.figures.iter().map(median).collect::<anyhow::Result<Vec<String>>>()?.join(", "))
}

/// Shows three digits, and thousands apart.
fn short(figure: f64) -> String {
    let rounded: f64 = format!("{figure:.2e}").parse().unwrap_or(figure);
    if rounded < 10.0 {
        return format!("{rounded:.2}");
    }
    let digits = format!("{rounded:.0}");
    let grouped: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|three| str::from_utf8(three).ok()).collect();
    grouped.join(",")
}

/// Shows all tables whose titles begin so, which the reader need not be told again.
fn tables(results: &Results, titles: &str) -> String {
    let tables =
        results.tables().filter_map(|(title, table)| Some(of_table(title.strip_prefix(titles)?, table)));
    tables.collect::<Vec<_>>().join("\n")
}

fn of_table(title: &str, table: &Table) -> String {
    let titles: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
    let mut text =
        format!("### {title}\n\n| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(titles.len()));
    for row in &table.rows {
        let cells = table.columns.iter().map(|column| match row.figures.get(&column.key) {
            Some([median, ..]) => shown(*median),
            None if row.unreached.contains(&column.key) => NOT_REACHED.to_owned(),
            None => "–".to_owned(),
        });
        text += &format!("| {} | {} |\n", row.side, cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_and_book_show_what_was_saved() -> anyhow::Result<()> {
        let results = Results::read()?;
        for (file, figures) in texts(&results)? {
            let text = fs::read_to_string(file)?;
            anyhow::ensure!(
                with_figures(file, &text, &figures)? == text,
                "{file}: run `cargo run --release -p watchkeeper-benches -- render`"
            );
        }
        Ok(())
    }

    #[test]
    fn the_book_describes_only_benches_that_have_a_saved_table() -> anyhow::Result<()> {
        let (results, page) = (Results::read()?, fs::read_to_string(BOOK)?);
        let described = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let described: Vec<&str> = described.map(|(name, _)| name).collect();
        let is_saved = |name: &str| results.tables().any(|(title, _)| title.starts_with(&format!("{name}:")));
        let missing: Vec<_> = described.iter().filter(|name| !is_saved(name)).collect();
        anyhow::ensure!(missing.is_empty(), "described, and never saved: {missing:?}");
        anyhow::ensure!(described.len() > 5, "{described:?}");
        Ok(())
    }

    #[test]
    fn the_pictures_show_what_was_saved() -> anyhow::Result<()> {
        for (name, picture) in findings::pictures(&Results::read()?)? {
            let kept = fs::read_to_string(format!("{PICTURES}/{name}"))?;
            anyhow::ensure!(
                kept == picture,
                "{name}: run `cargo run --release -p watchkeeper-benches -- render`"
            );
        }
        Ok(())
    }

    #[test]
    fn figures_are_short_and_stand_between_the_marks() -> anyhow::Result<()> {
        let shown = [590_812.0, 1_203.4, 59.96, 0.6432, 4_519.0].map(short);
        assert_eq!(shown, ["591,000", "1,200", "60", "0.64", "4,520"]);
        let text = format!("a\n{BEGIN}old{END}\nb\n");
        assert_eq!(with_figures("x", &text, "new\n")?, format!("a\n{BEGIN}\nnew\n\n{END}\nb\n"));
        assert!(with_figures("x", "no marks", "new").is_err());
        Ok(())
    }

    #[test]
    fn the_servers_tables_are_its_own_and_say_what_was_not_reached() -> anyhow::Result<()> {
        let results = |saved: &str| serde_json::from_str::<Results>(saved);
        let none = results(r#"{"queue: in turn":{"columns":[],"rows":[]}}"#)?;
        assert_eq!(tables(&none, OF_SERVER), "", "its README stays as it is");
        let saved = results(
            r#"{"queue: in turn":{"columns":[],"rows":[]},
                "server: 9 watchers":{"columns":[{"key":"p50","title":"ms"},{"key":"p99","title":"most, ms"}],
                "rows":[{"side":"ours","figures":{"p50":[7.0,6.0,9.0]},"unreached":["p99"]}]}}"#,
        )?;
        let text = "### 9 watchers\n\n| | ms | most, ms |\n|---|---:|---:|\n| ours | 7.00 | not reached |\n";
        assert_eq!(tables(&saved, OF_SERVER), text);
        let marked = fs::read_to_string(SERVER_README)?;
        assert!(with_figures(SERVER_README, &marked, text)?.contains(text));
        Ok(())
    }
}

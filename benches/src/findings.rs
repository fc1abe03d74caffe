//! The bars on the page of findings: one figure of several sides each, drawn from what was saved.

use std::fmt::Write as _;

use anyhow::Context as _;

use crate::{plot::STYLE, results::Results};

/// One figure of several sides.
struct Finding {
    /// The name of the picture.
    name: &'static str,
    says: &'static str,
    /// The whole title of the table.
    title: &'static str,
    key: &'static str,
    unit: &'static str,
    /// The whole labels of the rows.
    rows: &'static [&'static str],
}

const LIST: &str =
    "initial-list: 100000 objects of 1.7 KB (each kube-rs row has the mode of the row above it)";
const LISTS: [&str; 6] = [
    "watchkeeper, streaming (default)",
    "kube-rs 5.0, pages of 500 (default)",
    "kube-rs 5.0, streaming",
    "client-go 0.37, streaming (default)",
    "controller-runtime 0.25, streaming (default)",
    "floor",
];

const FINDINGS: [Finding; 6] = [
    Finding {
        name: "list-time",
        says: "First list of 100,000 objects of 1.7 KB: time until the cache has synced",
        title: LIST,
        key: "wall",
        unit: "s",
        rows: &LISTS,
    },
    Finding {
        name: "list-memory",
        says: "The same: most memory at once",
        title: LIST,
        key: "peak",
        unit: "MB",
        rows: &LISTS,
    },
    Finding {
        name: "fan-out",
        says: "50 controllers on one kind with 10,000 objects: memory",
        title: "fan-out: 50 controllers on 10000 objects, 1000 changes a second",
        key: "rss",
        unit: "MB",
        rows: &[
            "watchkeeper",
            "kube-rs 5.0",
            "kube-rs 5.0, one shared stream",
            "client-go 0.37, handlers with queues",
            "controller-runtime 0.25",
        ],
    },
    Finding {
        name: "latency",
        says: "From a change to the start of its reconcile, at 1,000 changes a second: p99",
        title: "latency: 1000 changes a second of 10000 objects, 8 workers",
        key: "p99",
        unit: "µs",
        rows: &["watchkeeper", "kube-rs 5.0", "kube-rs 5.0, streaming", "controller-runtime 0.25"],
    },
    Finding {
        name: "compact",
        says: "50,000 pods of 3.7 KB: most memory at once",
        title: "initial-list: 50000 pods of 3.7 KB, each key through a queue",
        key: "peak",
        unit: "MB",
        rows: &["watchkeeper, compact", "watchkeeper, typed", "kube-rs 5.0, streaming, without a queue"],
    },
    Finding {
        name: "build",
        says: "Where it loses: building an operator from nothing, CPU",
        title: "build-cost: one operator, from an empty target folder, in release; crates are fetched before",
        key: "cpu",
        unit: "s",
        rows: &["watchkeeper", "kube-rs 5.0"],
    },
];

/// Draws each finding; returns the file names and the pictures.
pub(crate) fn pictures(results: &Results) -> anyhow::Result<Vec<(String, String)>> {
    FINDINGS.iter().map(|finding| Ok((file(finding), draw(finding, &bars(finding, results)?)))).collect()
}

/// Writes the part of the page that shows the findings.
pub(crate) fn page(results: &Results) -> anyhow::Result<String> {
    let mut text = String::new();
    for finding in &FINDINGS {
        let bars = bars(finding, results)?;
        let said = bars.iter().map(|(row, figure)| format!("{row}: {} {}", shown(*figure), finding.unit));
        let said = said.collect::<Vec<_>>().join("; ");
        let _ = writeln!(text, "### {}\n\n![{said}](../pictures/{})\n", finding.says, file(finding));
    }
    Ok(text)
}

fn file(finding: &Finding) -> String {
    format!("costs-{}.svg", finding.name)
}

fn bars(finding: &Finding, results: &Results) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let median = |row: &&'static str| Ok((*row, results.median(finding.title, row, finding.key)?));
    finding.rows.iter().map(median).collect::<anyhow::Result<_>>().context("run that bench with --save first")
}

fn draw(finding: &Finding, bars: &[(&str, f64)]) -> String {
    const WIDTH: f64 = 440.0;
    const ROW: usize = 42;
    let most = bars.iter().map(|(_, figure)| *figure).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"sans-serif\" \
         font-size=\"14\" fill=\"currentColor\">\n<title>{}</title>\n{STYLE}\n",
        bars.len() * ROW + 4,
        finding.says
    );
    for (at, (row, figure)) in bars.iter().enumerate() {
        let (y, length) = (at * ROW + 16, (figure / most * (WIDTH - 100.0)).max(2.0));
        let colour = if row.starts_with("watchkeeper") { "#3f8fd2" } else { "currentColor\" opacity=\".4" };
        let _ = writeln!(svg, "<text x=\"0\" y=\"{y}\">{row}</text>");
        let _ = writeln!(
            svg,
            "<rect x=\"0\" y=\"{}\" width=\"{length:.0}\" height=\"14\" fill=\"{colour}\"/>",
            y + 5
        );
        let (x, below) = (length + 6.0, y + 17);
        let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"{below}\">{} {}</text>", shown(*figure), finding.unit);
    }
    svg + "</svg>\n"
}

/// Shows three digits.
fn shown(figure: f64) -> String {
    match figure {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_lengths_in_proportion_and_their_figures() {
        let finding = &FINDINGS[5];
        let svg = draw(finding, &[("watchkeeper", 15.0), ("kube-rs 5.0", 7.5)]);
        assert!(svg.contains("width=\"340\"") && svg.contains("width=\"170\""), "{svg}");
        assert!(svg.contains(">15.0 s<") && svg.contains(">7.50 s<"), "{svg}");
    }
}

//! The recording of the demo: a picture made of what a run printed, and when.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use super::marked::{assert_is, read, root};

/// What a run printed: a line each, with the seconds since the start before a tab.
const RECORDING: &str = "book/src/pictures/demo.txt";
const PICTURE: &str = "book/src/pictures/demo.svg";
const COMMAND: &str = "cargo run --example website -- --demo";

const LINE: usize = 18;
const MARGIN: usize = 14;

/// Reads the recording.
fn recorded() -> Vec<(f64, String)> {
    let text = read(RECORDING);
    let lines = text.lines().map(|line| line.split_once('\t').unwrap());
    lines.map(|(seconds, text)| (seconds.parse().unwrap(), text.to_owned())).collect()
}

/// Draws a terminal in which the lines appear as they did, the last of them at the bottom.
fn draw(lines: &[(f64, String)]) -> String {
    let rows = lines.len() + 1;
    let longest = lines.iter().map(|(_, text)| text.chars().count()).max().unwrap_or_default();
    let (width, height) = (longest.max(COMMAND.len() + 2) * 9 + 2 * MARGIN, rows * LINE + 2 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" \
         font-size=\"15\" fill=\"currentColor\">\n<title>{COMMAND}</title>\n\
         <style>svg:root{{color:#24292f}}@media (prefers-color-scheme:dark){{svg:root{{color:#d0d7de}}}}\
         text{{white-space:pre}}</style>\n\
         <rect x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"none\" stroke=\"currentColor\" \
         stroke-opacity=\".4\"/>\n",
        width - 2,
        height - 2,
    );
    text += &row(0, None, &format!("$ {COMMAND}"));
    for (at, (seconds, line)) in lines.iter().enumerate() {
        text += &row(at + 1, Some(*seconds + 1.0), line);
    }
    text + "</svg>\n"
}

fn row(at: usize, appears: Option<f64>, line: &str) -> String {
    let y = MARGIN + LINE * (at + 1) - 5;
    let line = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let weight =
        if line.starts_with("---") || line == "all came true" { " font-weight=\"bold\"" } else { "" };
    let shown = appears.map_or(String::new(), |seconds| {
        format!("<animate attributeName=\"opacity\" from=\"0\" to=\"0\" dur=\"{seconds:.2}s\"/>")
    });
    format!("<text x=\"{MARGIN}\" y=\"{y}\"{weight}>{line}{shown}</text>\n")
}

#[test]
fn the_picture_shows_what_the_run_printed() {
    assert_is(PICTURE, &draw(&recorded()));
}

#[test]
fn readme_prints_the_summary_of_that_run() {
    let lines: Vec<String> = recorded().into_iter().map(|(_, text)| text).collect();
    let summary = lines.iter().position(|line| line == "--- summary").unwrap();
    let summary = lines[summary..].join("\n");
    assert!(read("README.md").contains(&format!("```text\n{summary}\n```")), "README lacks\n{summary}");
}

#[test]
#[ignore = "runs the demo, and writes what it prints"]
fn the_demo_is_recorded_again() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "run",
        "--quiet",
        "--package",
        "watchkeeper-examples",
        "--example",
        "website",
        "--",
        "--demo",
    ]);
    cargo.current_dir(root()).env("RUST_LOG", "off").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut demo = cargo.spawn().unwrap();
    let (mut began, mut text) = (None, String::new());
    for line in BufReader::new(demo.stdout.take().unwrap()).lines() {
        // Building does not count.
        let began = *began.get_or_insert_with(Instant::now);
        text += &format!("{:.2}\t{}\n", began.elapsed().as_secs_f64(), line.unwrap());
    }
    assert!(demo.wait().unwrap().success());
    fs::write(root().join(RECORDING), text).unwrap();
}

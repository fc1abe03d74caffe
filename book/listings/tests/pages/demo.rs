//! The recording of the demo: a picture made of what a run printed, and when.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use tokio::time::Instant;

use super::marked::{assert_is, read, root};

/// What a run printed: a line each, with the seconds since the start before a tab.
const RECORDING: &str = "book/src/pictures/demo.txt";
const PICTURE: &str = "book/src/pictures/demo.svg";
const COMMAND: &str = "cargo run --example website -- --demo";

const LINE: usize = 20;
/// Most characters in a line of the picture.
const WIDEST: usize = 52;
const MARGIN: usize = 14;

/// Reads the recording.
fn recorded() -> Vec<(f64, String)> {
    let text = read(RECORDING);
    let lines = text.lines().map(|line| line.split_once('\t').unwrap());
    lines.map(|(seconds, text)| (seconds.parse().unwrap(), text.to_owned())).collect()
}

/// Breaks a line between words, so that the picture can be read on a phone.
fn wrapped(line: &str) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in line.split(' ') {
        let last = rows.last_mut().unwrap();
        if last.len() + word.len() < WIDEST {
            *last = if last.is_empty() { word.to_owned() } else { format!("{last} {word}") };
        } else {
            rows.push(format!("  {word}"));
        }
    }
    rows
}

/// Draws a terminal in which the lines appear as they did.
fn draw(lines: &[(f64, String)]) -> String {
    let rows: Vec<(f64, String)> = lines
        .iter()
        .flat_map(|(seconds, line)| wrapped(line).into_iter().map(|row| (*seconds, row)))
        .collect();
    let (width, height) = (WIDEST * 9 + 2 * MARGIN, (rows.len() + 1) * LINE + 2 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" \
         font-size=\"15\" fill=\"currentColor\">\n<title>{COMMAND}</title>\n\
         <style>svg:root{{color:#24292f}}@media (prefers-color-scheme:dark){{svg:root{{color:#d0d7de}}}}</style>\n\
         <rect x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"none\" stroke=\"currentColor\" \
         stroke-opacity=\".4\"/>\n",
        width - 2,
        height - 2,
    );
    text += &row(0, None, &format!("$ {COMMAND}"));
    for (at, (seconds, line)) in rows.iter().enumerate() {
        text += &row(at + 1, Some(*seconds + 1.0), line);
    }
    text + "</svg>\n"
}

fn row(at: usize, appears: Option<f64>, line: &str) -> String {
    let (x, y) = (MARGIN + 9 * (line.len() - line.trim_start().len()), MARGIN + LINE * (at + 1) - 5);
    let line = line.trim_start().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let weight =
        if line.starts_with("---") || line == "all came true" { " font-weight=\"bold\"" } else { "" };
    let shown = appears.map_or(String::new(), |seconds| {
        format!("<animate attributeName=\"opacity\" from=\"0\" to=\"0\" dur=\"{seconds:.2}s\"/>")
    });
    format!("<text x=\"{x}\" y=\"{y}\"{weight}>{line}{shown}</text>\n")
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

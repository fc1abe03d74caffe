//! The sequence diagram of a trial: drawn from the story that chapter 10 prints, which a run has told.

use super::{
    marked::{assert_is, read},
    svg::{escaped, picture},
};

const PAGE: &str = "book/src/tutorial/trials.md";
const PICTURE: &str = "book/src/pictures/trial.svg";

/// Where the lifelines are.
const USER: usize = 55;
const OPERATOR: usize = 180;
const SERVER: usize = 400;
/// The height of a row.
const ROW: usize = 30;
/// Most characters of a text that may be as wide as the picture.
const WIDEST: usize = 46;

/// What one row of the picture shows.
#[derive(Debug, PartialEq, Eq)]
enum Row {
    Arrow { from: usize, to: usize, said: String },
    Note { at: usize, said: String },
    Trouble(String),
}

/// The lines of a story: who, and what.
fn steps(story: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    for line in story.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [number, time, who, what @ ..] if number.ends_with('.') && time.ends_with('s') => {
                found.push((who, what.join(" ")));
            }
            // What it is; other lines that go on show what a write changed.
            more if found.last().is_some_and(|(who, said)| *who == "TROUBLE" && said.ends_with(':')) => {
                found.last_mut().unwrap().1 += &format!(" {}", more.join(" "));
            }
            _ => {}
        }
    }
    found
}

/// What is drawn of a step; requests of watches are not, nor what the server has anyway.
fn row((who, what): &(&str, String)) -> Option<Row> {
    let said = what.split(", version").next().unwrap_or_default().to_owned();
    Some(match *who {
        "user" if said != "is done" => Row::Arrow { from: USER, to: SERVER, said },
        "server" => Row::Arrow { from: OPERATOR, to: SERVER, said },
        "watch" if !said.contains(" default/kubernetes") => Row::Arrow { from: SERVER, to: OPERATOR, said },
        "TROUBLE" => {
            Row::Trouble(said.split_once(": ").map_or(said.clone(), |(_, trouble)| trouble.to_owned()))
        }
        "operator" if !said.contains(' ') => Row::Note { at: OPERATOR, said },
        _ => return None,
    })
}

/// A text in a box.
fn boxed(x: usize, y: usize, width: usize, said: &str) -> String {
    format!(
        "<rect class=\"b\" x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"24\" rx=\"4\"/><text class=\"m\" x=\"{x}\" y=\"{}\">{}</text>\n",
        x - width / 2,
        y + 17,
        escaped(said),
    )
}

/// Breaks a text between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().unwrap();
        match last.len() + word.len() < WIDEST {
            true if last.is_empty() => *last = word.to_owned(),
            true => *last += &format!(" {word}"),
            false => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The rows of the picture, from its top to the line at which they end.
fn drawn(rows: &[Row]) -> (String, usize) {
    let (mut text, mut y) = (String::new(), 32);
    for row in rows {
        y += ROW;
        text += &match row {
            Row::Arrow { from, to, said } => format!(
                "<path class=\"b\" d=\"M{from} {y}H{to}\" marker-end=\"url(#trial-a)\"/><text class=\"s m\" x=\"{}\" y=\"{}\">{}</text>\n",
                (OPERATOR + SERVER) / 2,
                y - 6,
                escaped(said),
            ),
            Row::Note { at, said } => boxed(*at, y - 18, 80, said),
            Row::Trouble(said) => {
                let lines = wrapped(&format!("TROUBLE: {said}"));
                let at = y;
                y += 18 * (lines.len() - 1);
                let line = |(number, line): (usize, &String)| {
                    let y = at + 18 * number;
                    format!(
                        "<text class=\"m\" x=\"230\" y=\"{y}\" font-weight=\"bold\">{}</text>\n",
                        escaped(line)
                    )
                };
                lines.iter().enumerate().map(line).collect()
            }
        };
    }
    (text, y)
}

fn draw(rows: &[Row], verdict: &str) -> String {
    let (rows, end) = drawn(rows);
    let verdict = wrapped(verdict);
    let height = end + 30 + 30 * verdict.len();
    let mut text = "<defs><marker id=\"trial-a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" fill=\"currentColor\"/></marker></defs>\n".to_owned();
    for (x, who) in [(USER, "user"), (OPERATOR, "operator"), (SERVER, "API server")] {
        text += &boxed(x, 8, 96, who);
        text += &format!(
            "<path class=\"b\" d=\"M{x} 32V{}\" stroke-dasharray=\"2 4\" opacity=\".4\"/>\n",
            end + 14
        );
    }
    text += &rows;
    for (number, line) in verdict.iter().enumerate() {
        let y = end + 40 + 22 * number;
        text +=
            &format!("<text class=\"m\" x=\"230\" y=\"{y}\" font-weight=\"bold\">{}</text>\n", escaped(line));
    }
    picture(&format!("A trial that fails: {}", verdict.join(" ")), height, &text)
}

#[test]
fn the_picture_of_a_trial_shows_the_story_that_the_tutorial_prints() {
    let page = read(PAGE);
    let (_, story) = page.split_once("a trial fails: ").unwrap();
    let (story, _) = story.split_once("to see it again").unwrap();
    let verdict = story.lines().nth(2).unwrap();
    let rows: Vec<Row> = steps(story).iter().filter_map(row).collect();
    assert!(rows.len() > 8, "{rows:#?}");
    assert_is(PICTURE, &draw(&rows, verdict));
}

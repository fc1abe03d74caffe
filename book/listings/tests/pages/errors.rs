//! The page of errors is made of the snapshots of what people read.

use super::marked::{assert_marked, read};

const PAGE: &str = "book/src/reference/errors.md";

/// What to do, where the text does not say it: the start of the text, and the remedy.
const REMEDIES: &str = include_str!("remedies.txt");

fn remedy(said: &str) -> Option<&'static str> {
    let mut rules = REMEDIES.lines().filter_map(|line| line.split_once(" => "));
    rules.find(|(part, _)| said.contains(part)).map(|(_, remedy)| remedy)
}

#[test]
fn the_page_lists_each_mistake_with_its_text_and_remedy() {
    let snapshot = read("tests/tests/mistakes/mistakes.txt");
    let (mut text, mut cause) = (String::new(), "");
    for line in snapshot.lines().skip(1) {
        if let Some(chapter) = line.strip_prefix("## ") {
            text += &format!("## {chapter}\n\n");
        } else if let Some(mistake) = line.strip_prefix("# ") {
            cause = mistake;
        } else if !line.is_empty() {
            text += &format!("### {cause}\n\n```text\n{line}\n```\n\n");
            if let Some(remedy) = remedy(line) {
                text += &format!("{remedy}\n\n");
            }
        }
    }
    assert!(text.matches("### ").count() > 60, "{text}");
    assert_marked(PAGE, "mistakes", &text);
}

#[test]
fn each_remedy_belongs_to_a_text() {
    let snapshot = read("tests/tests/mistakes/mistakes.txt");
    for line in REMEDIES.lines().filter(|line| !line.is_empty()) {
        let (part, _) = line.split_once(" => ").unwrap_or_else(|| panic!("{line}"));
        assert!(snapshot.contains(part), "no text has {part:?}");
    }
}

#[test]
fn the_page_shows_the_log_of_an_operator() {
    let log = read("tests/tests/suite/logs.txt");
    let mut text = String::new();
    for (at, part) in log.split("\n# ").enumerate().skip(1) {
        let (title, lines) = part.split_once('\n').unwrap();
        let lines = lines.trim();
        assert!(!lines.is_empty(), "part {at}");
        text += &format!("### {title}\n\n```text\n{lines}\n```\n\n");
    }
    assert_marked(PAGE, "log", &text);
}

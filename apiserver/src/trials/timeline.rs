//! What happened in a trial, for people.

use std::fmt::Write as _;
use std::time::Duration;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Operator,
    User,
    Stranger,
    /// A watch shows the operator something.
    Watch,
    /// What goes wrong.
    Trouble,
}

impl Who {
    fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::User => "user",
            Self::Stranger => "stranger",
            Self::Watch => "  watch",
            Self::Trouble => "TROUBLE",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) who: Who,
    pub(super) text: String,
}

/// The most lines of a story that are shown; those in the middle are left out.
const SHOWN: usize = 80;

/// Writes the lines as numbered steps.
pub(super) fn steps(lines: &[Line]) -> String {
    let mut out = String::new();
    let skipped = lines.len().saturating_sub(SHOWN);
    let first = if skipped > 0 { around_trouble(lines) } else { 0 };
    if first > 0 {
        let _infallible = writeln!(out, "       … {first} steps before");
    }
    for (number, line) in lines.iter().enumerate().skip(first).take(SHOWN) {
        let Line { at, who, text } = line;
        let _infallible =
            writeln!(out, "{:>4}. {:>9.3}s  {:<8}  {text}", number + 1, at.as_secs_f64(), who.word());
    }
    let after = lines.len().saturating_sub(first + SHOWN);
    if after > 0 {
        let _infallible = writeln!(out, "       … {after} steps after");
    }
    out
}

/// Finds where to begin, so that the trouble is seen with what led there.
fn around_trouble(lines: &[Line]) -> usize {
    let trouble = lines.iter().position(|line| line.who == Who::Trouble).unwrap_or(0);
    trouble.saturating_sub(SHOWN / 4).min(lines.len().saturating_sub(SHOWN))
}

/// Writes the lines as a Mermaid sequence diagram.
pub(super) fn mermaid(lines: &[Line]) -> String {
    let mut out = "sequenceDiagram\n    participant U as user\n    participant O as operator\n    \
                   participant S as API server\n    participant X as somebody else\n"
        .to_owned();
    for Line { who, text, .. } in lines {
        let text = text.lines().next().unwrap_or_default().replace([';', '#'], " ");
        let _infallible = match who {
            Who::Operator => match text.split_once(" → ") {
                Some((request, answer)) => writeln!(out, "    O->>S: {request}\n    S-->>O: {answer}"),
                None => writeln!(out, "    Note over O: {text}"),
            },
            Who::User => writeln!(out, "    U->>S: {text}"),
            Who::Stranger => writeln!(out, "    X->>S: {text}"),
            Who::Watch => writeln!(out, "    S--)O: {text}"),
            Who::Trouble => writeln!(out, "    Note over O,S: {text}"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(who: Who, text: &str) -> Line {
        Line { at: Duration::from_millis(1500), who, text: text.to_owned() }
    }

    #[test]
    fn steps_are_numbered_and_timed() {
        let told = steps(&[line(Who::User, "create Site a"), line(Who::Operator, "get sites → 200")]);
        assert!(told.contains("   1.     1.500s  user      create Site a\n"), "{told}");
        assert!(told.contains("   2.     1.500s  operator  get sites → 200"), "{told}");
    }

    #[test]
    fn a_long_story_shows_its_trouble() {
        let mut lines = vec![line(Who::Operator, "x"); 500];
        lines[300] = line(Who::Trouble, "here");
        let told = steps(&lines);
        assert!(told.contains("here") && told.contains("steps before") && told.contains("steps after"));
        assert!(told.lines().count() <= SHOWN + 2);
    }

    #[test]
    fn a_diagram_shows_requests_with_their_answers() {
        let drawn = mermaid(&[line(Who::Operator, "get sites → 200"), line(Who::Watch, "ADDED sites a")]);
        assert!(drawn.contains("O->>S: get sites\n    S-->>O: 200\n    S--)O: ADDED sites a"), "{drawn}");
    }
}

//! Compares what a page prints with what came.

use std::sync::LazyLock;

use regex::Regex;

/// What varies from run to run, and what stands for it.
static VARIES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"\x1b\[[0-9;]*m", ""),
        // The time of a log line is left out in print.
        (r"^\s*\d{4}-\d\d-\d\dT[0-9:.]+Z\s+", ""),
        (r"\d{4}-\d\d-\d\d[T ][0-9:.]+Z?", "<time>"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>"),
        (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+", "$1:<port>"),
        (r"-[0-9a-f]{16}\b", "-<hash>"),
        (r"\b[A-Za-z0-9.-]+_[0-9a-f]{16}\b", "<replica>"),
        (r"\b(\d+(\.\d+)?(ns|µs|ms|s|m|h|d))+\b", "<span>"),
        (r"\b\d+\.\d+ s\b", "<span>"),
        (r"/[^ ]*/target/", "target/"),
        (r"(resource_version|version|id)=\d+", "$1=<n>"),
        (r" from default namespace", ""),
        (r"\s+", " "),
    ]
    .map(|(pattern, by)| (Regex::new(pattern).expect("it is a pattern"), by))
    .into()
});

/// Returns the lines of a text without what varies.
pub fn normal(text: &str) -> Vec<String> {
    let one = |line: &str| {
        let of_line =
            |line: String, (pattern, by): &(Regex, &str)| pattern.replace_all(&line, *by).into_owned();
        VARIES.iter().fold(line.to_owned(), of_line).trim().to_owned()
    };
    text.lines().map(one).filter(|line| !line.is_empty()).collect()
}

/// Returns whether an output is what a page prints; `…` stands for anything in a line, or for any number of lines.
pub fn shows(printed: &str, came: &str) -> bool {
    fits(&normal(printed), &normal(came))
}

fn fits(printed: &[String], came: &[String]) -> bool {
    match printed.split_first() {
        None => came.is_empty(),
        Some((first, rest)) if first == "…" => (0..=came.len()).any(|at| fits(rest, &came[at..])),
        Some((first, rest)) => {
            came.first().is_some_and(|came| is_line(first, came)) && fits(rest, &came[1..])
        }
    }
}

/// Returns whether a line without what varies is what a page prints; each `…` stands for anything.
pub fn is_line(printed: &str, came: &str) -> bool {
    let Some((before, after)) = printed.split_once('…') else { return printed == came };
    let Some(rest) = came.strip_prefix(before) else { return false };
    let mut starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    starts.any(|at| is_line(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ports_and_names_of_a_run_do_not_count() {
        let came = "2026-11-26T11:17:05.1Z  INFO served at 127.0.0.1:41234 for 5.03ms\n";
        assert_eq!(normal(came), ["INFO served at 127.0.0.1:<port> for <span>"]);
        assert!(shows("INFO served at 127.0.0.1:8080 for 12s", came));
        assert!(!shows("INFO served at 127.0.0.1:8080", came));
        assert!(shows("after 2.5 s.", "after 13.1 s."));
    }

    #[test]
    fn a_line_of_dots_stands_for_any_lines() {
        assert!(shows("…\nb\n…\n", "a\nb\n"));
        assert!(shows("…\nb\n", "b\n"));
        assert!(!shows("b\n…\n", "a\nb\nc\n"));
        assert!(shows("a … c\n", "a b c\n") && !shows("a … c\n", "a b\n"));
        assert!(shows("a … c …\n", "a b c d\n") && !shows("a … c …\n", "a b d\n"));
    }
}

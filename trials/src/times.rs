//! Times within texts: no two runs have the same.

use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;

static TIME: LazyLock<Regex> = LazyLock::new(|| {
    let time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)";
    Regex::new(time).expect("it is an expression")
});

/// Puts something in the place of each time within a text.
pub(crate) fn map(text: &str, put: impl Fn(Timestamp) -> String) -> String {
    // Most texts hold none, and a colon is looked for faster.
    if !text.contains(':') {
        return text.to_owned();
    }
    let put = |found: &regex::Captures<'_>| found[0].parse().map_or_else(|_| found[0].to_owned(), &put);
    TIME.replace_all(text, put).into_owned()
}

/// Writes the times within a text as a story has them: how long after its start they are.
///
/// A time of another year has nothing to do with it.
pub(crate) fn since(text: &str, start: Timestamp) -> String {
    map(text, |time| match time.as_second() - start.as_second() {
        seconds @ 0..YEAR => format!("T+{seconds}s"),
        seconds if (-YEAR..0).contains(&seconds) => format!("T{seconds}s"),
        _ => time.to_string(),
    })
}

/// In seconds.
const YEAR: i64 = 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    // T12
    #[test]
    fn times_are_told_from_the_start_on() {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("it is a time");
        let text = "from 2025-12-31T23:59:30Z until 2026-01-01T01:00:00.5+01:00, a:b 2026-01-01";
        assert_eq!(since(text, start), "from T-30s until T+0s, a:b 2026-01-01");
        assert_eq!(since("1970-01-01T00:00:00Z", start), "1970-01-01T00:00:00Z");
    }
}

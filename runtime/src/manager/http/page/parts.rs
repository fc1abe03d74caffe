//! Small parts of the page: times, counts, links.

use std::{fmt::Write as _, time::Duration};

use maud::{Markup, html};

use crate::clock::{Moment, readable};

/// Shows a moment that has passed, as people say it; the time of day for who looks closer.
pub(super) fn ago(moment: Moment) -> Markup {
    html! { time datetime=(moment) title=(moment) { (readable(moment.elapsed())) " ago" } }
}

/// Shows how long something has been so.
pub(super) fn lasting(since: Moment) -> Markup {
    html! { time datetime=(since) title=(since) { (readable(since.elapsed())) } }
}

/// Shows a moment that may be to come.
pub(super) fn due(moment: Moment) -> Markup {
    let left = moment.left();
    html! {
        time datetime=(moment) title=(moment) {
            @if left.is_zero() { "now" } @else { "in " (readable(left)) }
        }
    }
}

/// Shows how long something took.
pub(super) fn took(seconds: f64) -> String {
    readable(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Counts things.
pub(super) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// Writes a number with its thousands apart.
pub(super) fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Writes a number of bytes.
pub(super) fn bytes(count: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = count as f64;
    let mut unit = 0;
    while size >= 1_024.0 && unit + 1 < UNITS.len() {
        (size, unit) = (size / 1_024.0, unit + 1);
    }
    if unit == 0 { format!("{count} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// Links a key to what is said of it.
pub(super) fn key(key: &str) -> Markup {
    html! { a.key href={ "/debug?key=" (encoded(key)) } { (key) } }
}

/// Writes a text as a query has it.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(byte.into())
            }
            other => drop(write!(encoded, "%{other:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        for (count, text) in
            [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")]
        {
            assert_eq!(grouped(count), text);
        }
        for (count, text) in
            [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (usize::MAX, "16777216.0 TiB")]
        {
            assert_eq!(bytes(count), text);
        }
        assert_eq!((took(0.25), took(f64::NAN)), ("250ms".to_owned(), readable(Duration::MAX)));
    }

    // P4
    #[test]
    fn a_link_to_a_key_holds_nothing_but_the_key() {
        assert_eq!(encoded("shop/a b&c=\"<ü>"), "shop/a%20b%26c%3D%22%3C%C3%BC%3E");
        let link = key("a\"><script>").into_string();
        assert!(!link.contains("<script>"), "{link}");
    }
}

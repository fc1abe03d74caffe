//! Logs the warnings of the API server: each text once, whatever the number of requests that bring it.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, Method, Uri};
use parking_lot::Mutex;

use crate::{api_request::describe, object::cut_to, plain::plain};

const WARNING: HeaderName = HeaderName::from_static("warning");
/// At most this many texts are remembered: texts that name objects would never end.
const MOST: usize = 1_000;
/// At most this many bytes of a text are shown and remembered.
const LONGEST: usize = 512;
/// At most this many warnings of one answer are read.
const MOST_AT_ONCE: usize = 100;

/// The warnings that were logged.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    logged: Mutex<HashSet<String>>,
}

/// Whether a text was logged before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WarningText {
    New,
    /// No further text will be remembered.
    Last,
    Old,
}

impl Warnings {
    /// Logs the new warnings of an answer.
    pub(super) fn log(&self, headers: &HeaderMap, method: &Method, uri: &Uri) {
        if !headers.contains_key(WARNING) {
            return;
        }
        let (verb, resource) = describe(method, uri);
        let texts = headers.get_all(WARNING).iter().flat_map(|value| texts_in(value.as_bytes()));
        for warning in texts.take(MOST_AT_ONCE) {
            let text = self.note(&warning);
            if text != WarningText::Old {
                tracing::warn!(
                    verb,
                    resource,
                    warning,
                    "the API server warns of a {verb} of {resource}: {warning}"
                );
            }
            if text == WarningText::Last {
                tracing::warn!(
                    "the API server has warned of {MOST} different things: further warnings are not logged"
                );
            }
        }
    }

    fn note(&self, text: &str) -> WarningText {
        let mut logged = self.logged.lock();
        if logged.len() >= MOST || !logged.insert(text.to_owned()) {
            return WarningText::Old;
        }
        if logged.len() == MOST { WarningText::Last } else { WarningText::New }
    }
}

/// Reads the texts of a header such as `299 - "unknown field \"spec.a\"", 299 - "another"`; anything else is skipped.
fn texts_in(header: &[u8]) -> Vec<String> {
    let (mut texts, mut text) = (Vec::new(), None::<Vec<u8>>);
    let mut bytes = header.iter().copied();
    while let Some(byte) = bytes.next() {
        match (&mut text, byte) {
            (None, b'"') => text = Some(Vec::new()),
            (None, _) => {}
            (Some(_), b'"') => {
                texts.extend(text.take().map(shown).filter(|text| !text.is_empty() && !is_date(text)))
            }
            (Some(text), b'\\') => text.extend(bytes.next()),
            (Some(text), byte) => text.push(byte),
        }
    }
    texts
}

/// Returns a text as one line of the log can hold it.
fn shown(text: Vec<u8>) -> String {
    let text = String::from_utf8_lossy(&text);
    cut_to(plain(text.trim()).to_string(), LONGEST)
}

/// A date may follow a text, in quotes too: `Wed, 21 Oct 2015 07:28:00 GMT`.
fn is_date(text: &str) -> bool {
    text.len() == 29 && text.ends_with(" GMT") && text.as_bytes()[3] == b','
}

#[cfg(test)]
mod tests {
    use super::*;

    // W21
    #[test]
    fn the_texts_of_a_header_are_read_whatever_it_is() {
        for (header, texts) in [
            (r#"299 - "unknown field \"spec.a\"""#, vec![r#"unknown field "spec.a""#]),
            (r#"299 - "one", 299 - "two, and more""#, vec!["one", "two, and more"]),
            (r#"299 - "old" "Wed, 21 Oct 2015 07:28:00 GMT""#, vec!["old"]),
            (r#"299 - "open"#, vec![]),
            (r#"299 - "ends in a \"#, vec![]),
            ("", vec![]),
            ("nothing", vec![]),
            (r#"299 - """#, vec![]),
            ("299 - \"a\tb\"", vec!["a\\tb"]),
        ] {
            assert_eq!(texts_in(header.as_bytes()), texts, "{header}");
        }
        assert_eq!(texts_in(b"299 - \"\xff\""), ["\u{fffd}"]);
        assert_eq!(
            texts_in(format!("299 - \"{}\"", "é".repeat(10_000)).as_bytes())[0].len() / 2,
            LONGEST / 2 - 1
        );
    }

    // W21
    #[test]
    fn what_is_remembered_is_bounded_and_the_log_says_so_once() {
        let warnings = Warnings::default();
        assert_eq!(
            [warnings.note("a"), warnings.note("a"), warnings.note("b")],
            [WarningText::New, WarningText::Old, WarningText::New]
        );
        let noted = (0..2 * MOST).map(|number| warnings.note(&number.to_string()));
        assert_eq!(noted.filter(|text| *text == WarningText::Last).count(), 1);
        assert_eq!(warnings.logged.lock().len(), MOST);
        assert_eq!(warnings.note("new"), WarningText::Old);
    }
}

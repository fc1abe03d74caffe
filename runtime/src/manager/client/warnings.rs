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

impl Warnings {
    /// Logs the new warnings of an answer.
    pub(super) fn log(&self, headers: &HeaderMap, method: &Method, uri: &Uri) {
        if !headers.contains_key(WARNING) {
            return;
        }
        let (verb, resource) = describe(method, uri);
        let texts = headers.get_all(WARNING).iter().flat_map(|value| texts_in(value.as_bytes()));
        for warning in texts.take(MOST_AT_ONCE) {
            let remembered = self.remember(&warning);
            if remembered.is_some() {
                let said = "the API server warns of a";
                tracing::warn!(verb, resource, warning, "{said} {verb} of {resource}: {warning}");
            }
            if remembered == Some(MOST) {
                tracing::warn!(
                    "the API server has warned of {MOST} different things: further warnings are not logged"
                );
            }
        }
    }

    /// Returns how many texts are remembered if this one is new.
    fn remember(&self, text: &str) -> Option<usize> {
        let mut logged = self.logged.lock();
        (logged.len() < MOST && logged.insert(text.to_owned())).then(|| logged.len())
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
            (Some(_), b'"') => texts.extend(text.take().map(shown).filter(|text| !text.is_empty())),
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

#[cfg(test)]
mod tests {
    use super::*;

    // W21
    #[test]
    fn the_texts_of_a_header_are_read_whatever_it_is() {
        for (header, texts) in [
            (r#"299 - "unknown field \"spec.a\"""#, vec![r#"unknown field "spec.a""#]),
            (r#"299 - "one", 299 - "two, and more""#, vec!["one", "two, and more"]),
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
        assert_eq!(["a", "a", "b"].map(|text| warnings.remember(text)), [Some(1), None, Some(2)]);
        let noted = (0..2 * MOST).map(|number| warnings.remember(&number.to_string()));
        assert_eq!(noted.filter(|count| *count == Some(MOST)).count(), 1);
        assert_eq!(warnings.logged.lock().len(), MOST);
        assert_eq!(warnings.remember("new"), None);
    }
}

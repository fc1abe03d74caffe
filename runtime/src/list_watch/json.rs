//! Well-formed JSON, and what stands where in it.

use std::borrow::Cow;

use serde::Deserialize;

use super::scan::{Malformed, Scan, Scanner, is_blank};

/// The text of one value that is known to be well-formed, without blanks around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Json<'a>(&'a str);

/// Why a text is not one JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It may become one, if more follows.
    CutShort,
    /// It is none, whatever follows.
    Malformed,
}

impl<'a> Json<'a> {
    /// Reads a text that holds one value, and nothing else but blanks.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, Flaw> {
        let bytes = trimmed(bytes);
        let malformed = |Malformed| Flaw::Malformed;
        let mut scanner = Scanner::default();
        match scanner.scan(bytes, &mut ()).map_err(malformed)? {
            Scan::Ends(end) if end == bytes.len() => {}
            Scan::Ends(_) => return Err(Flaw::Malformed),
            Scan::GoesOn if scanner.is_whole_at_end_of(bytes).map_err(malformed)? => {}
            Scan::GoesOn => return Err(Flaw::CutShort),
        }
        std::str::from_utf8(bytes).map(Self).map_err(|_| Flaw::Malformed)
    }

    /// Takes a part of a well-formed text: one value, without blanks around it.
    pub(super) fn part(text: &'a str) -> Self {
        Self(text)
    }

    pub(super) fn as_str(self) -> &'a str {
        self.0
    }

    /// Walks the members of an object, keys as they stand between their quotes; what is no object has none.
    pub(super) fn members(self) -> Members<'a> {
        Members { rest: self.0.strip_prefix('{').unwrap_or_default() }
    }

    /// Finds the value of a member of an object; the last one, as `serde_json` does.
    pub(super) fn member(self, name: &str) -> Option<Json<'a>> {
        self.members().filter(|(key, _)| is_spelled(key, name)).last().map(|(_, value)| value)
    }

    /// Reads a member that should be a string; `None` if it is anything else.
    pub(super) fn text_member(self, name: &str) -> Option<String> {
        self.member(name)?.decode()
    }

    /// Reads a member that is a string, null or absent; `None` if it is anything else.
    pub(super) fn text_or_none(self, name: &str) -> Option<String> {
        match self.member(name) {
            Some(member) => member.decode::<Option<String>>().map(Option::unwrap_or_default),
            None => Some(String::new()),
        }
    }

    pub(super) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Decodes the value; `None` where it is of another type.
    pub(super) fn decode<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.0).ok()
    }
}

/// The members of an object; see [`Json::members`].
#[derive(Debug)]
pub(super) struct Members<'a> {
    rest: &'a str,
}

impl<'a> Members<'a> {
    /// Cuts off the next value, and what stands before it.
    fn value(&mut self, before: &[char]) -> Option<&'a str> {
        let rest = self.rest.trim_start_matches(before);
        let Ok(Scan::Ends(end)) = Scanner::default().scan(rest.as_bytes(), &mut ()) else { return None };
        let (value, rest) = rest.split_at_checked(end)?;
        self.rest = rest;
        Some(value)
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.value(&[',', ' ', '\t', '\r', '\n'])?;
        let key = key.strip_prefix('"')?.strip_suffix('"')?;
        let value = self.value(&[':', ' ', '\t', '\r', '\n'])?;
        Some((key, Json(value)))
    }
}

/// Returns whether a key, as it stands between its quotes, spells a name.
pub(super) fn is_spelled(key: &str, name: &str) -> bool {
    key == name || (key.contains('\\') && unescaped(key).as_deref() == Some(name))
}

/// Reads a string as it stands between its quotes.
pub(super) fn unescaped(raw: &str) -> Option<String> {
    serde_json::from_str(&["\"", raw, "\""].concat()).ok()
}

/// A string that is borrowed where it holds no escapes.
#[derive(Deserialize)]
pub(super) struct Borrowed<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Cuts blanks off both ends.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    let Some(start) = bytes.iter().position(|byte| !is_blank(*byte)) else { return &[] };
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn members_are_found_as_they_stand() {
        let text =
            json(r#" { "a" : {"b":[1,"]}\"",{}]} , "c":-1.5e3,"d\u0065":"x\\" ,"f":null, "c" : [ ] } "#);
        let found: Vec<_> = text.members().map(|(_, value)| value.as_str()).collect();
        assert_eq!(found, [r#"{"b":[1,"]}\"",{}]}"#, "-1.5e3", r#""x\\""#, "null", "[ ]"]);
        assert_eq!(text.text_member("de").as_deref(), Some("x\\"));
        assert_eq!(text.member("c").map(Json::as_str), Some("[ ]"));
        assert_eq!(text.member("zz"), None);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["[1]", "null", "{}", " { } ", "5", "\"a\""] {
            assert_eq!(json(text).members().count(), 0, "{text}");
        }
    }

    #[test]
    fn a_text_that_may_go_on_is_told_from_one_that_may_not() {
        for text in [
            "",
            " ",
            "{",
            r#"{"a"#,
            r#"{"a" "#,
            r#"{"a":1"#,
            r#"{"a":1,"#,
            r#"["\"#,
            r#"["\u00"#,
            "tru",
            "[-",
            r#"{"a":nul"#,
        ] {
            assert_eq!(Json::read(text.as_bytes()), Err(Flaw::CutShort), "{text}");
        }
        for text in [
            "}",
            "{,",
            "{1",
            r#"{"a"}"#,
            r#"{"a":1,}"#,
            "[1,]",
            "[}",
            "{]",
            "[01]",
            "-",
            "1.",
            "[tru,",
            "[1 2",
            "1 2",
            "{}{",
        ] {
            assert_eq!(Json::read(text.as_bytes()), Err(Flaw::Malformed), "{text}");
        }
    }
}

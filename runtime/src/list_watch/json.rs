//! Finds where JSON values begin and end, without reading what is in them.
//!
//! Brackets are counted, not matched, and scalars are not checked: whoever decodes a span does that.

/// Finds the end of one JSON value, over as many chunks as it takes.
#[derive(Debug, Default)]
pub(super) struct ValueScanner {
    depth: usize,
    state: Within,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Within {
    /// Before the first byte of the value.
    #[default]
    Before,
    /// Between the brackets of an object or array.
    Brackets,
    /// Inside a string.
    Text,
    /// Inside a string, after a backslash.
    Escape,
    /// Inside a number, `true`, `false` or `null`.
    Scalar,
}

/// Says how far a scan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The value ends before this offset.
    Ends(usize),
    /// The value goes on beyond the bytes given.
    GoesOn,
}

impl ValueScanner {
    /// Reads on; blanks before the value count as part of it.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Scan {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                Within::Brackets => {
                    let Some(ahead) = bytes[at..].iter().position(|byte| MATTERS[usize::from(*byte)]) else {
                        return Scan::GoesOn;
                    };
                    at += ahead + 1;
                    match bytes[at - 1] {
                        b'"' => self.state = Within::Text,
                        b'{' | b'[' => self.depth += 1,
                        _ => {
                            self.depth -= 1;
                            if self.depth == 0 {
                                return self.end(at);
                            }
                        }
                    }
                }
                Within::Text => match end_of_text(&bytes[at..]) {
                    None => return Scan::GoesOn,
                    Some(ahead) => {
                        at += ahead + 1;
                        let closed = bytes[at - 1] == b'"';
                        self.state = if closed { Within::Brackets } else { Within::Escape };
                        if closed && self.depth == 0 {
                            return self.end(at);
                        }
                    }
                },
                Within::Escape => {
                    self.state = Within::Text;
                    at += 1;
                }
                Within::Scalar => match bytes[at] {
                    b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' => return self.end(at),
                    _ => at += 1,
                },
                Within::Before if is_blank(bytes[at]) => at += 1,
                Within::Before => {
                    self.state = match bytes[at] {
                        b',' | b'}' | b']' | b':' => return self.end(at),
                        b'"' => Within::Text,
                        b'{' | b'[' => {
                            self.depth = 1;
                            Within::Brackets
                        }
                        _ => Within::Scalar,
                    };
                    at += 1;
                }
            }
        }
        Scan::GoesOn
    }

    /// Tells whether a value has begun that has not ended yet.
    pub(super) fn has_begun(&self) -> bool {
        self.state != Within::Before
    }

    fn end(&mut self, at: usize) -> Scan {
        *self = Self::default();
        Scan::Ends(at)
    }
}

/// Which bytes matter between the brackets of a value, outside of strings.
const MATTERS: [bool; 256] = {
    let mut matters = [false; 256];
    (matters[b'"' as usize], matters[b'{' as usize], matters[b'[' as usize]) = (true, true, true);
    (matters[b'}' as usize], matters[b']' as usize]) = (true, true);
    matters
};

/// How far a string is looked at byte by byte; most end before a faster search would have begun.
const SHORT: usize = 16;

/// Finds the first quote or backslash.
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    let (head, rest) = bytes.split_at(bytes.len().min(SHORT));
    let short = head.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    short.or_else(|| Some(SHORT + memchr::memchr2(b'"', b'\\', rest)?))
}

/// Tells whether a byte is blank between JSON tokens.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Cuts blanks off both ends.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    let Some(start) = bytes.iter().position(|byte| !is_blank(*byte)) else { return &[] };
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Walks the members of an object: key and value, as they stand in the text.
///
/// Ends early where the text is no object or stops making sense.
pub(super) fn members(object: &[u8]) -> Members<'_> {
    let object = trimmed(object);
    match object.first() {
        Some(b'{') => Members { rest: &object[1..], closed: trimmed_start(&object[1..]) == b"}" },
        _ => Members { rest: &[], closed: false },
    }
}

/// The members of an object; see [`members`].
#[derive(Debug)]
pub(super) struct Members<'a> {
    rest: &'a [u8],
    /// Whether nothing but the closing brace is left.
    closed: bool,
}

impl Members<'_> {
    /// Tells, after the last member, whether the object ended as an object should.
    pub(super) fn ended_well(&self) -> bool {
        self.closed
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.value()?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        self.skip(b':')?;
        let value = self.value()?;
        match trimmed_start(self.rest).first() {
            Some(b',') => self.skip(b',')?,
            _ => {
                self.closed = trimmed_start(self.rest) == b"}";
                self.rest = &[];
            }
        }
        Some((key, value))
    }
}

impl<'a> Members<'a> {
    fn value(&mut self) -> Option<&'a [u8]> {
        let Scan::Ends(end) = ValueScanner::default().scan(self.rest) else { return None };
        let (value, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(trimmed(value)).filter(|value| !value.is_empty())
    }

    fn skip(&mut self, byte: u8) -> Option<()> {
        let rest = trimmed_start(self.rest);
        self.rest = rest.strip_prefix(&[byte])?;
        Some(())
    }
}

fn trimmed_start(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    &bytes[start..]
}

/// Tells whether a key, as it stands in the text between its quotes, spells a name.
pub(super) fn key_is(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes() || (raw.contains(&b'\\') && unescaped(raw).as_deref() == Some(name))
}

fn unescaped(raw: &[u8]) -> Option<String> {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice(&quoted).ok()
}

/// Finds the value of a member of an object.
pub(super) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    members(object).find(|(key, _)| key_is(key, name)).map(|(_, value)| value)
}

/// Reads a member that should be a string; `None` if it is anything else.
pub(super) fn text_member(object: &[u8], name: &str) -> Option<String> {
    serde_json::from_slice(member(object, name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_as_they_stand() {
        let text = br#" { "a" : {"b":[1,"]}\"",{}]} , "c":-1.5e3,"d\u0065":"x\\" ,"f":null }"#;
        let found: Vec<_> = members(text).map(|(_, value)| std::str::from_utf8(value).unwrap()).collect();
        assert_eq!(found, [r#"{"b":[1,"]}\"",{}]}"#, "-1.5e3", r#""x\\""#, "null"]);
        assert_eq!(text_member(text, "de").as_deref(), Some("x\\"));
        assert_eq!(member(text, "zz"), None);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["", "[1]", "null", "{", "{}", "{\"a\"", "{\"a\":", "{1:2}", "{,}", "}"] {
            assert_eq!(members(text.as_bytes()).count(), 0, "{text}");
        }
    }

    #[test]
    fn an_object_that_breaks_off_or_goes_on_does_not_end_well() {
        let ends_well = |text: &str| {
            let mut members = members(text.as_bytes());
            (&mut members).for_each(drop);
            members.ended_well()
        };
        for text in ["{}", " { } ", r#"{"a":1}"#, r#"{"a":{"b":1} , "c":[] }"#] {
            assert!(ends_well(text), "{text}");
        }
        for text in ["", "[]", "{", r#"{"a":1"#, r#"{"a":1,}"#, r#"{"a":1 "b":2}"#, r#"{"a":1}}"#, r#"{"a"}"#]
        {
            assert!(!ends_well(text), "{text}");
        }
    }

    #[test]
    fn a_value_ends_at_the_same_byte_however_it_is_cut() {
        let text = br#" {"a":"\\\"}","b":[[],{"c":1}]},"#;
        for cut in 0..text.len() {
            let mut scanner = ValueScanner::default();
            let end = match scanner.scan(&text[..cut]) {
                Scan::Ends(end) => end,
                Scan::GoesOn => match scanner.scan(&text[cut..]) {
                    Scan::Ends(end) => cut + end,
                    Scan::GoesOn => panic!("no end, cut at {cut}"),
                },
            };
            assert_eq!(end, text.len() - 1);
        }
    }
}

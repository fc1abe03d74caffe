//! Reads one JSON value strictly, over as many chunks as it takes: where it ends, and that it is well-formed.
//!
//! With the places of type and metadata it takes 12.5 instructions a byte (a Pod of 2.5 KB), `serde_json` 1.0.154 into
//! fields of `RawValue` 13.5. That needs the whole value at once: it can't say where a list's next item ends, and reads a
//! value anew with every chunk.
//!
//! It accepts what RFC 8259 calls JSON, as `serde_json` does of a value that it skips. Whoever takes the value's text looks at
//! two more things: whether it is UTF-8, and how deep it is nested. Whether a number or half a surrogate pair fits a type
//! is that type's matter: the one object is then unreadable.

use std::ops::Range;

use super::cut::plain;

/// Reads one value, blanks before it included.
///
/// The text given starts where the value does, and grows from call to call; what has been read is not read again.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    at: usize,
    /// Where the string or number that is being read began.
    begun: usize,
    state: State,
    depth: usize,
    /// Most brackets that were open at once.
    deepest: usize,
    /// The innermost open brackets: a bit each, set for objects.
    brackets: u64,
    /// Those around them, in full words.
    outer: Vec<u64>,
}

/// What comes next, or what is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Value,
    /// After `[`: a value or `]`.
    FirstElement,
    /// After `{`: a key or `}`.
    FirstKey,
    Key,
    Colon,
    /// After a value within brackets.
    After,
    Text(Role),
    Number,
}

/// What a string is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Key,
    Value,
}

/// How far a scan has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The value ends before this offset.
    Ends(usize),
    /// The value goes on beyond the bytes given.
    GoesOn,
}

/// The text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Visits the keys and values of the outer two levels; a level is the number of open brackets around.
pub(super) trait Visitor {
    /// A key was read; it stands here between its quotes.
    fn key(&mut self, level: usize, text: &[u8], key: Range<usize>);
    /// A value begins.
    fn begins(&mut self, level: usize, at: usize);
    /// The value ended.
    fn ends(&mut self, level: usize, at: usize);
}

/// Takes no notes.
impl Visitor for () {
    fn key(&mut self, _level: usize, _text: &[u8], _key: Range<usize>) {}
    fn begins(&mut self, _level: usize, _at: usize) {}
    fn ends(&mut self, _level: usize, _at: usize) {}
}

/// The levels that notes are taken of.
const NOTED: usize = 2;

impl Scanner {
    /// Reads on.
    pub(super) fn scan(&mut self, text: &[u8], visitor: &mut impl Visitor) -> Result<Scan, Malformed> {
        let mut pass = Pass {
            text,
            at: self.at,
            begun: self.begun,
            state: self.state,
            depth: self.depth,
            deepest: self.deepest,
            brackets: self.brackets,
            outer: &mut self.outer,
            visitor,
        };
        let scan = pass.run();
        (self.at, self.begun, self.state) = (pass.at, pass.begun, pass.state);
        (self.depth, self.deepest, self.brackets) = (pass.depth, pass.deepest, pass.brackets);
        scan
    }

    /// Returns how deep the value is nested.
    pub(super) fn deepest(&self) -> usize {
        self.deepest
    }

    /// Tells, at the end of the text, whether the value is whole: a number goes on for as long as digits may come.
    pub(super) fn is_whole_at_end_of(&self, text: &[u8]) -> Result<bool, Malformed> {
        match self.state == State::Number && self.depth == 0 {
            true => is_number(&text[self.begun..]).then_some(true).ok_or(Malformed),
            false => Ok(false),
        }
    }
}

/// A scanner at work on the text that there is.
struct Pass<'a, N> {
    text: &'a [u8],
    at: usize,
    begun: usize,
    state: State,
    depth: usize,
    deepest: usize,
    brackets: u64,
    outer: &'a mut Vec<u64>,
    visitor: &'a mut N,
}

/// What a step comes to: the value ended, more bytes are needed, or there is another step to take.
enum Step {
    Done,
    NeedsMore,
    Next,
}

impl<N: Visitor> Pass<'_, N> {
    fn run(&mut self) -> Result<Scan, Malformed> {
        loop {
            let step = match self.state {
                State::Text(role) => self.text(role)?,
                State::Number => self.number()?,
                _ => self.token()?,
            };
            match step {
                Step::Next => {}
                Step::NeedsMore => return Ok(Scan::GoesOn),
                Step::Done => return Ok(Scan::Ends(self.at)),
            }
        }
    }

    /// Reads what stands between strings and numbers.
    #[inline(always)]
    fn token(&mut self) -> Result<Step, Malformed> {
        let Some(byte) = self.next_token() else { return Ok(Step::NeedsMore) };
        match (self.state, byte) {
            (State::Colon, b':') => {
                self.at += 1;
                self.state = State::Value;
            }
            (State::After, b',') => self.comma(),
            (State::FirstKey | State::Key, b'"') => return self.open_text(Role::Key),
            (State::FirstKey, b'}') => return Ok(self.close()),
            (State::FirstElement, b']') => return Ok(self.close()),
            (State::After, b'}') if self.brackets & 1 == 1 => return Ok(self.close()),
            (State::After, b']') if self.brackets & 1 == 0 => return Ok(self.close()),
            (State::Value | State::FirstElement, _) => return self.value(byte),
            _ => return Err(Malformed),
        }
        Ok(Step::Next)
    }

    #[inline(always)]
    fn value(&mut self, byte: u8) -> Result<Step, Malformed> {
        self.note_begin(self.at);
        match byte {
            b'"' => return self.open_text(Role::Value),
            b'{' => self.open(1, State::FirstKey),
            b'[' => self.open(0, State::FirstElement),
            b't' => return self.word(b"true"),
            b'f' => return self.word(b"false"),
            b'n' => return self.word(b"null"),
            b'-' | b'0'..=b'9' => {
                (self.begun, self.state) = (self.at, State::Number);
                self.at += 1;
            }
            _ => return Err(Malformed),
        }
        Ok(Step::Next)
    }

    #[inline(always)]
    fn next_token(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !is_blank(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    #[inline(always)]
    fn open_text(&mut self, role: Role) -> Result<Step, Malformed> {
        self.at += 1;
        (self.begun, self.state) = (self.at, State::Text(role));
        self.text(role)
    }

    #[inline(always)]
    fn comma(&mut self) {
        self.at += 1;
        self.state = if self.brackets & 1 == 1 { State::Key } else { State::Value };
    }

    /// Reads on in a string, and in the keys and strings that follow it without a blank: most of an object is that.
    #[inline(always)]
    fn text(&mut self, mut role: Role) -> Result<Step, Malformed> {
        loop {
            let Some(end) = self.end_of_text()? else { return Ok(Step::NeedsMore) };
            self.at = end + 1;
            let follows = self.text.get(end + 1..).unwrap_or_default();
            match role {
                Role::Key => {
                    self.note_key(end);
                    match follows {
                        [b':', b'"', ..] => {
                            self.note_begin(end + 2);
                            role = Role::Value;
                            self.at = end + 3;
                        }
                        [b':', b'{', b'"', ..] => {
                            self.at = end + 2;
                            self.note_begin(end + 2);
                            self.open(1, State::FirstKey);
                            role = Role::Key;
                            self.at = end + 4;
                        }
                        [b':', ..] => {
                            self.at = end + 2;
                            self.state = State::Value;
                            return Ok(Step::Next);
                        }
                        _ => {
                            self.state = State::Colon;
                            return Ok(Step::Next);
                        }
                    }
                }
                Role::Value => match follows {
                    [b',', b'"', ..] if self.depth > 0 && self.brackets & 1 == 1 => {
                        self.note_end();
                        role = Role::Key;
                        self.at = end + 3;
                    }
                    _ => return Ok(self.ended()),
                },
            }
            (self.begun, self.state) = (self.at, State::Text(role));
        }
    }

    #[inline(always)]
    fn note_key(&mut self, end: usize) {
        if self.depth <= NOTED {
            self.visitor.key(self.depth, self.text, self.begun..end);
        }
    }

    #[inline(always)]
    fn note_begin(&mut self, at: usize) {
        if self.depth <= NOTED {
            self.visitor.begins(self.depth, at);
        }
    }

    #[inline(always)]
    fn note_end(&mut self) {
        if self.depth <= NOTED {
            self.visitor.ends(self.depth, self.at);
        }
    }

    /// Finds the quote that ends a string; `None` where it is not there yet.
    #[inline(always)]
    fn end_of_text(&mut self) -> Result<Option<usize>, Malformed> {
        loop {
            self.at = plain(self.text, self.at);
            match self.text.get(self.at..).unwrap_or_default() {
                [b'"', ..] => return Ok(Some(self.at)),
                [] | [b'\\'] => return Ok(None),
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => self.at += 2,
                [b'\\', b'u', digits @ ..] => {
                    let digits = &digits[..digits.len().min(4)];
                    match digits.iter().all(u8::is_ascii_hexdigit) {
                        true if digits.len() == 4 => self.at += 6,
                        true => return Ok(None),
                        false => return Err(Malformed),
                    }
                }
                _ => return Err(Malformed),
            }
        }
    }

    /// Reads on in a number: as far as its characters go, then asks whether they are one.
    fn number(&mut self) -> Result<Step, Malformed> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let Some(length) = rest.iter().position(|byte| !is_part(byte)) else {
            self.at = self.text.len();
            return Ok(Step::NeedsMore);
        };
        self.at += length;
        match is_number(&self.text[self.begun..self.at]) {
            true => Ok(self.ended()),
            false => Err(Malformed),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<Step, Malformed> {
        let rest = &self.text[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(self.ended())
        } else if word.starts_with(rest) {
            Ok(Step::NeedsMore)
        } else {
            Err(Malformed)
        }
    }

    #[inline(always)]
    fn open(&mut self, bracket: u64, state: State) {
        if self.depth.is_multiple_of(WORD) && self.depth > 0 {
            self.outer.push(self.brackets);
        }
        self.brackets = self.brackets << 1 | bracket;
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        self.at += 1;
        self.state = state;
    }

    #[inline(always)]
    fn close(&mut self) -> Step {
        self.at += 1;
        self.depth -= 1;
        self.brackets >>= 1;
        if self.depth.is_multiple_of(WORD) && self.depth > 0 {
            self.brackets = self.outer.pop().unwrap_or_default();
        }
        self.ended()
    }

    /// A value ended here.
    #[inline(always)]
    fn ended(&mut self) -> Step {
        self.state = State::After;
        self.note_end();
        if self.depth == 0 {
            return Step::Done;
        }
        // As it stands nearly always.
        if self.text.get(self.at) == Some(&b',') {
            self.comma();
        }
        Step::Next
    }
}

/// Brackets in a word.
const WORD: usize = u64::BITS as usize;

/// Returns whether a text is a number, however large.
#[inline(always)]
fn is_number(text: &[u8]) -> bool {
    match text.strip_prefix(b"-").unwrap_or(text) {
        [b'0', rest @ ..] => is_fraction(rest),
        [b'1'..=b'9', rest @ ..] => is_fraction(without_digits(rest)),
        _ => false,
    }
}

/// Returns whether a text is what may follow the whole part of a number.
#[inline(always)]
fn is_fraction(text: &[u8]) -> bool {
    let digits = |text: &[u8]| matches!(text, [b'0'..=b'9', ..]);
    let exponent = match text {
        [b'.', rest @ ..] if digits(rest) => without_digits(rest),
        rest => rest,
    };
    match exponent {
        [] => true,
        [b'e' | b'E', b'+' | b'-', rest @ ..] | [b'e' | b'E', rest @ ..] => {
            digits(rest) && without_digits(rest).is_empty()
        }
        _ => false,
    }
}

#[inline(always)]
fn without_digits(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| byte.is_ascii_digit()).count()..]
}

/// Returns whether a byte is blank between JSON tokens.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests;

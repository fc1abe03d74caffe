//! Finds where a value ends in text that comes in chunks.

use super::json::is_blank;

/// Finds where a value ends if it is well-formed; `serde_json` checks that afterwards.
///
/// The text given starts where the value does, and grows from call to call.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    at: usize,
    depth: usize,
    quoted: bool,
}

impl Cutter {
    /// Continues; `None` if the value goes on beyond the bytes given.
    pub(super) fn end(&mut self, text: &[u8]) -> Option<usize> {
        if !matches!(text.first()?, b'{' | b'[' | b'"') {
            return text.iter().position(|byte| is_blank(byte) || matches!(byte, b',' | b']' | b'}'));
        }
        while let Some(byte) = text.get(self.at) {
            match (self.quoted, byte) {
                (true, b'"') | (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(usize::from(!self.quoted));
                    self.quoted = false;
                    if self.depth == 0 {
                        return Some(self.at + 1);
                    }
                }
                // The byte that it escapes may not have come yet.
                (true, b'\\') => self.at += text.get(self.at + 1).map(|_| 1)?,
                (true, _) => {
                    let rest = &text[self.at..];
                    self.at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    continue;
                }
                (false, b'"') => self.quoted = true,
                (false, b'{' | b'[') => self.depth += 1,
                (false, _) => {}
            }
            self.at += 1;
        }
        None
    }
}

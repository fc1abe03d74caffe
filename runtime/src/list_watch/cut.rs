//! Finds where values end and how deep they are, in text that is well-formed or is read by somebody else after.

/// Finds where a value in brackets ends, as long as it is well-formed: that is left to whoever reads it.
///
/// The text given starts where the value does, and grows from call to call. It takes a third of a strict reading.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    at: usize,
    depth: usize,
    quoted: bool,
}

impl Cutter {
    /// Goes on; `None` where the value goes on beyond the bytes given.
    pub(super) fn end(&mut self, text: &[u8]) -> Option<usize> {
        while let Some(byte) = text.get(self.at) {
            if self.quoted {
                self.at = plain(text, self.at);
                match text.get(self.at)? {
                    b'"' => self.quoted = false,
                    // What it escapes may not be there yet.
                    b'\\' => self.at += text.get(self.at + 1).map(|_| 1)?,
                    _ => {}
                }
                self.at += 1;
                continue;
            }
            self.at += 1;
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(self.at);
                    }
                }
                b'"' => self.quoted = true,
                _ => {}
            }
        }
        None
    }
}

/// Returns how deep a well-formed text is nested.
pub(super) fn deepest(text: &[u8]) -> usize {
    let (mut at, mut depth, mut deepest) = (0, 0_usize, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                at = plain(text, at);
                while text.get(at) == Some(&b'\\') {
                    at = plain(text, at + 2);
                }
                at += 1;
            }
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Counts the bytes before the first quote, backslash or control character.
#[inline(always)]
pub(super) fn plain(text: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let mut at = from;
    while let Some(word) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        // A byte below 0x20 or 0x22 borrows; one that differs from a backslash by nothing does as well.
        let low = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = word ^ (ONES * 0x22);
        let slash = word ^ (ONES * 0x5c);
        let found = (low | quote.wrapping_sub(ONES) & !quote | slash.wrapping_sub(ONES) & !slash) & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let matters = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(matters).unwrap_or(rest.len())
}

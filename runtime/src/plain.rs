//! Escapes and cuts text from servers, objects and other processes, for logs and errors.

use std::fmt::{self, Write};

/// The longest part of a server's message that is shown, in bytes. The error's status has all of it.
const LONGEST: usize = 1_024;

/// Shows a foreign text within its line: control characters are escaped.
///
/// So are characters that change the direction of text, and those that end a line in some viewers.
pub(crate) fn plain(text: &str) -> PlainText<'_> {
    PlainText { text, cut: false }
}

/// Shows a message of a server like [`plain`], cut to the length of a log line.
pub(crate) fn said(message: &str) -> PlainText<'_> {
    let text = message.trim();
    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
    match text.get(..end.unwrap_or_default()).filter(|_| text.len() > LONGEST) {
        Some(beginning) => PlainText { text: beginning, cut: true },
        None => PlainText { text, cut: false },
    }
}

/// A foreign text that is safe to show.
#[derive(Clone, Copy)]
pub(crate) struct PlainText<'a> {
    text: &'a str,
    cut: bool,
}

impl fmt::Display for PlainText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.text;
        while let Some((at, odd)) = rest.char_indices().find(|(_, c)| is_escaped(*c)) {
            f.write_str(&rest[..at])?;
            odd.escape_default().try_for_each(|c| f.write_char(c))?;
            rest = &rest[at + odd.len_utf8()..];
        }
        f.write_str(rest)?;
        if self.cut { f.write_char('…') } else { Ok(()) }
    }
}

fn is_escaped(c: char) -> bool {
    match c {
        ' '..='~' => false,
        '\u{061c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => true,
        _ => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P16
    #[test]
    fn foreign_text_stays_in_its_line_and_in_its_direction() {
        for (text, shown) in [
            ("shop/a", "shop/a"),
            ("Größe 3 → 4 \\ \"x\"", "Größe 3 → 4 \\ \"x\""),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31mred\u{7f}\u{9b}", "\\u{1b}[31mred\\u{7f}\\u{9b}"),
            ("a\u{2028}b\u{202e}c\u{2066}d\u{feff}", "a\\u{2028}b\\u{202e}c\\u{2066}d\\u{feff}"),
        ] {
            assert_eq!(plain(text).to_string(), shown);
        }
    }

    // P16
    #[test]
    fn a_message_of_a_server_is_cut_to_a_kilobyte() {
        assert_eq!(said(" no \n").to_string(), "no");
        let long = said(&"ü".repeat(5_000)).to_string();
        assert!(long.ends_with("ü…") && long.len() <= LONGEST + "…".len(), "{} bytes", long.len());
    }
}

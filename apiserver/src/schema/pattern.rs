//! Patterns of strings, as Go's RE2 reads them.

use regex::Regex;

/// Reads a pattern; `None`: it uses classes of Unicode, which are not built in here.
///
/// # Errors
/// It is not a regular expression.
pub(super) fn compiled(pattern: &str) -> Result<Option<Regex>, regex::Error> {
    match Regex::new(&translated(pattern)) {
        Ok(regex) => Ok(Some(regex)),
        Err(_) if pattern.contains("\\p") || pattern.contains("\\P") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a pattern as this crate's engine reads it: its classes have letters of all languages in them, and a brace that
/// begins no repetition is not taken as it is.
fn translated(pattern: &str) -> String {
    let (mut text, mut rest, mut in_class) = (String::with_capacity(pattern.len()), pattern, false);
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        if letter == '\\' {
            let escaped = after.chars().next();
            let length = match escaped {
                // The braces belong to it.
                Some('x' | 'p' | 'P') if after[1..].starts_with('{') => {
                    after.find('}').map_or(after.len(), |end| end + 1)
                }
                escaped => escaped.map_or(0, char::len_utf8),
            };
            match escaped {
                Some('d') => text.push_str("[0-9]"),
                Some('D') => text.push_str("[^0-9]"),
                Some('w') => text.push_str("[0-9A-Za-z_]"),
                Some('W') => text.push_str("[^0-9A-Za-z_]"),
                Some('s') => text.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => text.push_str("[^\\t\\n\\f\\r ]"),
                _ => {
                    text.push('\\');
                    text.push_str(&after[..length]);
                }
            }
            rest = &after[length..];
            continue;
        }
        match letter {
            '[' if !in_class => in_class = true,
            ']' => in_class = false,
            '{' if !in_class && !is_repetition(after) => text.push('\\'),
            _ => {}
        }
        text.push(letter);
        rest = after;
    }
    text
}

/// Returns whether what follows a brace says how often something is repeated.
fn is_repetition(after: &str) -> bool {
    let Some((inside, _)) = after.split_once('}') else { return false };
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    !least.is_empty() && digits(least) && digits(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_of_ascii_and_a_brace_alone_is_a_brace() {
        let matches = |pattern: &str, text: &str| compiled(pattern).unwrap().unwrap().is_match(text);
        assert!(matches(r"^\w+$", "a_1") && !matches(r"^\w+$", "ü"));
        assert!(matches(r"^[\w-]+$", "a-1") && !matches(r"^[\d]+$", "٣"));
        assert!(matches(r"^\S\D\W$", "aa-") && !matches(r"^\W$", "a"));
        assert!(matches(r"^{.*}$", "{a}") && matches(r"^a{2,3}$", "aa") && !matches(r"^a{2}$", "a{2}"));
        assert!(matches(r"^\{a\\d$", r"{a\d") && matches(r"^[{]$", "{"));
        assert!(compiled(r"^\p{L}+$").unwrap().is_none_or(|regex| regex.is_match("ü")));
        assert!(
            matches(r"^[\w-\.]+$", "a-b.c") && matches(r"^[\w-z]+$", "a-b") && !matches(r"^[\s-x]$", "a")
        );
        assert!(matches(r"^\x{61}?b$", "ab") && matches(r"^[^\W]$", "a") && !matches(r"^[\S]$", " "));
        assert!(compiled("(").is_err());
    }
}

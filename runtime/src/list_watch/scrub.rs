//! Decode errors without the content that could not be decoded: a Secret must not reach a log.

use serde_json::error::Category;

const REFUSED: &str = "the value is refused by its type";

/// Returns what a decode error says, without values and without names that the object itself chose.
pub(super) fn without_content(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    match error.classify() {
        // These texts are serde_json's own and constant.
        Category::Syntax | Category::Eof | Category::Io => text.to_owned(),
        Category::Data => scrubbed(text).unwrap_or_else(|| REFUSED.to_owned()),
    }
}

fn scrubbed(text: &str) -> Option<String> {
    for form in ["invalid type: ", "invalid value: "] {
        if let Some(rest) = text.strip_prefix(form) {
            let (found, expected) = rest.rsplit_once(", expected ")?;
            return Some(format!("{form}{}, expected {expected}", sort_of_value(found)));
        }
    }
    for form in ["unknown field", "unknown variant"] {
        if text.starts_with(form) {
            let expected = text.rsplit_once("`, expected ").map_or("none", |(_, expected)| expected);
            return Some(format!("{form}, expected {expected}"));
        }
    }
    let constant = ["missing field `", "duplicate field `"].iter().any(|form| is_one_name(text, form))
        || text.starts_with("invalid length ")
        || text.starts_with("data did not match any variant of untagged enum ");
    constant.then(|| text.to_owned())
}

fn is_one_name(text: &str, form: &str) -> bool {
    let name = text.strip_prefix(form).and_then(|rest| rest.strip_suffix('`'));
    name.is_some_and(|name| !name.contains('`'))
}

/// Names the sort of a value that serde shows as, for example, ``string "hunter2"``.
fn sort_of_value(found: &str) -> &'static str {
    const SORTS: &str = "boolean, integer, floating point, character, string, byte array, unit value, null, \
        Option value, newtype struct, sequence, map, enum, unit variant, newtype variant";
    SORTS.split(", ").find(|sort| found.starts_with(sort)).unwrap_or("another value")
}

#[cfg(test)]
mod tests {
    use serde::de::Error as _;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its decode errors matter")]
    struct Strict {
        count: Option<u32>,
        mode: Option<Mode>,
        must: u8,
    }

    #[derive(Debug, serde::Deserialize)]
    enum Mode {
        Fast,
        Slow,
    }

    fn error_of(text: &str) -> String {
        without_content(&serde_json::from_str::<Strict>(text).unwrap_err())
    }

    // R42
    #[test]
    fn no_content_survives_in_an_error() {
        for (text, expected) in [
            (r#"{"count":"hunter2"}"#, "invalid type: string, expected u32"),
            (r#"{"count":"x, expected hunter2"}"#, "invalid type: string, expected u32"),
            (r#"{"count":-77}"#, "invalid value: integer, expected u32"),
            (r#"{"count":true}"#, "invalid type: boolean, expected u32"),
            (r#"{"count":{"hunter2":1}}"#, "invalid type: map, expected u32"),
            (r#"{"mode":"hunter2"}"#, "unknown variant, expected `Fast` or `Slow`"),
            (r#"{"hunter2":1}"#, "unknown field, expected one of `count`, `mode`, `must`"),
            (r#"{"count":1}"#, "missing field `must`"),
            (r#"{"count":1,"count":1}"#, "duplicate field `count`"),
            (r#"{"count":tru}"#, "expected ident"),
            (r#"{"count":"#, "EOF while parsing a value"),
        ] {
            assert_eq!(error_of(text), expected, "{text}");
        }
        let custom = serde_json::Error::custom("hunter2 is not a colour");
        assert_eq!(without_content(&custom), REFUSED);
        assert_eq!(without_content(&serde_json::Error::custom("missing field `a` in `hunter2`")), REFUSED);
    }
}

//! Writes YAML: blocks with sorted keys, and texts in quotes unless they can only be read as texts.

use serde_json::{Map, Value};

/// The longest list of words that is written in one line.
const IN_ONE_LINE: usize = 70;
/// Words that some reader of YAML takes for something else than a text.
const NO_TEXTS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Writes values as YAML.
///
/// In a template of Helm, the expressions stay as they are, and braces in any other text are escaped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct YamlWriter {
    /// What is an expression; `None` outside templates.
    pub(super) expressions: Option<&'static [&'static str]>,
}

impl YamlWriter {
    /// Writes a stream of documents.
    pub(super) fn documents<'a>(self, values: impl IntoIterator<Item = &'a Value>) -> String {
        values.into_iter().map(|value| self.document(value)).collect::<Vec<_>>().join("---\n")
    }

    /// Writes one document.
    pub(crate) fn document(self, value: &Value) -> String {
        self.lines(value).into_iter().map(|line| line + "\n").collect()
    }

    fn lines(self, value: &Value) -> Vec<String> {
        match value {
            Value::Object(fields) if !fields.is_empty() => self.fields(fields),
            Value::Array(values) if !values.is_empty() => {
                values.iter().flat_map(|value| indented("- ", self.item(value))).collect()
            }
            scalar => vec![self.inline(scalar).unwrap_or_default()],
        }
    }

    fn item(self, value: &Value) -> Vec<String> {
        self.inline(value).map_or_else(|| self.lines(value), |line| vec![line])
    }

    fn fields(self, fields: &Map<String, Value>) -> Vec<String> {
        let field = |(name, value): (&String, &Value)| {
            let name = self.text(name);
            match self.inline(value) {
                Some(value) => vec![format!("{name}: {value}")],
                None => {
                    let inner = self.lines(value).into_iter().map(|line| format!("  {line}"));
                    [format!("{name}:")].into_iter().chain(inner).collect()
                }
            }
        };
        fields.iter().flat_map(field).collect()
    }

    /// Writes what fits into a line.
    fn inline(self, value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(self.text(text)),
            Value::Array(values) if values.is_empty() => Some("[]".to_owned()),
            Value::Object(fields) if fields.is_empty() => Some("{}".to_owned()),
            Value::Array(values) => {
                let words = values.iter().map(|value| value.as_str().map(|text| self.text(text)));
                let line = format!("[{}]", words.collect::<Option<Vec<_>>>()?.join(", "));
                (line.len() <= IN_ONE_LINE).then_some(line)
            }
            Value::Object(_) => None,
            scalar => Some(scalar.to_string()),
        }
    }

    fn text(self, text: &str) -> String {
        let Some(expressions) = self.expressions else { return quoted(text) };
        match expressions.contains(&text) {
            true => text.to_owned(),
            false => quoted(text).replace("{{", "{{ \"{{\" }}"),
        }
    }
}

fn indented(first: &'static str, lines: Vec<String>) -> impl Iterator<Item = String> {
    lines
        .into_iter()
        .enumerate()
        .map(move |(at, line)| format!("{}{line}", if at == 0 { first } else { "  " }))
}

/// Writes a text so that it is read as this text.
fn quoted(text: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    if begins && text.bytes().all(is_word) && !NO_TEXTS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    // A text of JSON is one of YAML, but for a few characters that YAML can't have as they are.
    let json = Value::from(text).to_string();
    let is_refused = |one: char| matches!(one, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}'..='\u{ffff}');
    let escape = |one: char| match is_refused(one) {
        true => format!("\\u{:04x}", u32::from(one)),
        false => one.to_string(),
    };
    json.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_written_as_people_write_it() {
        let value = json!({"a": {"b": [], "c": {}, "d": [1, {"e": "f", "g": ["h", "i"]}, ["j"]]}, "k": null});
        let wanted = "a:\n  b: []\n  c: {}\n  d:\n    - 1\n    - e: f\n      g: [h, i]\n    - [j]\nk: null\n";
        assert_eq!(YamlWriter::default().document(&value), wanted);
        assert_eq!(
            YamlWriter::default().documents([&json!({"a": 1}), &json!({"b": 2})]),
            "a: 1\n---\nb: 2\n"
        );
    }

    #[test]
    fn a_text_stays_a_text() {
        for (text, wanted) in [
            ("web", "web"),
            ("/readyz", "/readyz"),
            ("apps/v1", "apps/v1"),
            ("", "\"\""),
            ("No", "\"No\""),
            ("null", "\"null\""),
            ("1", "\"1\""),
            ("1e3", "\"1e3\""),
            (".5", "\".5\""),
            ("a: b", "\"a: b\""),
            ("a:1", "\"a:1\""),
            ("- a", "\"- a\""),
            ("a\nb\"", "\"a\\nb\\\"\""),
            ("\u{85}\u{2028}", "\"\\u0085\\u2028\""),
            ("{{ a }}", "\"{{ a }}\""),
        ] {
            assert_eq!(YamlWriter::default().document(&text.into()), format!("{wanted}\n"));
        }
    }

    #[test]
    fn a_template_keeps_its_expressions_and_no_others() {
        let writer = YamlWriter { expressions: Some(&["{{ .Values.a }}"]) };
        assert_eq!(writer.document(&json!("{{ .Values.a }}")), "{{ .Values.a }}\n");
        assert_eq!(writer.document(&json!("{{ .Values.b }}")), "\"{{ \"{{\" }} .Values.b }}\"\n");
    }
}

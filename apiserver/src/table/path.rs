//! The part of JSONPath that printer columns use.

use serde_json::Value;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Each,
    /// Keeps the items of a list whose value at a path equals this one.
    Where(Path, Value),
}

/// A parsed path, such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

impl Path {
    /// Reads a path; `None` if its syntax is not supported.
    pub(super) fn parse(text: &str) -> Option<Path> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, left) = match rest.strip_prefix('[') {
                Some(inner) => bracket(inner)?,
                None => field(rest.strip_prefix('.').unwrap_or(rest))?,
            };
            steps.push(step);
            rest = left;
        }
        Some(Path { steps })
    }

    /// Finds the values at the path.
    pub(super) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.steps
            .iter()
            .fold(vec![root], |found, step| found.into_iter().flat_map(|value| step.of(value)).collect())
    }
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Each => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Index(index) => {
                let Value::Array(items) = value else { return Vec::new() };
                let from_end = usize::try_from(index.unsigned_abs()).ok();
                let at = match (*index < 0, from_end) {
                    (true, Some(back)) => items.len().checked_sub(back),
                    (false, at) => at,
                    (true, None) => None,
                };
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Where(path, wanted) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                items.iter().filter(|item| path.find(item).contains(&wanted)).collect()
            }
        }
    }
}

/// Reads a field's name; a backslash keeps a dot in it.
fn field(text: &str) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut letters = text.char_indices();
    let mut end = text.len();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '.' | '[' => {
                end = at;
                break;
            }
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            letter => name.push(letter),
        }
    }
    match name.as_str() {
        "" => None,
        "*" => Some((Step::Each, &text[end..])),
        _ => Some((Step::Field(name), &text[end..])),
    }
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(inner) = text.strip_prefix("?(") {
        let (condition, rest) = inner.split_once(")]")?;
        let (path, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim();
        let wanted = match unquoted(wanted) {
            Some(text) => Value::from(text),
            None => serde_json::from_str(wanted).ok()?,
        };
        return Some((Step::Where(Path::parse(path)?, wanted), rest));
    }
    let (inner, rest) = text.split_once(']')?;
    let inner = inner.trim();
    let step = match unquoted(inner) {
        Some(name) => Step::Field(name.to_owned()),
        None if inner == "*" => Step::Each,
        None => Step::Index(inner.parse().ok()?),
    };
    Some((step, rest))
}

fn unquoted(text: &str) -> Option<&str> {
    let inside = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\''))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(path: &str) -> Vec<Value> {
        let object = json!({
            "spec": {"l": [1, 2], "a.b": "dotted"},
            "status": {"conditions": [
                {"type": "Other", "status": "False"},
                {"type": "Ready", "status": "True"},
            ]},
        });
        let path = Path::parse(path).expect("a supported path");
        path.find(&object).into_iter().cloned().collect()
    }

    #[test]
    fn paths_select_fields_items_and_matches() {
        // wire 508
        assert_eq!(found(".spec.l[*]"), [json!(1), json!(2)]);
        assert_eq!(found(".spec.l[1]"), [json!(2)]);
        assert_eq!(found("$.spec.l[-1]"), [json!(2)]);
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), [json!("True")]);
        assert_eq!(found("{.spec['a.b']}"), [json!("dotted")]);
        assert_eq!(found(".spec.a\\.b"), [json!("dotted")]);
        assert_eq!(found(".spec.none.x"), [] as [Value; 0]);
    }

    #[test]
    fn what_is_not_supported_is_no_path() {
        assert_eq!(Path::parse(".a[?(@.b>1)]"), None);
        assert_eq!(Path::parse(".a[x]"), None);
        assert_eq!(Path::parse("..a"), None);
    }
}

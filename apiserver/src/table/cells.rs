//! The content of cells: texts, counts and ages.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Reads a text; empty if it is absent.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Reads a text; `<none>` if it is absent.
pub(super) fn text_or_none<'a>(object: &'a Value, pointer: &str) -> &'a str {
    or_none(text(object, pointer))
}

/// Shows an empty text as `<none>`.
pub(super) fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

/// Reads a number; zero if it is absent.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Reads a list or map; an empty one if it is absent.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Counts the fields of a map.
pub(super) fn fields(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// Joins the texts of a field of all items.
pub(super) fn join(items: &[Value], field: &str, separator: &str) -> String {
    let texts: Vec<&str> = items.iter().map(|item| text(item, field)).collect();
    texts.join(separator)
}

/// Writes a map of labels, such as `a=b,c=d`; `<none>` if it is empty.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let labels = object.pointer(pointer).and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let mut labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    labels.sort();
    or_none(&labels.join(",")).to_owned()
}

/// Writes a label selector, such as `app=d,tier in (a,b)`.
pub(super) fn selector(object: &Value, pointer: &str) -> String {
    let exact = labels(object, &format!("{pointer}/matchLabels"));
    let mut terms: Vec<String> = if exact == "<none>" { Vec::new() } else { vec![exact] };
    for expression in items(object, &format!("{pointer}/matchExpressions")) {
        let key = text(expression, "/key");
        let values: Vec<&str> = items(expression, "/values").iter().filter_map(Value::as_str).collect();
        terms.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&terms.join(",")).to_owned()
}

/// Writes an object's age; `<unknown>` without a time of creation.
pub(super) fn object_age(object: &Value, now: i64) -> Value {
    json!(age(text(object, "/metadata/creationTimestamp"), now))
}

/// Writes how long ago a time was; `<unknown>` without one.
pub(super) fn age(time: &str, now: i64) -> String {
    if time.is_empty() { "<unknown>".to_owned() } else { since(time, now) }
}

/// Writes the age of a time; `<invalid>` if it is not a time.
pub(super) fn since(time: &str, now: i64) -> String {
    match time.parse::<Timestamp>() {
        Ok(time) => duration(now - time.as_second()),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// Writes a number of seconds in one or two units, the fewer the longer it is.
pub(super) fn duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |whole: i64, unit: &str, part: i64, small: &str| {
        if part == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{part}{small}") }
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_at_most_two_units() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3_600, "60m"),
            (3 * 3_600 + 60, "3h1m"),
            (9 * 3_600, "9h"),
            (50 * 3_600, "2d2h"),
            (10 * 86_400, "10d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(duration(seconds), wanted);
        }
    }
}

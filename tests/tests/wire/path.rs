//! Paths into bodies, such as `items|0|metadata|name`.

use serde_json::Value;

/// Follows a path; null where it leads nowhere.
///
/// Its parts are keys and indexes, `#k=v` (the item whose `k` is `v`), `@n` (the item named `n`), `*k` (each
/// item's `k`), `keys()` (sorted) and `len()`.
pub(crate) fn dig(value: &Value, path: &str) -> Value {
    path.split('|').fold(value.clone(), follow)
}

fn follow(mut value: Value, part: &str) -> Value {
    match (&mut value, part) {
        (Value::Object(map), "keys()") => {
            let mut keys: Vec<_> = map.keys().cloned().collect();
            keys.sort();
            keys.into()
        }
        (Value::Object(map), "len()") => map.len().into(),
        (Value::Array(items), "len()") => items.len().into(),
        (Value::String(text), "len()") => text.chars().count().into(),
        (Value::Object(map), key) => map.remove(key).unwrap_or_default(),
        (Value::Array(items), part) => pick(items, part),
        _ => Value::Null,
    }
}

fn pick(items: &mut Vec<Value>, part: &str) -> Value {
    let find = |items: &mut Vec<Value>, wanted: &dyn Fn(&Value) -> bool| {
        items.iter().position(wanted).map(|at| items.swap_remove(at)).unwrap_or_default()
    };
    if let Some((key, wanted)) = part.strip_prefix('#').and_then(|pair| pair.split_once('=')) {
        return find(items, &|item| item.get(key).is_some_and(|found| plain(found) == wanted));
    }
    if let Some(name) = part.strip_prefix('@') {
        return find(items, &|item| item["metadata"]["name"] == name);
    }
    if let Some(key) = part.strip_prefix('*') {
        return items.iter_mut().map(|item| item.get_mut(key).map(Value::take).unwrap_or_default()).collect();
    }
    match part.parse::<usize>() {
        Ok(at) if at < items.len() => items.swap_remove(at),
        _ => Value::Null,
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Removes what some paths lead to.
pub(crate) fn drop_paths(mut value: Value, paths: &[String]) -> Value {
    for path in paths {
        let (parents, last) = path.rsplit_once('|').unwrap_or(("", path));
        let pointer: String =
            parents.split('|').filter(|part| !part.is_empty()).map(|p| format!("/{p}")).collect();
        if let Some(Value::Object(parent)) = value.pointer_mut(&pointer) {
            parent.remove(last);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_finds_items_by_place_by_key_and_by_name() {
        let body =
            json!({"items": [{"metadata": {"name": "a"}, "t": 1}, {"metadata": {"name": "b"}, "t": 2}]});
        assert_eq!(dig(&body, "items|1|t"), 2);
        assert_eq!(dig(&body, "items|#t=2|metadata|name"), "b");
        assert_eq!(dig(&body, "items|@a|t"), 1);
        assert_eq!(dig(&body, "items|*t"), json!([1, 2]));
        assert_eq!(dig(&body, "items|len()"), 2);
        assert_eq!(dig(&body, "items|0|keys()"), json!(["metadata", "t"]));
        assert_eq!(dig(&body, "items|7|t|len()"), Value::Null);
    }

    #[test]
    fn what_is_ignored_is_taken_out() {
        let body = json!({"metadata": {"name": "a", "uid": "u"}, "x": 1});
        let left = drop_paths(body, &["metadata|uid".to_owned(), "x".to_owned(), "no|where".to_owned()]);
        assert_eq!(left, json!({"metadata": {"name": "a"}}));
    }
}

//! Lists under the rules: broken items, and tokens without end.

use bytes::Bytes;
use serde_json::Value;

use super::edit::NO_JSON;
use super::flow::Graft;
use crate::read::token_past_the_end;

/// Applies the rules for a list to its body; returns the lines of those that acted.
///
/// A body that is not a JSON list stays as it is.
pub(crate) fn distort_list(body: Bytes, grafts: &mut [Graft]) -> (Bytes, Vec<String>) {
    if !grafts.iter().any(|graft| matches!(graft, Graft::Edit(_) | Graft::Endless(_))) {
        return (body, Vec::new());
    }
    let Ok(mut list) = serde_json::from_slice::<Value>(&body) else { return (body, Vec::new()) };
    if !list["items"].is_array() {
        return (body, Vec::new());
    }
    let mut fired = Vec::new();
    for graft in grafts {
        match graft {
            Graft::Edit(edit) => {
                let items = list["items"].as_array_mut().into_iter().flatten();
                fired.extend(items.filter_map(|item| edit.apply_to_item(item)));
            }
            Graft::Endless(script) => {
                let more = list["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
                let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                if let (false, Ok(version)) = (more, version.parse()) {
                    list["metadata"]["continue"] = token_past_the_end(version).into();
                    fired.push(script.clone());
                }
            }
            Graft::Stop(_) | Graft::Pace(_) | Graft::View(..) | Graft::Bump => {}
        }
    }
    let broken = Value::from(NO_JSON).to_string();
    (Bytes::from(list.to_string().replace(&broken, "{no JSON}")), fired)
}

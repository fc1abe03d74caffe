//! Webhooks: what the configurations of admission webhooks must be.

use serde_json::Value;

use crate::schema::compile_condition;
use crate::status::Cause;

/// The versions of reviews that the server writes.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Checks the webhooks of a configuration.
pub(super) fn faults(configuration: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let hooks = configuration["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, hook) in hooks.iter().enumerate() {
        one(hook, &format!("webhooks[{index}]"), &mut causes);
        let name = hook["name"].as_str().unwrap_or_default();
        if hooks[..index].iter().any(|other| other["name"] == name) {
            let message = format!("Duplicate value: {name:?}");
            causes.push(Cause::new("FieldValueDuplicate", format!("webhooks[{index}].name"), message));
        }
    }
    causes
}

fn one(hook: &Value, at: &str, causes: &mut Vec<Cause>) {
    let name = hook["name"].as_str().unwrap_or_default();
    let field = |field: &str| format!("{at}.{field}");
    if name.is_empty() {
        causes.push(Cause::required(field("name"), ""));
    } else if name.split('.').filter(|part| !part.is_empty()).count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        causes.push(Cause::invalid(field("name"), &format!("{name:?}"), why));
    }
    rules(&hook["rules"], &field("rules"), causes);
    for (key, known) in [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])] {
        among(hook, key, &known, at, causes);
    }
    let effects = ["None", "NoneOnDryRun"];
    if hook["sideEffects"].is_null() {
        let why = format!("must specify one of {}", effects.join(", "));
        causes.push(Cause::required(field("sideEffects"), &why));
    } else {
        among(hook, "sideEffects", &effects, at, causes);
    }
    if let Some(seconds) = hook["timeoutSeconds"].as_i64().filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(field("timeoutSeconds"), &seconds.to_string(), why));
    }
    versions(hook, at, causes);
    client(&hook["clientConfig"], &field("clientConfig"), causes);
    for (index, condition) in hook["matchConditions"].as_array().into_iter().flatten().enumerate() {
        let expression = condition["expression"].as_str().unwrap_or_default();
        if let Err(why) = compile_condition(expression) {
            let place = field(&format!("matchConditions[{index}].expression"));
            causes.push(Cause::invalid(place, &format!("{expression:?}"), &why));
        }
    }
}

/// Checks that each rule names operations, groups, versions and resources.
pub(super) fn rules(rules: &Value, at: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in rules.as_array().into_iter().flatten().enumerate() {
        for list in ["operations", "apiGroups", "apiVersions", "resources"] {
            if rule[list].as_array().is_none_or(Vec::is_empty) {
                causes.push(Cause::required(format!("{at}[{index}].{list}"), ""));
            }
        }
    }
}

pub(super) fn among(hook: &Value, key: &str, known: &[&str], at: &str, causes: &mut Vec<Cause>) {
    if let Some(given) = hook[key].as_str().filter(|given| !known.contains(given)) {
        let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let message = format!("Unsupported value: {given:?}: supported values: {}", known.join(", "));
        causes.push(Cause::new("FieldValueNotSupported", format!("{at}.{key}"), message));
    }
}

fn versions(hook: &Value, at: &str, causes: &mut Vec<Cause>) {
    let place = format!("{at}.admissionReviewVersions");
    let given = hook["admissionReviewVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if given.is_empty() {
        causes.push(Cause::required(place, &format!("must specify one of {}", VERSIONS.join(", "))));
    } else if !given.iter().filter_map(Value::as_str).any(|version| VERSIONS.contains(&version)) {
        let shown = Value::from(given).to_string();
        let why = format!("must include at least one of {}", VERSIONS.join(", "));
        causes.push(Cause::invalid(place, &shown, &why));
    }
}

fn client(client: &Value, at: &str, causes: &mut Vec<Cause>) {
    let url = match (client["url"].as_str(), client["service"].is_object()) {
        (Some(url), false) => url,
        (None, true) => return,
        _ => {
            causes.push(Cause::required(at, "exactly one of url or service is required"));
            return;
        }
    };
    let place = format!("{at}.url");
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    if scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{form}");
        causes.push(Cause::invalid(&place, &format!("{scheme:?}"), &why));
    }
    if authority.is_empty() {
        causes.push(Cause::invalid(&place, "\"\"", &format!("host must be specified{form}")));
    }
    if let Some((user, _)) = authority.rsplit_once('@') {
        let why = "user information is not permitted in the URL";
        causes.push(Cause::invalid(&place, &format!("{user:?}"), why));
    }
    for (what, given) in [("fragments", fragment), ("query parameters", query)] {
        if !given.is_empty() {
            let why = format!("{what} are not permitted in the URL");
            causes.push(Cause::invalid(&place, &format!("{given:?}"), &why));
        }
    }
}

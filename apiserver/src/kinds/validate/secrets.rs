//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::place::{Findings, Place};

/// Checks that a Secret has the keys that its type requires.
pub(super) fn secret(object: &Value, faults: &mut Findings) {
    let data = Place::top(object, "data");
    let has = |key: &str| data.value().get(key).is_some();
    match object["type"].as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let metadata = Place::top(object, "metadata");
            if metadata.value()["annotations"][NAME].as_str().unwrap_or_default().is_empty() {
                required(&metadata.at("annotations"), NAME, faults);
            }
        }
        "kubernetes.io/dockercfg" => json_of(&data, ".dockercfg", faults),
        "kubernetes.io/dockerconfigjson" => json_of(&data, ".dockerconfigjson", faults),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            required(&data, "username", faults);
            required(&data, "password", faults);
        }
        "kubernetes.io/ssh-auth" if data.at("ssh-privatekey").text().is_empty() => {
            required(&data, "ssh-privatekey", faults);
        }
        _ => {}
    }
}

fn required(place: &Place<'_, '_>, key: &str, faults: &mut Findings) {
    faults.add(|| crate::status::Cause::required(format!("{place}[{key}]"), ""));
}

/// Refuses a key that is missing, or whose value is not a JSON object.
fn json_of(data: &Place<'_, '_>, key: &str, faults: &mut Findings) {
    let Some(value) = data.value().get(key) else {
        return required(data, key, faults);
    };
    let text = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
    if let Err(why) = serde_json::from_slice::<serde_json::Map<String, Value>>(&text) {
        let why = crate::json_error::go_error(&why, &text);
        let shown = Value::String("<secret contents redacted>".to_owned());
        let message = format!("Invalid value: {shown}: {why}");
        faults.add(|| crate::status::Cause::new("FieldValueInvalid", format!("{data}[{key}]"), message));
    }
}

//! Data: what the keys and values of ConfigMaps and Secrets may be.

use serde_json::Value;

use crate::limits;
use crate::status::Cause;

/// The longest key, in letters.
const LONGEST_KEY: usize = 253;

/// Checks the data of a `ConfigMap` or a `Secret`.
pub(super) fn faults(kind: &str, object: &Value) -> Vec<Cause> {
    let of = |field: &str| object[field].as_object().into_iter().flatten();
    let binary = |value: &Value| value.as_str().map_or(0, decoded_length);
    let plain = |value: &Value| value.as_str().map_or(0, str::len);
    let (size, field) = match kind {
        "Secret" => (of("data").map(|(_, value)| binary(value)).sum::<usize>(), "data"),
        _ => {
            let texts = of("data").map(|(_, value)| plain(value));
            (texts.chain(of("binaryData").map(|(_, value)| binary(value))).sum(), "[]")
        }
    };
    let mut causes = Vec::new();
    if size > limits::DATA {
        causes.push(Cause::too_long(field, limits::DATA));
    }
    let fields = if kind == "Secret" { &["data"][..] } else { &["data", "binaryData"] };
    for (key, _) in of("data").filter(|(key, _)| object["binaryData"].get(key.as_str()).is_some()) {
        let why = "duplicate of key present in binaryData";
        causes.push(Cause::invalid(format!("data[{key}]"), &format!("{key:?}"), why));
    }
    for (field, key) in fields.iter().flat_map(|field| of(field).map(move |(key, _)| (field, key))) {
        for why in key_faults(key) {
            causes.push(Cause::invalid(format!("{field}[{key}]"), &format!("{key:?}"), &why));
        }
    }
    causes
}

/// Lists all errors of a key, which becomes the name of a file.
fn key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > LONGEST_KEY {
        faults.push(format!("must be no more than {LONGEST_KEY} characters"));
    }
    let fine = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    if key.is_empty() || !key.bytes().all(fine) {
        let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                   'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        faults.push(why.to_owned());
    }
    match key {
        "." | ".." => faults.push(format!("must not be '{key}'")),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// Decodes a text in base64.
fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

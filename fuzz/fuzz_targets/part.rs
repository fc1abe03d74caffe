//! A few fields of an object kept as bytes: the rest, whatever it is, is passed over.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::list_watch::RawObject;

#[derive(Debug, Deserialize, PartialEq)]
struct Part {
    spec: Option<Spec>,
    #[serde(rename = "sp\u{e9}c")]
    other: Option<Value>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Spec {
    place: Option<String>,
    #[serde(default)]
    numbers: Vec<f64>,
    by_number: Option<BTreeMap<u8, Value>>,
    inner: Option<Box<Spec>>,
}

fn judge(json: &str) {
    let Ok(RawObject { text, .. }) = RawObject::new(json) else { return };
    let read = text.part::<Part>().ok();
    let whole = serde_json::from_str::<Part>(json).ok();
    assert_eq!(read, whole, "{json}");
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    judge(text);
    judge(&format!(r#"{{"metadata":{{"name":"x"}},"spec":{text}}}"#));
    judge(&format!(
        r#"{{"before":{text} ,"metadata":{{"name":"x"}},"spec":{{"z":{text},"place":"here","inner":{text}}},"after":{text}}}"#
    ));
});

//! Generates objects of a version from its schema.

use rand::{Rng, rngs::SmallRng};
use serde_json::{Map, Value, json};

use super::schema::COMMON;

/// How deep objects are nested at most, unless the schema requires more.
const DEEP: usize = 6;

/// Generates an object of a version, with metadata.
pub(crate) fn object(rng: &mut SmallRng, schema: &Value, api_version: &str, kind: &str) -> Value {
    let mut object = value(rng, schema, 0);
    if !object.is_object() {
        object = json!({});
    }
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    object["metadata"] = json!({
        "name": name(rng), "namespace": "default", "uid": format!("{:032x}", rng.random::<u128>()),
        "resourceVersion": rng.random::<u32>().to_string(), "generation": 3, "labels": {"app": name(rng)},
        "annotations": {"note": name(rng)},
    });
    object
}

fn value(rng: &mut SmallRng, schema: &Value, depth: usize) -> Value {
    if schema["nullable"] == true && rng.random_ratio(1, 8) {
        return Value::Null;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.is_empty()) {
        return allowed[rng.random_range(0..allowed.len())].clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if rng.random() {
            integer(rng, schema)
        } else {
            json!(format!("{}%", rng.random_range(0..101)))
        };
    }
    match schema["type"].as_str() {
        Some("object") => members(rng, schema, depth),
        Some("array") => elements(rng, schema, depth),
        Some("string") => text(rng, schema).into(),
        Some("integer") => integer(rng, schema),
        Some("number") => number(rng, schema),
        Some("boolean") => rng.random::<bool>().into(),
        _ => [json!({"any": 1}), json!("any"), json!([1, 2]), json!(true)][rng.random_range(0..4)].clone(),
    }
}

/// Generates an object: what is required, much of the rest, and one of the alternatives.
fn members(rng: &mut SmallRng, schema: &Value, depth: usize) -> Value {
    let mut made = Map::new();
    let (wanted, excluded) = alternative(rng, schema);
    let declared = schema["properties"].as_object();
    for (name, of) in declared.into_iter().flatten() {
        let is_common = depth == 0 && COMMON.contains(&name.as_str());
        if is_common || excluded.contains(name) {
            continue;
        }
        let needed = wanted.contains(name) || names(&schema["required"]).any(|required| required == name);
        if needed || depth < DEEP && rng.random_ratio(3, 5) {
            made.insert(name.clone(), value(rng, of, depth + 1));
        }
    }
    let others = &schema["additionalProperties"];
    if others.is_object() && depth < DEEP {
        let least = schema["minProperties"].as_u64().unwrap_or(0);
        let most = schema["maxProperties"].as_u64().unwrap_or(least + 3).max(least);
        for _ in 0..rng.random_range(least..=most.min(least + 3)) {
            made.insert(name(rng), value(rng, others, depth + 1));
        }
    }
    made.into()
}

/// Chooses one of the alternatives of a schema: the members that it requires, and those that belong to the others.
fn alternative(rng: &mut SmallRng, schema: &Value) -> (Vec<String>, Vec<String>) {
    let Some(all) = schema["oneOf"].as_array().filter(|all| !all.is_empty()) else {
        return Default::default();
    };
    let required = |one: &Value| names(&one["required"]).map(str::to_owned).collect::<Vec<_>>();
    let wanted = required(&all[rng.random_range(0..all.len())]);
    let excluded = all.iter().flat_map(required).filter(|name| !wanted.contains(name)).collect();
    (wanted, excluded)
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Generates a list; elements of a set differ, and so do the keys of elements of a map.
fn elements(rng: &mut SmallRng, schema: &Value, depth: usize) -> Value {
    let least = schema["minItems"].as_u64().unwrap_or(0);
    let more = if depth < DEEP { 3 } else { 0 };
    let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX).min(least + more).max(least);
    let mut made: Vec<Value> = Vec::new();
    let keys: Vec<&str> = names(&schema["x-kubernetes-list-map-keys"]).collect();
    let is_set = schema["x-kubernetes-list-type"] == "set" || schema["uniqueItems"] == true;
    let same = |one: &Value, other: &Value| match keys.is_empty() {
        true => is_set && one == other,
        false => keys.iter().all(|key| one[key] == other[key]),
    };
    for _ in 0..rng.random_range(least..=most) {
        let element = value(rng, &schema["items"], depth + 1);
        if !made.iter().any(|other| same(other, &element)) {
            made.push(element);
        }
    }
    made.into()
}

/// Generates a text in the format and with the length of a schema; patterns are not followed.
fn text(rng: &mut SmallRng, schema: &Value) -> String {
    let byte = |rng: &mut SmallRng| rng.random::<u8>();
    match schema["format"].as_str() {
        Some("date-time") => {
            let (month, day, hour) =
                (rng.random_range(1..13), rng.random_range(1..29), rng.random_range(0..24));
            return format!("20{:02}-{month:02}-{day:02}T{hour:02}:05:09Z", rng.random_range(0..100));
        }
        Some("date") => return format!("2026-{:02}-17", rng.random_range(1..13)),
        Some("byte") => return ["", "YQ==", "d2F0Y2g="][rng.random_range(0..3)].to_owned(),
        Some("ipv4" | "ip") => return format!("10.{}.{}.1", byte(rng), byte(rng)),
        Some("uuid") => return format!("{:08x}-0000-4000-8000-000000000001", rng.random::<u32>()),
        Some("uri") => return format!("https://{}.example/", name(rng)),
        Some("duration") => return format!("{}s", byte(rng)),
        _ => {}
    }
    let least = schema["minLength"].as_u64().unwrap_or(0) as usize;
    let most = schema["maxLength"].as_u64().map_or(usize::MAX, |most| most as usize).max(least);
    let words = ["", "a", "Größe", "with blank", "a/b~c.d", "\"quoted\"", "true", "7"];
    let mut made = match rng.random_range(0..16) {
        at @ 0..8 => words[at].to_owned(),
        _ => name(rng),
    };
    while made.chars().count() < least {
        made.push(char::from(b'a' + byte(rng) % 26));
    }
    made.chars().take(most).collect()
}

fn name(rng: &mut SmallRng) -> String {
    let length = rng.random_range(1..9);
    (0..length).map(|_| char::from(b'a' + rng.random_range(0..26))).collect()
}

fn integer(rng: &mut SmallRng, schema: &Value) -> Value {
    let (least, most) = match schema["format"].as_str() {
        Some("int64") => (i64::MIN, i64::MAX),
        Some("uint64" | "uint") => (0, i64::MAX),
        Some("int16") => (i16::MIN.into(), i16::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("int8") => (i8::MIN.into(), i8::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        _ => (i32::MIN.into(), i32::MAX.into()),
    };
    // Schemas write bounds as floats.
    let bound = |name: &str| schema[name].as_f64().map(|bound| bound as i64);
    let least = bound("minimum").map_or(least, |bound| bound.max(least));
    let most = bound("maximum").map_or(most, |bound| bound.min(most)).max(least);
    let small = (least.max(0), most.min(least.max(0).saturating_add(100)));
    match rng.random_range(0..8) {
        0 => least.into(),
        1 => most.into(),
        2 => rng.random_range(least..=most).into(),
        _ => rng.random_range(small.0.min(small.1)..=small.1.max(least)).into(),
    }
}

fn number(rng: &mut SmallRng, schema: &Value) -> Value {
    let least = schema["minimum"].as_f64().unwrap_or(-1_000.0);
    let most = schema["maximum"].as_f64().unwrap_or(1_000.0).max(least);
    // Halves are exact in every float.
    ((rng.random_range(least..=most) * 2.0).round() / 2.0).clamp(least, most).into()
}

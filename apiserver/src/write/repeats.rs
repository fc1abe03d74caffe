//! Keys given twice in YAML, with their lines.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most repeats that are reported.
const MOST: usize = 20;

/// Lists the keys that a text gives twice in one map, as `line 4: key "a" already set in map`.
///
/// A text that can't be parsed is skipped: parsing reports it.
pub(super) fn repeats(text: &[u8]) -> Vec<String> {
    // JSON is YAML as well, and read faster.
    let look = Look::for_the(0);
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    if is_json {
        let mut json = serde_json::Deserializer::from_slice(text);
        let _none = Walk(&look).deserialize(&mut json);
        if look.found.borrow().is_none() {
            return Vec::new();
        }
    }
    let mut lines = Vec::new();
    while lines.len() < MOST {
        let look = Look::for_the(lines.len());
        let Err(error) = Walk(&look).deserialize(serde_yaml_ng::Deserializer::from_slice(text)) else {
            break;
        };
        let Some(key) = look.found.take() else { break };
        let line = error.location().map_or(1, |place| place.line());
        lines.push(format!("line {line}: key {key:?} already set in map"));
    }
    lines
}

/// Looks for one of the repeated keys.
struct Look {
    /// How many of them are passed over.
    passed: usize,
    met: Cell<usize>,
    found: RefCell<Option<String>>,
}

impl Look {
    fn for_the(passed: usize) -> Self {
        Self { passed, met: Cell::new(0), found: RefCell::new(None) }
    }

    /// Records a duplicate key; `Err` ends the scan of its line.
    fn meet<E: Error>(&self, key: &str) -> Result<(), E> {
        let met = self.met.get();
        self.met.set(met + 1);
        if met < self.passed {
            return Ok(());
        }
        *self.found.borrow_mut() = Some(key.to_owned());
        Err(E::custom("a key given twice"))
    }
}

/// Walks a document.
struct Walk<'a>(&'a Look);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while map.next_key_seed(Key { look: self.0, keys: &mut keys })?.is_some() {
            map.next_value_seed(Walk(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Walk(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a key of a map.
struct Key<'a> {
    look: &'a Look,
    keys: &'a mut HashSet<String>,
}

impl Key<'_> {
    fn read<E: Error>(self, key: String) -> Result<(), E> {
        if self.keys.contains(&key) {
            return self.look.meet(&key);
        }
        self.keys.insert(key);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.read(key.to_owned())
    }

    fn visit_bool<E: Error>(self, key: bool) -> Result<(), E> {
        self.read(key.to_string())
    }

    fn visit_i64<E: Error>(self, key: i64) -> Result<(), E> {
        self.read(key.to_string())
    }

    fn visit_u64<E: Error>(self, key: u64) -> Result<(), E> {
        self.read(key.to_string())
    }

    fn visit_f64<E: Error>(self, key: f64) -> Result<(), E> {
        self.read(key.to_string())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.read("null".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // wire 324, 405
    #[test]
    fn each_repeat_is_told_with_its_line() {
        let text = b"a: 1\nmetadata: {name: x}\ndata: {a: b, a: c}\nlist:\n- b: 1\n  b: 2\na: 2\n";
        assert_eq!(
            repeats(text),
            [
                "line 3: key \"a\" already set in map",
                "line 6: key \"b\" already set in map",
                "line 7: key \"a\" already set in map"
            ]
        );
        assert_eq!(
            repeats(b"{\"a\": 1, \"b\": {\"a\": 1},\n \"a\": 2}"),
            ["line 2: key \"a\" already set in map"]
        );
    }

    #[test]
    fn what_has_no_repeats_or_is_no_yaml_has_none() {
        for text in [&b"a: {b: 1}\nc: {b: 1}\n"[..], b"{\"a\": [1, {}]}", b"a: [", b"", b"\xff"] {
            assert_eq!(repeats(text), Vec::<String>::new());
        }
    }
}

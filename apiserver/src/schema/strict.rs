//! Finds the fields that strict decoding refuses: unknown ones and those given twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::node::NodeRef;
use super::parse::SchemaOrigin;

/// Lists the field errors of a JSON text.
///
/// A text that is not JSON has no such errors: parsing it reports that.
pub(super) fn report(root: NodeRef<'_>, origin: SchemaOrigin, text: &[u8]) -> Vec<String> {
    let mut found = Found::default();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let walker = Walker { node: Some(root), at: At::Root, found: &mut found };
    if walker.deserialize(&mut deserializer).is_err() {
        return Vec::new();
    }
    let mut found = found.list;
    if origin == SchemaOrigin::Custom {
        found.sort();
    }
    found.into_iter().map(|finding| finding.to_string()).collect()
}

/// One field that strict decoding refuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum FieldFinding {
    Duplicate(String),
    Unknown(String),
}

impl fmt::Display for FieldFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldFinding::Duplicate(path) => write!(f, "duplicate field {path:?}"),
            FieldFinding::Unknown(path) => write!(f, "unknown field {path:?}"),
        }
    }
}

/// A place in a text; written out only for errors.
#[derive(Clone, Copy)]
enum At<'a> {
    Root,
    Field(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root => Ok(()),
            At::Field(At::Root, name) => f.write_str(name),
            At::Field(parent, name) => write!(f, "{parent}.{name}"),
            At::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Walks a JSON text together with its schema; below an unknown field the schema is absent.
struct Walker<'a> {
    node: Option<NodeRef<'a>>,
    at: At<'a>,
    found: &'a mut Found,
}

/// The errors, each once, in order.
#[derive(Default)]
struct Found {
    list: Vec<FieldFinding>,
    known: HashSet<FieldFinding>,
}

impl Found {
    fn add(&mut self, finding: FieldFinding) {
        if self.known.insert(finding.clone()) {
            self.list.push(finding);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            let is_new = seen.insert(name.clone());
            let at = At::Field(&self.at, &name);
            let below = self.node.and_then(|node| node.field(&name));
            if self.node.is_some() && below.is_none() {
                self.found.add(FieldFinding::Unknown(at.to_string()));
            }
            if !is_new {
                self.found.add(FieldFinding::Duplicate(at.to_string()));
            }
            map.next_value_seed(Walker { node: below, at, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let node = self.node.map(NodeRef::item);
        for index in 0.. {
            let walker = Walker { node, at: At::Item(&self.at, index), found: &mut *self.found };
            if seq.next_element_seed(walker)?.is_none() {
                break;
            }
        }
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

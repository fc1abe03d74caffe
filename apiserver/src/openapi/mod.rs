//! OpenAPI v3: an index, and one document for each group version.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::document::ServedKind;
use crate::discovery::all_groups;
use crate::kinds::{Registry, UNSTORED_GROUPS};

mod binary;
mod document;
mod operations;
mod schemas;
mod second;

#[cfg(test)]
mod tests;

/// One document, written.
#[derive(Debug)]
pub(crate) struct Document {
    /// Names the content: equal documents have equal hashes, in every process.
    pub(crate) hash: String,
    /// The JSON text, or the binary form.
    pub(crate) body: Bytes,
}

impl Document {
    fn of(value: &Value) -> Self {
        let text = value.to_string();
        Self { hash: hash(text.as_bytes()), body: Bytes::from(text) }
    }
}

/// Keeps written documents for as long as the kinds in them are the same.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    written: BTreeMap<String, (Vec<ServedKind>, Arc<Document>)>,
    /// The document of version 2, with the hashes of its sources.
    second: Option<(Vec<String>, Arc<Document>)>,
    /// Its binary form, with its hash.
    second_in_protobuf: Option<(String, Arc<Document>)>,
}

impl Documents {
    /// Writes the index: where each document is, its hash in the address.
    pub(crate) fn index(&mut self, registry: &Registry) -> Value {
        let names = names(registry);
        self.written.retain(|name, _| names.contains(name));
        let mut paths = Map::new();
        for name in names {
            if let Some(document) = self.find(registry, &name) {
                paths.insert(name.clone(), json!({"serverRelativeURL": address(&name, &document)}));
            }
        }
        json!({"paths": paths})
    }

    /// Returns the document of version 2.
    pub(crate) fn second(&mut self, registry: &Registry) -> Arc<Document> {
        let found: Vec<_> = names(registry).iter().filter_map(|name| self.find(registry, name)).collect();
        let hashes: Vec<String> = found.iter().map(|document| document.hash.clone()).collect();
        if let Some((known, document)) = &self.second
            && *known == hashes
        {
            return document.clone();
        }
        let values = found.iter().filter_map(|document| serde_json::from_slice(&document.body).ok());
        let document = Arc::new(Document::of(&second::merge(values)));
        self.second = Some((hashes, document.clone()));
        document
    }

    /// Returns the document of version 2 in its binary form.
    pub(crate) fn second_in_protobuf(&mut self, registry: &Registry) -> Arc<Document> {
        let text = self.second(registry);
        if let Some((known, document)) = &self.second_in_protobuf
            && *known == text.hash
        {
            return document.clone();
        }
        let value: Value = serde_json::from_slice(&text.body).unwrap_or_default();
        let body = Bytes::from(binary::encode(&value));
        let document = Arc::new(Document { hash: hash(&body), body });
        self.second_in_protobuf = Some((text.hash.clone(), document.clone()));
        document
    }

    /// Finds a document by its name in the index, such as `apis/apps/v1`.
    pub(crate) fn find(&mut self, registry: &Registry, name: &str) -> Option<Arc<Document>> {
        if !names(registry).iter().any(|known| known == name) {
            return None;
        }
        let kinds = kinds(registry, name);
        if let Some((known, document)) = self.written.get(name)
            && same(known, &kinds)
        {
            return Some(document.clone());
        }
        let value = match group_version(name) {
            Some((group, version)) => document::group_version(group, version, &kinds),
            None => document::plain(name),
        };
        let document = Arc::new(Document::of(&value));
        self.written.insert(name.to_owned(), (kinds, document.clone()));
        Some(document)
    }
}

/// Returns the address of a document as the index has it.
pub(crate) fn address(name: &str, document: &Document) -> String {
    format!("/openapi/v3/{name}?hash={}", document.hash)
}

/// Lists the documents there are.
fn names(registry: &Registry) -> Vec<String> {
    let mut names = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
    for (group, versions) in all_groups(registry) {
        if group.is_empty() {
            names.extend(versions.iter().map(|version| format!("api/{version}")));
            continue;
        }
        if registry.is_built_in_group(&group) || UNSTORED_GROUPS.contains(&group.as_str()) {
            names.push(format!("apis/{group}"));
        }
        names.extend(versions.iter().map(|version| format!("apis/{group}/{version}")));
    }
    names.sort();
    names
}

/// Reads the group and version out of a document's name.
fn group_version(name: &str) -> Option<(&str, &str)> {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

fn kinds(registry: &Registry, name: &str) -> Vec<ServedKind> {
    let Some((group, version)) = group_version(name) else { return Vec::new() };
    let resources = registry.all().filter(|resource| resource.group() == group);
    resources.filter_map(|resource| Some((resource.clone(), resource.served(version)?.clone()))).collect()
}

/// Returns whether two lists hold the very same kinds, not only equal ones.
fn same(known: &[ServedKind], now: &[ServedKind]) -> bool {
    known.len() == now.len()
        && known.iter().zip(now).all(|(a, b)| Arc::ptr_eq(&a.0, &b.0) && Arc::ptr_eq(&a.1, &b.1))
}

/// Makes 32 letters from a text, the same in every process.
fn hash(text: &[u8]) -> String {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = text.iter().fold(START, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032X}")
}

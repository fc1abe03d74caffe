//! Encoding: stored objects as the bytes of answers and events, made once each.

use std::ops::Deref;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::kinds::{Resource, Served, VersionView};
use crate::negotiate::{MetaVersion, Shape};
use crate::object;
use crate::store::{Change, FormKey, Stored, tail};
use crate::table::{Header, IncludeObject, TableInput, table};

/// The text of an object behind its `apiVersion` and `kind`.
enum Tail<'a> {
    Stored(&'a [u8]),
    Made(Bytes),
}

impl Deref for Tail<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(text) => text,
            Self::Made(text) => text,
        }
    }
}

/// Writes objects of one resource in one served version and shape.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    /// The resource.
    pub(crate) resource: Arc<Resource>,
    /// The requested version.
    pub(crate) served: Arc<Served>,
    shape: Shape,
    head: Bytes,
    key: FormKey,
}

impl Encoder {
    /// Makes an encoder; tables are not its business and are written whole.
    pub(crate) fn new(resource: Arc<Resource>, served: Arc<Served>, shape: Shape) -> Self {
        let (kind, group, version) = match shape {
            Shape::Partial(version) | Shape::PartialList(version) => {
                ("PartialObjectMetadata", "", version.api_version())
            }
            Shape::Object | Shape::Table(_) => (&*served.kind, &*served.group, &*served.version),
        };
        let slash = if group.is_empty() { "" } else { "/" };
        // Names of kinds and groups need no escapes.
        let head = ["{\"kind\":\"", kind, "\",\"apiVersion\":\"", group, slash, version, "\","].concat();
        let head = Bytes::from(head);
        let number = match shape {
            Shape::Object | Shape::Table(_) => 0,
            Shape::Partial(_) | Shape::PartialList(_) => 1,
        };
        let key = FormKey { served: served.id, shape: number };
        Self { resource, served, shape, head, key }
    }

    /// Returns the shape.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Identifies a form in caches; partial objects of two meta versions differ only in their head.
    pub(crate) fn line_key(&self) -> FormKey {
        let beta = matches!(
            self.shape,
            Shape::Partial(MetaVersion::V1Beta1) | Shape::PartialList(MetaVersion::V1Beta1)
        );
        FormKey { shape: self.key.shape + if beta { 8 } else { 0 }, ..self.key }
    }

    /// Identifies a binary form in caches.
    pub(crate) fn binary_key(&self) -> FormKey {
        let key = self.line_key();
        FormKey { shape: key.shape + 16, ..key }
    }

    /// Writes an object from behind its `apiVersion` and `kind` to its end.
    fn tail<'a>(&self, stored: &'a Stored) -> Tail<'a> {
        if self.key.shape == 0 && self.served.view == VersionView::Same {
            return Tail::Stored(stored.tail());
        }
        let made = stored.forms.get(self.key, || {
            let tail = self.shown_tail(&self.served.show_stored(stored));
            // Most objects are shown as they are stored: one text is enough, and nothing says so.
            if tail == stored.tail() { Bytes::new() } else { tail }
        });
        if made.is_empty() { Tail::Stored(stored.tail()) } else { Tail::Made(made) }
    }

    /// Writes an object that is shown in this version already.
    fn shown_tail(&self, value: &Value) -> Bytes {
        let partial = self.key.shape == 1;
        if partial {
            return Bytes::from(json!({"metadata": value["metadata"]}).to_string()).slice(1..);
        }
        tail(value)
    }

    /// Writes a stored object whole, `kind` and `apiVersion` included.
    pub(crate) fn object(&self, stored: &Stored) -> Bytes {
        self.join(&self.tail(stored))
    }

    /// Writes an object that is not stored.
    pub(crate) fn value(&self, value: &Value) -> Bytes {
        self.join(&self.shown_tail(&self.served.show(value)))
    }

    fn join(&self, tail: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(self.head.len() + tail.len());
        out.put_slice(&self.head);
        out.put_slice(tail);
        out.freeze()
    }

    /// Writes a list; `metadata` is the list's own.
    pub(crate) fn list(&self, metadata: &Value, items: &[Arc<Stored>]) -> Bytes {
        let (kind, api_version) = match self.shape {
            Shape::Partial(version) | Shape::PartialList(version) => {
                ("PartialObjectMetadataList", version.api_version().to_owned())
            }
            Shape::Object | Shape::Table(_) => (self.resource.list_kind.as_str(), self.served.api_version()),
        };
        let bare = self.key.shape == 0 && !self.resource.is_custom();
        let start = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            json!(kind),
            json!(api_version)
        );
        let tails: Vec<Tail<'_>> = items.iter().map(|stored| self.tail(stored)).collect();
        let size = tails.iter().map(|tail| tail.len() + self.head.len() + 1).sum::<usize>();
        let mut out = BytesMut::with_capacity(start.len() + size + 2);
        out.put_slice(start.as_bytes());
        for (at, tail) in tails.iter().enumerate() {
            if at > 0 {
                out.put_u8(b',');
            }
            if bare {
                out.put_u8(b'{');
            } else {
                out.put_slice(&self.head);
            }
            out.put_slice(tail);
        }
        out.put_slice(b"]}");
        out.freeze()
    }

    /// Writes an event line around an object's bytes.
    pub(crate) fn line(event: &str, object: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(event.len() + object.len() + 24);
        out.put_slice(b"{\"type\":\"");
        out.put_slice(event.as_bytes());
        out.put_slice(b"\",\"object\":");
        out.put_slice(object);
        out.put_slice(b"}\n");
        out.freeze()
    }

    /// Writes a change's line; `left` says that the object has left the selection but still exists.
    pub(crate) fn change_line(&self, change: &Change, event: &str, left: bool) -> Bytes {
        let object = match (&change.previous, left) {
            (Some(previous), true) => {
                let shown = at_version(&self.served.show_stored(previous), change.version);
                self.join(&self.shown_tail(&shown))
            }
            _ => self.object(&change.object),
        };
        Self::line(event, &object)
    }

    /// Writes the object of a bookmark.
    pub(crate) fn bookmark(&self, version: u64, initial_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if let Shape::Partial(meta) | Shape::PartialList(meta) = self.shape {
            return json!({"kind": "PartialObjectMetadata", "apiVersion": meta.api_version(), "metadata": metadata});
        }
        let mut object = self.resource.built_in().map(|row| row.empty_fields()).unwrap_or_else(|| json!({}));
        object["kind"] = self.served.kind.clone().into();
        object["apiVersion"] = self.served.api_version().into();
        object["metadata"] = metadata;
        object
    }
}

impl Encoder {
    /// Writes objects as a table.
    pub(crate) fn table(
        &self,
        metadata: Value,
        values: &[Value],
        header: Header,
        include: IncludeObject,
        now: i64,
    ) -> Bytes {
        let version = if matches!(self.shape, Shape::Table(MetaVersion::V1Beta1)) { "v1beta1" } else { "v1" };
        let columns = &self.served.columns;
        let value = table(TableInput { columns, metadata, objects: values, include, header, version, now });
        Bytes::from(value.to_string())
    }

    /// Shows an object in this version, whole.
    pub(crate) fn show(&self, stored: &Stored) -> Value {
        self.served.show_stored(stored)
    }
}

/// Copies an object at another version.
pub(crate) fn at_version(value: &Value, version: u64) -> Value {
    let mut value = value.clone();
    object::set(&mut value, "resourceVersion", version.to_string());
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Registry;
    use crate::store::{ResourceId, Store};

    #[test]
    fn items_of_built_in_lists_have_no_kind() {
        let registry = Registry::new();
        let resource = registry.find("", "configmaps").expect("there").clone();
        let served = resource.served("v1").expect("there").clone();
        let encoder = Encoder::new(resource, served, Shape::Object);
        let mut store = Store::new(0, 9);
        let id = ResourceId::new("", "configmaps");
        let stored = store.put(
            &id,
            "n/a",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        );
        let list: Value =
            serde_json::from_slice(&encoder.list(&json!({}), std::slice::from_ref(&stored))).expect("JSON");
        assert_eq!(list["items"], json!([{"metadata": {"name": "a", "resourceVersion": "1"}}]));
        let one: Value = serde_json::from_slice(&encoder.object(&stored)).expect("JSON");
        assert_eq!(one["kind"], "ConfigMap");
    }
}

//! Reads OpenAPI schemas into arenas.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::builtin;
use super::cel::CelRule;
use super::node::{Arena, JsonType, ListKind, MapKind, Node, NodeId};

/// Reads a CRD version's schema, which is structural.
pub(super) fn custom(schema: &Value) -> (Arena, NodeId) {
    let mut reader = SchemaReader::new(SchemaOrigin::Custom, Cow::Borrowed(metadata()));
    let root = reader.read(schema, "");
    let names = schema.get("properties").and_then(|properties| properties.get("metadata"));
    let names = names.map(|metadata| reader.read(metadata, ""));
    let meta = reader.object_meta();
    let text = reader.arena.add(Node { kind: JsonType::String, ..Node::default() });
    let node = reader.arena.edit(root);
    node.resource = true;
    node.names = names;
    node.properties.insert("apiVersion".to_owned(), text);
    node.properties.insert("kind".to_owned(), text);
    node.properties.insert("metadata".to_owned(), meta);
    (reader.arena, root)
}

/// Creates a schema that knows only the metadata of objects.
pub(super) fn untyped() -> (Arena, NodeId) {
    let mut reader = SchemaReader::new(SchemaOrigin::Custom, Cow::Borrowed(metadata()));
    let meta = reader.object_meta();
    let text = reader.arena.add(Node { kind: JsonType::String, ..Node::default() });
    let mut node = Node { kind: JsonType::Object, preserve: true, resource: true, ..Node::default() };
    node.properties.insert("apiVersion".to_owned(), text);
    node.properties.insert("kind".to_owned(), text);
    node.properties.insert("metadata".to_owned(), meta);
    let root = reader.arena.add(node);
    (reader.arena, root)
}

/// Reads a part of a CRD's schema as it is.
pub(super) fn fragment(schema: &Map<String, Value>) -> (Arena, NodeId) {
    let mut reader = SchemaReader::new(SchemaOrigin::Custom, Cow::Borrowed(metadata()));
    let root = reader.read(&Value::Object(schema.clone()), "");
    (reader.arena, root)
}

/// The schema of a built-in kind, read when it is first used.
pub(super) type LazySchema = LazyLock<(Arena, NodeId), Box<dyn FnOnce() -> (Arena, NodeId) + Send>>;

/// Finds the schema of a built-in kind.
///
/// A process that starts a server for a test uses few of them, and reading all takes longer than the test.
pub(super) fn built_in(group: &str, version: &str, kind: &str) -> Option<&'static LazySchema> {
    static KINDS: LazyLock<HashMap<&'static str, LazySchema>> = LazyLock::new(|| {
        let lazy = |name: &'static str| -> LazySchema {
            LazyLock::new(Box::new(move || {
                let mut reader =
                    SchemaReader::new(SchemaOrigin::BuiltIn, Cow::Owned(builtin::definitions_of(name)));
                let root = reader.definition(name);
                (reader.arena, root)
            }))
        };
        builtin::kinds().map(|name| (name, lazy(name))).collect()
    });
    KINDS.get(builtin::definition_name(group, version, kind)?)
}

/// The origin of a schema, which decides how it is completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaOrigin {
    Custom,
    BuiltIn,
}

struct SchemaReader {
    arena: Arena,
    known: HashMap<String, NodeId>,
    origin: SchemaOrigin,
    definitions: Cow<'static, Map<String, Value>>,
}

/// Holds the definitions of the metadata of objects.
fn metadata() -> &'static Map<String, Value> {
    static METADATA: LazyLock<Map<String, Value>> = LazyLock::new(|| builtin::definitions_of(""));
    &METADATA
}

impl SchemaReader {
    fn new(origin: SchemaOrigin, definitions: Cow<'static, Map<String, Value>>) -> Self {
        Self { arena: Arena::new(), known: HashMap::new(), origin, definitions }
    }

    /// Reads the metadata of all objects, as a built-in definition.
    fn object_meta(&mut self) -> NodeId {
        let before = std::mem::replace(&mut self.origin, SchemaOrigin::BuiltIn);
        let meta = self.definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
        self.origin = before;
        meta
    }

    fn definition(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.known.get(name) {
            return *id;
        }
        let id = self.arena.reserve();
        self.known.insert(name.to_owned(), id);
        let schema = match &mut self.definitions {
            // Each is read once.
            Cow::Owned(definitions) => definitions.remove(name),
            Cow::Borrowed(definitions) => definitions.get(name).cloned(),
        };
        let schema = schema.unwrap_or_default();
        let node = if builtin::is_any_json(name) {
            Node { kind: JsonType::Any, preserve: true, ..Node::default() }
        } else {
            self.node(&schema, name)
        };
        self.arena.set(id, node);
        id
    }

    /// Reads a schema; `owner` names the definition that contains it, for the table of list keys.
    fn read(&mut self, schema: &Value, owner: &str) -> NodeId {
        if let Some(name) = reference(schema) {
            return self.definition(name);
        }
        let id = self.arena.reserve();
        let node = self.node(schema, owner);
        self.arena.set(id, node);
        id
    }

    fn node(&mut self, schema: &Value, owner: &str) -> Node {
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let mut node = Node {
            kind: kind(fields, owner),
            nullable: flag(fields, "nullable"),
            preserve: flag(fields, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(fields, "x-kubernetes-embedded-resource"),
            default: fields.get("default").cloned(),
            list: list(fields),
            map: map(fields),
            ..Node::default()
        };
        self.children(&mut node, fields, owner);
        match self.origin {
            SchemaOrigin::Custom => {
                node.rules = fields.clone();
                node.validations = CelRule::all(fields);
            }
            SchemaOrigin::BuiltIn => self.complete(&mut node, fields, owner),
        }
        if node.embedded {
            self.embed(&mut node);
        }
        node
    }

    fn children(&mut self, node: &mut Node, fields: &Map<String, Value>, owner: &str) {
        if let Some(Value::Object(properties)) = fields.get("properties") {
            for (name, schema) in properties {
                let id = self.read(schema, "");
                let id = self.listed(id, schema, owner, name);
                node.properties.insert(name.clone(), id);
            }
        }
        match fields.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => node.additional = Some(self.read(schema, "")),
            Some(Value::Bool(true)) => node.preserve = true,
            _ => {}
        }
        if let Some(schema @ Value::Object(_)) = fields.get("items") {
            node.items = Some(self.read(schema, ""));
        }
    }

    /// Returns a property of a built-in definition what the crate's schema leaves out.
    fn listed(&mut self, id: NodeId, schema: &Value, owner: &str, property: &str) -> NodeId {
        if self.origin == SchemaOrigin::BuiltIn && !owner.is_empty() && reference(schema).is_none() {
            let node = self.arena.edit(id);
            node.list = builtin::list_kind(owner, property);
            node.merge = builtin::merge_key(owner, property).map(str::to_owned);
            if builtin::is_atomic_map(owner, property) {
                node.map = MapKind::Atomic;
            }
            node.default = builtin::key_default(owner, property);
        }
        id
    }

    fn complete(&mut self, node: &mut Node, fields: &Map<String, Value>, owner: &str) {
        let bare = !fields.contains_key("properties") && !fields.contains_key("additionalProperties");
        if node.kind == JsonType::Object && bare {
            node.preserve = true;
        }
        node.resource = node.properties.contains_key("metadata") && node.properties.contains_key("kind");
        node.always = builtin::always(owner).into_iter().map(str::to_owned).collect();
        node.definition = owner.rsplit('.').next().unwrap_or_default().to_owned();
        if let Some(format) = fields.get("format") {
            node.rules.insert("format".to_owned(), format.clone());
        }
        if builtin::is_atomic_struct(owner) {
            node.map = MapKind::Atomic;
        }
    }

    fn embed(&mut self, node: &mut Node) {
        let text = self.arena.add(Node { kind: JsonType::String, ..Node::default() });
        let meta = self.object_meta();
        for name in ["apiVersion", "kind"] {
            node.properties.entry(name.to_owned()).or_insert(text);
        }
        node.properties.insert("metadata".to_owned(), meta);
    }
}

fn reference(schema: &Value) -> Option<&str> {
    let path = schema.get("$ref")?.as_str()?;
    path.rsplit('/').next()
}

fn flag(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn kind(fields: &Map<String, Value>, owner: &str) -> JsonType {
    if flag(fields, "x-kubernetes-int-or-string") {
        return JsonType::IntOrString;
    }
    if owner.ends_with(".Quantity") {
        return JsonType::Any;
    }
    match fields.get("type").and_then(Value::as_str) {
        Some("object") => JsonType::Object,
        Some("array") => JsonType::Array,
        Some("string") => JsonType::String,
        Some("integer") => JsonType::Integer,
        Some("number") => JsonType::Number,
        Some("boolean") => JsonType::Boolean,
        _ => JsonType::Any,
    }
}

fn list(fields: &Map<String, Value>) -> ListKind {
    match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => {
            let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            ListKind::Map(keys.map(str::to_owned).collect())
        }
        _ => ListKind::Atomic,
    }
}

fn map(fields: &Map<String, Value>) -> MapKind {
    match fields.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => MapKind::Atomic,
        _ => MapKind::Granular,
    }
}

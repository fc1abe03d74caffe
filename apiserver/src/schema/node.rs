//! The nodes of a schema, in an arena so that they may be recursive.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cel::CelRule;

/// Holds the nodes of one or several schemas.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
}

/// Names a node of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(usize);

/// The JSON that a node accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonType {
    /// Any JSON: the schema has no type.
    #[default]
    Any,
    /// A JSON object.
    Object,
    /// A JSON array.
    Array,
    /// A string.
    String,
    /// A number without a fraction.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An integer or a string.
    IntOrString,
}

/// How the items of a list are owned and merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListKind {
    /// The list is one value.
    #[default]
    Atomic,
    /// Every scalar is an item.
    Set,
    /// Items are objects, identified by the named fields.
    Map(Vec<String>),
}

/// How the fields of an object are owned and merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Every field has its own owners.
    #[default]
    Granular,
    /// The object is one value.
    Atomic,
}

/// One node of a schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: JsonType,
    pub(crate) properties: BTreeMap<String, NodeId>,
    pub(crate) additional: Option<NodeId>,
    pub(crate) items: Option<NodeId>,
    pub(crate) list: ListKind,
    /// The merge key of a strategic merge patch's list; empty for scalars.
    pub(crate) merge: Option<String>,
    pub(crate) map: MapKind,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    pub(crate) default: Option<Value>,
    /// Names the built-in definition this is; empty within one and in custom kinds.
    pub(crate) definition: String,
    /// Fields that a typed server always writes, set or not.
    pub(crate) always: Vec<String>,
    /// Keywords for `validate`: the node's schema as it was given.
    pub(crate) rules: Map<String, Value>,
    /// The rules in CEL.
    pub(crate) validations: Arc<[CelRule]>,
    /// Whether objects of this node are whole API objects.
    pub(crate) resource: bool,
    /// What a custom kind demands of the names in its objects' metadata.
    pub(crate) names: Option<NodeId>,
}

impl Arena {
    /// Adds a node that is filled in later.
    pub(crate) fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        NodeId(self.nodes.len() - 1)
    }

    /// Adds a node.
    pub(crate) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Replaces a node.
    pub(crate) fn set(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0] = node;
    }

    /// Returns a node for changes.
    pub(crate) fn edit(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    /// Points at a node.
    pub(crate) fn at(&self, id: NodeId) -> NodeRef<'_> {
        NodeRef { arena: self, id }
    }
}

/// Points at a node of a schema.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    arena: &'a Arena,
    id: NodeId,
}

impl<'a> NodeRef<'a> {
    /// Reads the node itself.
    pub(crate) fn node(self) -> &'a Node {
        &self.arena.nodes[self.id.0]
    }

    /// Points at what a custom kind demands of names.
    pub(crate) fn names(self) -> Option<Self> {
        self.node().names.map(|id| Self { id, ..self })
    }

    /// Returns what JSON is accepted here.
    pub fn kind(self) -> JsonType {
        self.node().kind
    }

    /// Returns one validation rule, such as `maximum`.
    pub fn rule(self, name: &str) -> Option<&'a Value> {
        self.node().rules.get(name)
    }

    /// Names what JSON is accepted here, as a schema does.
    pub(crate) fn type_name(self) -> &'static str {
        match self.kind() {
            JsonType::Object => "object",
            JsonType::Array => "array",
            JsonType::String => "string",
            JsonType::Integer => "integer",
            JsonType::Number => "number",
            JsonType::Boolean => "boolean",
            JsonType::Any | JsonType::IntOrString => "",
        }
    }

    /// Returns how a list's items are owned here.
    pub fn list(self) -> &'a ListKind {
        &self.node().list
    }

    /// Returns the key by which strategic merge patches merge a list here; empty for scalars.
    pub(crate) fn merge_key(self) -> Option<&'a str> {
        self.node().merge.as_deref()
    }

    /// Returns how an object's fields are owned here.
    pub(crate) fn map(self) -> MapKind {
        self.node().map
    }

    /// Returns the declared property of this name.
    pub(crate) fn property(self, name: &str) -> Option<NodeRef<'a>> {
        let id = *self.node().properties.get(name)?;
        Some(self.arena.at(id))
    }

    /// Lists the declared properties by name.
    pub fn properties(self) -> impl Iterator<Item = (&'a str, NodeRef<'a>)> {
        self.node().properties.iter().map(move |(name, id)| (name.as_str(), self.arena.at(*id)))
    }

    /// Returns the schema of an undeclared field's value, if such may be.
    ///
    /// Below a node of kind `Any` or one that preserves unknown fields, that is again anything.
    pub fn additional(self) -> Option<NodeRef<'a>> {
        match self.node().additional {
            Some(id) => Some(self.arena.at(id)),
            None if self.is_free() => Some(self.arena.anything()),
            None => None,
        }
    }

    /// Returns the schema of a field's value: declared or not.
    pub fn field(self, name: &str) -> Option<NodeRef<'a>> {
        self.property(name).or_else(|| self.additional())
    }

    /// Returns the schema of a list's items.
    pub fn item(self) -> NodeRef<'a> {
        match self.node().items {
            Some(id) => self.arena.at(id),
            None => self.arena.anything(),
        }
    }

    /// Returns whether undeclared fields are kept as they are.
    pub(crate) fn is_free(self) -> bool {
        let node = self.node();
        node.preserve || node.kind == JsonType::Any
    }

    /// Returns the default of a key field of a list's items.
    pub(crate) fn key_default(self, key: &str) -> Option<&'a Value> {
        self.item().property(key)?.node().default.as_ref()
    }

    /// Builds the value that a typed server writes by default.
    pub(crate) fn zero(self) -> Value {
        match self.kind() {
            JsonType::Object => {
                let node = self.node();
                let fields = node.always.iter().filter_map(|name| {
                    let zero = self.property(name).map(NodeRef::zero)?;
                    Some((name.clone(), zero))
                });
                Value::Object(fields.collect())
            }
            // Times are structs, and have no text before they are set.
            JsonType::String
                if self.node().rules.get("format").is_some_and(|format| format == "date-time") =>
            {
                Value::Null
            }
            JsonType::String => Value::from(""),
            JsonType::Integer | JsonType::Number => Value::from(0),
            JsonType::Boolean => Value::from(false),
            JsonType::Array | JsonType::Any | JsonType::IntOrString => Value::Null,
        }
    }
}

impl Arena {
    /// Points at the node that accepts anything, which every arena holds first.
    fn anything(&self) -> NodeRef<'_> {
        self.at(NodeId(0))
    }

    /// Makes an arena with the node that accepts anything.
    pub(crate) fn new() -> Arena {
        Arena { nodes: vec![Node { preserve: true, ..Node::default() }] }
    }
}

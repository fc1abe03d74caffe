//! Types: the result of an expression, as far as the schema and the library define it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{escaped, has_two_names};
use crate::schema::node::{JsonType, NodeRef};

/// The type of an expression.
#[derive(Clone, Debug)]
pub(super) enum Type<'a> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Type<'a>>),
    Map(Box<Type<'a>>),
    /// An object with declared fields.
    Object(NodeRef<'a>),
    /// The metadata of a whole object; rules see its names, and what the object's schema declares.
    Metadata(NodeRef<'a>),
    Optional(Box<Type<'a>>),
    /// An object of the server with these fields.
    Record(Arc<BTreeMap<String, Type<'a>>>),
    /// An object that an expression makes, such as `Object.spec`.
    Made(String),
    /// A value that the authorizer's functions are called on.
    Asking(Asking),
}

/// What the functions of the authorizer are called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Authorizer,
    Path,
    Group,
    Resource,
    Decision,
}

impl Asking {
    /// Returns the name of the type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::Path => "kubernetes.authorization.PathCheck",
            Self::Group => "kubernetes.authorization.GroupCheck",
            Self::Resource => "kubernetes.authorization.ResourceCheck",
            Self::Decision => "kubernetes.authorization.Decision",
        }
    }

    /// Returns the type that a function gives, and how many texts it takes; `None` if it has no such function.
    pub(super) fn function(self, name: &str) -> Option<(usize, Type<'static>)> {
        let asking = |count, given| Some((count, Type::Asking(given)));
        match (self, name) {
            (Self::Authorizer, "path") => asking(1, Self::Path),
            (Self::Authorizer, "group") => asking(1, Self::Group),
            (Self::Authorizer, "serviceAccount") => asking(2, Self::Authorizer),
            (Self::Group, "resource") => asking(1, Self::Resource),
            (Self::Resource, "subresource" | "namespace" | "name" | "fieldSelector" | "labelSelector") => {
                asking(1, Self::Resource)
            }
            (Self::Path | Self::Resource, "check") => asking(1, Self::Decision),
            (Self::Decision, "allowed" | "errored") => Some((0, Type::Bool)),
            (Self::Decision, "reason" | "error") => Some((0, Type::Text)),
            _ => None,
        }
    }

    /// Returns the first type that has a function.
    pub(super) fn with_function(name: &str) -> Option<Self> {
        let all = [Self::Authorizer, Self::Path, Self::Group, Self::Resource, Self::Decision];
        all.into_iter().find(|asking| asking.function(name).is_some())
    }
}

/// Returns whether a whole object's schema declares its built-in fields: then rules also see the other metadata that
/// it declares.
///
/// The schema as it was given says so: the node itself has all of the metadata.
pub(super) fn declares_metadata(node: NodeRef<'_>) -> bool {
    let Some(properties) = node.rule("properties") else { return false };
    let metadata = &properties["metadata"];
    let is_text = |properties: &Value, name: &str| properties[name]["type"] == "string";
    is_text(properties, "kind")
        && is_text(properties, "apiVersion")
        && metadata["type"] == "object"
        && is_text(&metadata["properties"], "name")
        && is_text(&metadata["properties"], "generateName")
}

/// Returns whether rules see a field of a whole object's metadata.
fn shows_metadata(node: NodeRef<'_>, name: &str) -> bool {
    let declares = |properties: &Value| !properties["metadata"]["properties"][name].is_null();
    matches!(name, "name" | "generateName")
        || (declares_metadata(node) && node.rule("properties").is_some_and(declares))
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::Text => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("google.protobuf.Duration"),
            Type::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(value) => write!(f, "map(string, {value})"),
            Type::Object(_) | Type::Metadata(_) | Type::Record(_) => f.write_str("object"),
            Type::Made(name) => f.write_str(name),
            Type::Asking(asking) => f.write_str(asking.name()),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
        }
    }
}

impl<'a> Type<'a> {
    /// Returns the type of the values of a node.
    pub(super) fn of(node: NodeRef<'a>) -> Type<'a> {
        let format = node.node().rules.get("format").and_then(|format| format.as_str()).unwrap_or_default();
        match (node.kind(), format) {
            (JsonType::Any | JsonType::IntOrString, _) => Type::Dyn,
            (JsonType::Boolean, _) => Type::Bool,
            (JsonType::Integer, _) => Type::Int,
            (JsonType::Number, _) => Type::Double,
            (JsonType::String, "date-time" | "date") => Type::Timestamp,
            (JsonType::String, "duration") => Type::Duration,
            (JsonType::String, "byte") => Type::Bytes,
            (JsonType::String, _) => Type::Text,
            (JsonType::Array, _) => Type::List(Box::new(Type::of(node.item()))),
            (JsonType::Object, _) => match (node.properties().next(), node.node().additional) {
                (None, Some(_)) => Type::Map(Box::new(node.additional().map_or(Type::Dyn, Type::of))),
                (None, None) if node.node().preserve => Type::Dyn,
                _ => Type::Object(node),
            },
        }
    }

    /// Returns the type of a field; `Err` describes why it is missing.
    pub(super) fn field(&self, name: &str) -> Result<Type<'a>, String> {
        match self {
            Type::Dyn | Type::Made(_) => Ok(Type::Dyn),
            Type::Record(fields) => {
                fields.get(name).cloned().ok_or_else(|| format!("undefined field '{name}'"))
            }
            Type::Map(value) => Ok((**value).clone()),
            Type::Optional(inner) => Ok(Type::Optional(Box::new(inner.field(name)?))),
            Type::Metadata(node) if shows_metadata(*node, name) => {
                let field = node.property("metadata").and_then(|metadata| metadata.property(name));
                Ok(field.map_or(Type::Text, Type::of))
            }
            Type::Object(node) => {
                let node = *node;
                let whole = node.node().resource || node.node().embedded;
                if whole && name == "metadata" {
                    return Ok(Type::Metadata(node));
                }
                let is_named =
                    |property: &str| escaped(property) == name || (property == name && has_two_names(name));
                let found = node.properties().find(|(property, _)| is_named(property));
                match found {
                    Some((_, below)) => Ok(Type::of(below)),
                    None if node.node().preserve => Ok(Type::Dyn),
                    None => Err(format!("undefined field '{name}'")),
                }
            }
            Type::Metadata(_) => Err(format!("undefined field '{name}'")),
            other => Err(format!("type '{other}' does not support field selection")),
        }
    }

    pub(super) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }

    /// Returns whether values of two types may be equal.
    pub(super) fn meets(&self, other: &Type<'_>) -> bool {
        match (self, other) {
            (Type::Dyn, _) | (_, Type::Dyn) | (Type::Null, _) | (_, Type::Null) => true,
            (Type::List(a), Type::List(b))
            | (Type::Map(a), Type::Map(b))
            | (Type::Optional(a), Type::Optional(b)) => a.meets(b),
            (Type::Object(_) | Type::Metadata(_), Type::Object(_) | Type::Metadata(_) | Type::Map(_)) => true,
            (Type::Map(_), Type::Object(_) | Type::Metadata(_)) => true,
            (Type::Made(a), Type::Made(b)) => a == b,
            (Type::Asking(a), Type::Asking(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Returns a type for values of both.
    pub(super) fn join(self, other: Type<'a>) -> Type<'a> {
        match (self, other) {
            (Type::List(a), Type::List(b)) => Type::List(Box::new(a.join(*b))),
            (Type::Null, other) | (other, Type::Null) => other,
            (a, b) if !a.is_dyn() && a.meets(&b) => a,
            _ => Type::Dyn,
        }
    }
}

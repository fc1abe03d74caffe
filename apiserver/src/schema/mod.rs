//! Structural schemas: what a kind's objects may hold.

mod access;
mod builtin;
#[cfg_attr(not(feature = "cel"), path = "../without/cel.rs")]
mod cel;
mod decode;
mod defaults;
mod error;
mod node;
mod parse;
mod pattern;
mod prune;
mod strict;
mod structural;
mod validate;

use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use self::access::{AccessAnswer, AccessQuestion, Authorizer};
pub(crate) use self::cel::{
    Formula, FormulaError, FormulaNames, FormulaScope, TYPE_NAME, Wanted, compile_condition,
    evaluate_condition,
};
pub(crate) use self::error::FieldError;
pub(crate) use self::node::MapKind;
pub use self::node::{JsonType, ListKind, NodeRef};

use self::node::{Arena, NodeId};
use self::parse::{LazySchema, SchemaOrigin};

/// Describes a kind's objects; cheap to clone.
///
/// Every schema has the root's `apiVersion`, `kind` and `metadata`; `metadata` is always an `ObjectMeta`.
#[derive(Clone, Debug)]
pub struct Schema {
    source: SchemaSource,
    has_rules: bool,
}

#[derive(Clone, Debug)]
enum SchemaSource {
    Custom(Arc<Arena>, NodeId),
    BuiltIn(&'static LazySchema),
}

impl Schema {
    /// Parses the `openAPIV3Schema` of a CRD version.
    ///
    /// # Errors
    ///
    /// Why the schema is not structural; fields are relative to the CRD (`spec.validation.openAPIV3Schema…`).
    pub(crate) fn from_crd(schema: &Value) -> Result<Schema, Vec<FieldError>> {
        let errors = structural::check(schema);
        if !errors.is_empty() {
            return Err(errors);
        }
        let (arena, root) = parse::custom(schema);
        let errors = cel::check(arena.at(root), structural::ROOT);
        if !errors.is_empty() {
            return Err(errors);
        }
        let has_rules = cel::deepest(arena.at(root)).is_some();
        Ok(Schema { source: SchemaSource::Custom(Arc::new(arena), root), has_rules })
    }

    /// Finds the schema of a built-in kind (the core group is `""`).
    pub(crate) fn builtin(group: &str, version: &str, kind: &str) -> Option<Schema> {
        let known = parse::built_in(group, version, kind)?;
        Some(Schema { source: SchemaSource::BuiltIn(known), has_rules: false })
    }

    /// Holds the published definitions of all built-in kinds, by full name, for OpenAPI documents.
    ///
    /// They refer to each other by `#/$defs/<name>`.
    pub(crate) fn definitions() -> &'static Map<String, Value> {
        builtin::definitions()
    }

    /// Names the definition of a built-in kind, such as `io.k8s.api.core.v1.Pod`.
    pub(crate) fn definition_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
        builtin::definition_name(group, version, kind)
    }

    /// Reads a field in the definition of a built-in kind or struct; empty if it is missing.
    pub(crate) fn description(definition: &str, field: &str) -> &'static str {
        builtin::description(definition, field)
    }

    /// Accepts anything: maps are granular, lists atomic.
    pub(crate) fn untyped() -> Schema {
        let (arena, root) = parse::untyped();
        Schema { source: SchemaSource::Custom(Arc::new(arena), root), has_rules: false }
    }

    /// Returns whether this is a built-in kind, for which the server has types.
    pub(crate) fn is_builtin(&self) -> bool {
        self.origin() == SchemaOrigin::BuiltIn
    }

    /// Points at the node of whole objects.
    pub fn root(&self) -> NodeRef<'_> {
        match &self.source {
            SchemaSource::Custom(arena, root) => arena.at(*root),
            SchemaSource::BuiltIn(known) => known.0.at(known.1),
        }
    }

    fn origin(&self) -> SchemaOrigin {
        match self.source {
            SchemaSource::Custom(..) => SchemaOrigin::Custom,
            SchemaSource::BuiltIn(_) => SchemaOrigin::BuiltIn,
        }
    }

    /// Removes the fields that the schema does not know.
    ///
    /// Also drops nulls for which the schema has neither `nullable` nor a default.
    pub(crate) fn prune(&self, object: &mut Value) {
        self.prune_unknown(object);
        prune::nulls(self.root(), object);
    }

    /// Removes the fields that the schema does not know, but no nulls: an apply may leave some to be refused.
    pub(crate) fn prune_unknown(&self, object: &mut Value) {
        prune::unknown(self.root(), object);
    }

    /// Reads an object of a built-in kind as its types do: unknown fields and nulls go.
    ///
    /// # Errors
    ///
    /// The first value of another type, such as
    /// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
    pub(crate) fn decode(&self, object: &mut Value) -> Result<(), String> {
        decode::decode(self.root(), object)
    }

    /// Fills in the defaults of absent fields, and of nulls that may not be.
    pub(crate) fn default(&self, object: &mut Value) {
        defaults::apply(self.root(), object);
    }

    /// Checks an object; on update an unchanged value passes whatever it is.
    pub(crate) fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match self.origin() {
            SchemaOrigin::BuiltIn => validate::check_values(self.root(), "", new, old),
            SchemaOrigin::Custom => validate::check(self.root(), new, old),
        }
    }

    /// Checks one top-level field on its own, as the `status` subresource does.
    ///
    /// Messages then name values from that field on.
    pub(crate) fn validate_field(&self, name: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match self.root().property(name) {
            Some(node) => validate::check_part(node, name, new, old),
            None => Vec::new(),
        }
    }

    /// Checks a whole object against the rules of a custom kind; on update an unchanged value passes most of them.
    pub(crate) fn rule_errors(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        cel::run(self.root(), new, old)
    }

    /// Returns whether a custom kind has rules.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Lists the paths that `prune` would remove, such as `spec.containers[0].nope`.
    pub(crate) fn unknown_fields(&self, object: &Value) -> Vec<String> {
        prune::list_unknown(self.root(), object)
    }

    /// Lists what strict decoding of a JSON text finds, such as `unknown field "spec.x"`.
    ///
    /// For built-in kinds in the order of the text; for the others duplicates first, then by path.
    pub(crate) fn strict_errors(&self, text: &[u8]) -> Vec<String> {
        strict::report(self.root(), self.origin(), text)
    }

    /// Builds the object that a typed server would hold before creation.
    ///
    /// For built-in kinds the structs that are always written; `{}` for the others.
    pub(crate) fn zero(&self) -> Value {
        self.root().zero()
    }
}

#[cfg(test)]
mod tests;

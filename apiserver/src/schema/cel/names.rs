//! Names: what the formulas of a policy may refer to, and whether each gives what it must.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;

use super::asker::name_variables;
use super::authorizer::{AUTHORIZER, REQUEST_RESOURCE};
use super::infer::{Checker, is_path};
use super::types::{Asking, Type};
use super::{SHALLOW, depth, parse, roomy};

/// What a formula must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Anything, for later formulas.
    Anything,
    /// Whether something is true.
    Bool,
    /// The text of a message, which has no authorizer.
    Message,
    /// A text, or none.
    TextOrNull,
    /// A part of the object, to be merged into it.
    Configuration,
    /// The operations of a JSON patch.
    Patches,
}

impl Wanted {
    fn takes(self, given: &Type<'_>, expression: &IdedExpr) -> bool {
        let made = |given: &Type<'_>, wanted: &str| matches!(given, Type::Made(name) if name == wanted);
        match (self, given) {
            (Self::Anything, _) => true,
            // The type of a function's result may be unknown here. That of a field is unknown to the real server as well.
            (_, Type::Dyn) => !is_path(expression),
            (Self::Bool, given) => matches!(given, Type::Bool),
            (Self::Message, given) => matches!(given, Type::Text),
            (Self::TextOrNull, given) => matches!(given, Type::Text | Type::Null),
            (Self::Configuration, given) => made(given, "Object"),
            (Self::Patches, Type::List(item)) => item.is_dyn() || made(item, "JSONPatch"),
            (Self::Patches, _) => false,
        }
    }

    fn named(self) -> &'static str {
        match self {
            Self::Anything => "any",
            Self::Bool => "bool",
            Self::Message => "string",
            Self::TextOrNull => "one of [string null_type]",
            Self::Configuration => "Object",
            Self::Patches => "list(JSONPatch)",
        }
    }

    /// Returns whether the formula changes objects.
    fn is_mutation(self) -> bool {
        matches!(self, Self::Configuration | Self::Patches)
    }
}

/// The names that the formulas of one policy may use.
#[derive(Debug)]
pub(crate) struct FormulaNames {
    has_params: bool,
    /// `None` where nothing can be named.
    variables: Option<Arc<BTreeMap<String, Type<'static>>>>,
}

impl FormulaNames {
    /// Names what every policy's formulas see; `params` only if the policy has any.
    pub(crate) fn new(has_params: bool) -> Self {
        Self { has_params, variables: None }
    }

    /// Lets formulas name the results of earlier ones.
    pub(crate) fn with_variables(self) -> Self {
        Self { variables: Some(Arc::default()), ..self }
    }

    /// Checks a variable and adds it to the names.
    ///
    /// # Errors
    /// What is wrong with it, in the server's words.
    pub(crate) fn add(&mut self, name: &str, text: &str) -> Result<(), String> {
        let found = self.type_of(text, Wanted::Anything);
        let given = found.as_ref().map_or(Type::Dyn, Type::clone);
        Arc::make_mut(self.variables.get_or_insert_default()).insert(name.to_owned(), given);
        found.map(drop)
    }

    /// Checks a formula.
    ///
    /// # Errors
    /// What is wrong with it, in the server's words.
    pub(crate) fn check(&self, text: &str, wanted: Wanted) -> Result<(), String> {
        self.type_of(text, wanted).map(drop)
    }

    fn type_of(&self, text: &str, wanted: Wanted) -> Result<Type<'static>, String> {
        if depth(text) <= SHALLOW {
            return self.typed(text, wanted);
        }
        let typed = roomy(|| self.typed(text, wanted));
        typed.unwrap_or_else(|| Err("compilation failed: internal error".to_owned()))
    }

    fn typed(&self, text: &str, wanted: Wanted) -> Result<Type<'static>, String> {
        let failed = |why: String| Err(format!("compilation failed: {why}"));
        let mut parsed = match parse(text) {
            Ok(parsed) => parsed,
            Err(why) => return failed(why),
        };
        name_variables(&mut parsed);
        let mut checker = Checker::new(text, self.scope(wanted)).with_even_literals();
        if wanted.is_mutation() {
            checker = checker.with_objects();
        }
        let given = checker.infer(&parsed);
        if !checker.errors.is_empty() {
            return failed(checker.errors.join("\n"));
        }
        match wanted.takes(&given, &parsed) {
            true => Ok(given),
            false => Err(format!("must evaluate to {} but got {given}", wanted.named())),
        }
    }

    fn scope(&self, wanted: Wanted) -> Vec<(String, Type<'static>)> {
        let record = |fields: Vec<(&str, Type<'static>)>| {
            let fields = fields.into_iter().map(|(name, given)| (name.to_owned(), given));
            Type::Record(Arc::new(fields.collect()))
        };
        let names = |names: &[&'static str]| record(names.iter().map(|name| (*name, Type::Text)).collect());
        let kind = names(&["group", "version", "kind"]);
        let resource = names(&["group", "version", "resource"]);
        let user = record(vec![
            ("username", Type::Text),
            ("uid", Type::Text),
            ("groups", Type::List(Box::new(Type::Text))),
            ("extra", Type::Map(Box::new(Type::List(Box::new(Type::Text))))),
        ]);
        let request = record(vec![
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", Type::Text),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", Type::Text),
            ("name", Type::Text),
            ("namespace", Type::Text),
            ("operation", Type::Text),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ]);
        let mut scope: Vec<(String, Type<'static>)> = ["object", "oldObject", "namespaceObject"]
            .into_iter()
            .map(|name| (name.to_owned(), Type::Dyn))
            .collect();
        scope.push(("request".to_owned(), request));
        let asked = [(AUTHORIZER, Asking::Authorizer), (REQUEST_RESOURCE, Asking::Resource)];
        for (name, asking) in asked.into_iter().filter(|_| wanted != Wanted::Message) {
            scope.push((name.to_owned(), Type::Asking(asking)));
        }
        if self.has_params {
            scope.push(("params".to_owned(), Type::Dyn));
        }
        if let Some(variables) = &self.variables {
            scope.push(("variables".to_owned(), Type::Record(variables.clone())));
        }
        scope
    }
}

//! Parameters: the objects whose values the expressions of a policy use.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde_json::{Value, json};

use crate::{
    object::{Kind, Scope},
    writes::TypedObject,
};

/// The objects whose values the expressions of a [`Policy`](super::Policy) use as `params`.
///
/// The policy is evaluated once for each of the objects, and all must allow the request. Unless set, a namespaced object is in
/// the namespace of the request, and a request is refused if the object is missing, whatever
/// [`Policy::only_if`](super::Policy::only_if) says.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::webhook::{Params, Policy};
/// let limits = Params::<ConfigMap>::named("limits").in_namespace("ops");
/// let policy = Policy::<ConfigMap>::new("small")
///     .params(limits)
///     .rule("size(object.data) <= int(params.data.most)", "has too much data");
/// ```
#[must_use = "parameters do nothing until a policy has them"]
pub struct Params<P> {
    given: GivenParams,
    kind: PhantomData<fn() -> P>,
}

impl<P> Clone for Params<P> {
    fn clone(&self) -> Self {
        Self { given: self.given.clone(), kind: PhantomData }
    }
}

impl<P> fmt::Debug for Params<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.given.fmt(f)
    }
}

impl<P: TypedObject> Params<P> {
    /// Takes the object of a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self::of(Selected::Name(name.into()))
    }

    /// Takes all objects with these labels; without labels, all objects.
    pub fn labelled<L: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (L, V)>) -> Self {
        Self::of(Selected::Labels(
            labels.into_iter().map(|(label, value)| (label.into(), value.into())).collect(),
        ))
    }

    fn of(selected: Selected) -> Self {
        let given = GivenParams { kind: Kind::of::<P>(), selected, namespace: None, missing: "Deny" };
        Self { given, kind: PhantomData }
    }

    /// Sets the namespace of the objects, in place of that of the request.
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.given.namespace = Some(namespace.into());
        self
    }

    /// Lets requests pass if the object is missing. No rule or change is evaluated then.
    pub fn allow_if_missing(mut self) -> Self {
        self.given.missing = "Allow";
        self
    }

    pub(super) fn given(self) -> GivenParams {
        self.given
    }
}

/// Which objects are taken.
#[derive(Clone, Debug)]
enum Selected {
    Name(String),
    Labels(BTreeMap<String, String>),
}

/// The parameters of a policy, whose kind is erased.
#[derive(Clone, Debug)]
pub(super) struct GivenParams {
    pub(super) kind: Kind,
    selected: Selected,
    namespace: Option<String>,
    /// What becomes of requests if the object is missing.
    missing: &'static str,
}

impl GivenParams {
    /// Returns the `paramKind` of the policy.
    pub(super) fn kind(&self) -> Value {
        json!({"apiVersion": self.kind.api_version(), "kind": self.kind.kind})
    }

    /// Returns the `paramRef` of the binding.
    pub(super) fn reference(&self) -> Value {
        let mut reference = match &self.selected {
            Selected::Name(name) => json!({ "name": name }),
            Selected::Labels(labels) if labels.is_empty() => json!({"selector": {}}),
            Selected::Labels(labels) => json!({"selector": {"matchLabels": labels}}),
        };
        reference["parameterNotFoundAction"] = self.missing.into();
        if let Some(namespace) = &self.namespace {
            reference["namespace"] = namespace.as_str().into();
        }
        reference
    }

    /// Returns why no API server can find them for the objects of a kind, and what to do.
    pub(super) fn fault(&self, of: &Kind) -> Option<String> {
        let Kind { kind, scope, .. } = &self.kind;
        match (scope, &self.namespace, of.scope) {
            (Scope::Cluster, Some(namespace), _) => Some(format!(
                "its parameters can't be in the namespace {namespace:?}: a {kind} is in no namespace, so leave \
                 `.in_namespace(..)` out"
            )),
            (Scope::Namespaced, None, Scope::Cluster) => Some(format!(
                "its parameters can't be found: a {} is in no namespace, so name that of the {kind} by `.in_namespace(..)`",
                of.kind
            )),
            _ => None,
        }
    }

    /// Returns in which namespace a binding lists them, `Some(None)` for all; `None` if it gets one by its name.
    pub(super) fn listed_in(&self) -> Option<Option<&str>> {
        matches!(self.selected, Selected::Labels(_)).then_some(self.namespace.as_deref())
    }

    /// Returns the path at which they are read, if requests are for a namespace.
    pub(super) fn path(&self, namespace: &str) -> String {
        let Kind { group, version, plural, scope, .. } = &self.kind;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let place = match scope {
            Scope::Namespaced => {
                format!("/namespaces/{}", self.namespace.as_deref().unwrap_or(namespace))
            }
            Scope::Cluster => String::new(),
        };
        let rest = match &self.selected {
            Selected::Name(name) => format!("/{name}"),
            Selected::Labels(labels) => {
                let labels: Vec<String> =
                    labels.iter().map(|(label, value)| format!("{label}%3D{value}")).collect();
                format!("?labelSelector={}", labels.join("%2C"))
            }
        };
        format!("{root}{place}/{plural}{rest}")
    }
}

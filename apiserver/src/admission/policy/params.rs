//! Parameters: the objects that a binding gives to its policy.

use std::sync::Arc;

use serde_json::Value;

use crate::kinds::{Reach, Resource, Served};
use crate::object;
use crate::selector::matches_labels;
use crate::state::State;
use crate::store::Stored;

/// The kind of a policy's parameters.
#[derive(Debug)]
pub(super) struct ParamKind {
    resource: Arc<Resource>,
    served: Arc<Served>,
}

impl ParamKind {
    /// Finds the kind of a policy's parameters; `None` if it has none.
    ///
    /// # Errors
    /// The server has no such kind.
    pub(super) fn of(state: &State, spec: &Value) -> Result<Option<Self>, String> {
        let wanted = &spec["paramKind"];
        if wanted.is_null() {
            return Ok(None);
        }
        let text = |key: &str| wanted[key].as_str().unwrap_or_default();
        let (group, version) = object::group_version(text("apiVersion"));
        let found = state.registry.stored().find_map(|resource| {
            let is_it = resource.group() == group && resource.kind == text("kind");
            let mut versions =
                resource.versions.iter().filter(|served| served.served && served.version == version);
            Some(Self { resource: resource.clone(), served: versions.next().cloned()? }).filter(|_| is_it)
        });
        let unknown = || {
            let (version, kind) = (text("apiVersion"), text("kind"));
            format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'")
        };
        found.map(Some).ok_or_else(unknown)
    }
}

/// Returns the parameters for each evaluation; `None` is an evaluation without parameters.
///
/// # Errors
/// They can't be found, and the binding wants that to be refused.
pub(super) fn params(
    state: &State,
    kind: Option<&ParamKind>,
    binding: &Value,
    namespace: &str,
) -> Result<Vec<Option<Value>>, String> {
    let wanted = &binding["paramRef"];
    let Some(kind) = kind.filter(|_| !wanted.is_null()) else { return Ok(vec![None]) };
    let given = wanted["namespace"].as_str().unwrap_or_default();
    let is_namespaced = kind.resource.reach == Reach::Namespaced;
    let namespace = match (is_namespaced, given, namespace) {
        (true, "", "") => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "", own) => own,
        (true, given, _) => given,
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let shown = |stored: &Arc<Stored>| Some(kind.served.show_stored(stored));
    let found: Vec<Option<Value>> = match wanted["name"].as_str() {
        Some(name) if !name.is_empty() => {
            let key = object::key(namespace, name);
            state.store.get(&kind.resource.storage, &key).into_iter().map(shown).collect()
        }
        _ => {
            let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            let all = state.store.scan(&kind.resource.storage, &prefix).map(shown);
            all.flatten().filter(|object| matches_labels(&wanted["selector"], object)).map(Some).collect()
        }
    };
    if found.is_empty() && wanted["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

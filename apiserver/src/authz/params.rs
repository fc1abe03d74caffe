//! Parameters: a user who writes an admission policy that reads other objects must be allowed to read them.

use serde_json::Value;

use super::attributes::Attributes;
use super::decide::decide;
use super::decision::Decision;
use crate::identity::User;
use crate::object;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::store::ResourceId;

/// The group of policies.
pub(super) const POLICIES: &str = "admissionregistration.k8s.io";

/// Checks the write of a policy, or of a binding, by its parameters.
///
/// # Errors
/// 422 if the user may not read them.
pub(super) fn check_params(
    state: &State,
    user: &User,
    asked: &Attributes,
    before: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    let spec = &new["spec"];
    let same = |key: &str| before.is_some_and(|before| before["spec"][key] == spec[key]);
    let (field, kind, why) = match asked.resource.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            if spec["paramKind"].is_null() || same("paramKind") {
                return Ok(());
            }
            let kind = if asked.resource.starts_with('m') { "Mutating" } else { "Validating" };
            let why = lacks_kind(state, user, &spec["paramKind"]);
            ("spec.paramKind", format!("{kind}AdmissionPolicy"), why)
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            if spec["paramRef"].is_null() || (same("paramRef") && same("policyName")) {
                return Ok(());
            }
            let kind = if asked.resource.starts_with('m') { "Mutating" } else { "Validating" };
            let policies = ResourceId::new(POLICIES, &format!("{}admissionpolicies", kind.to_lowercase()));
            let policy = state.store.get(&policies, spec["policyName"].as_str().unwrap_or_default());
            let policy = policy.map_or(Value::Null, |policy| policy.pinned()["spec"]["paramKind"].clone());
            let why = lacks_objects(state, user, &policy, spec);
            ("spec.paramRef", format!("{kind}AdmissionPolicyBinding"), why)
        }
        _ => return Ok(()),
    };
    let Some(why) = why else { return Ok(()) };
    Err(Status::invalid(POLICIES, &kind, object::name(new), &[Cause::forbidden(field, &why)]))
}

/// Returns what a user may not do who names a kind of parameters.
fn lacks_kind(state: &State, user: &User, kind: &Value) -> Option<String> {
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    let (group, resource) = resolved(state, kind);
    let everywhere = || "*".to_owned();
    let asked = Attributes {
        verb: "get".to_owned(),
        group,
        resource,
        name: everywhere(),
        namespace: everywhere(),
        ..Attributes::default()
    };
    let allowed = matches!(decide(state, user, &asked), Decision::Allowed(_));
    (!allowed).then(|| {
        format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(user),
            text("kind"),
            text("apiVersion")
        )
    })
}

/// Returns what a user may not do who binds a policy to parameters.
fn lacks_objects(state: &State, user: &User, kind: &Value, spec: &Value) -> Option<String> {
    let text = |key: &str| spec["paramRef"][key].as_str().unwrap_or_default().to_owned();
    let (group, resource) = if kind.is_null() { all() } else { resolved(state, kind) };
    let (name, namespace) = (text("name"), text("namespace"));
    let verb = if name.is_empty() { "list" } else { "get" };
    let is_resolved = resource != "*";
    let asked =
        Attributes { verb: verb.to_owned(), group, resource, name, namespace, ..Attributes::default() };
    if let Decision::Allowed(_) = decide(state, user, &asked) {
        return None;
    }
    let (who, policy) = (shown(user), spec["policyName"].as_str().unwrap_or_default());
    Some(match (kind.is_null(), is_resolved) {
        (_, true) => {
            format!("user {who} does not have {verb:?} permission on the object referenced by paramRef")
        }
        (true, false) => format!(
            "unable to get policy {policy} to determine minimum required permissions and user {who} does not have {verb:?} permission for all groups, versions and resources"
        ),
        (false, false) => format!(
            "unable to resolve paramKind {kind} to determine minimum required permissions and user {who} does not have {verb:?} permission for all groups, versions and resources"
        ),
    })
}

fn all() -> (String, String) {
    ("*".to_owned(), "*".to_owned())
}

/// Returns the group and the plural of a kind; all plurals for a kind that the server does not have.
fn resolved(state: &State, kind: &Value) -> (String, String) {
    let text = |key: &str| kind[key].as_str().unwrap_or_default();
    let (group, version) = object::group_version(text("apiVersion"));
    let found = state.registry.stored().find(|resource| {
        let is_served = || resource.versions.iter().any(|served| served.served && served.version == version);
        resource.group() == group && resource.kind == text("kind") && is_served()
    });
    (group.to_owned(), found.map_or_else(|| "*".to_owned(), |resource| resource.plural().to_owned()))
}

fn shown(user: &User) -> String {
    format!("&{{{} {} [{}] map[]}}", user.name(), user.uid(), user.groups().join(" "))
}

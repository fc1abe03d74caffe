//! Escalation: users can only grant permissions that they have, unless a permission allows more.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::attributes::Attributes;
use super::decide::decide;
use super::decision::Decision;
use super::params::{POLICIES, check_params};
use super::resolve::{GROUP, Missing, rules_of, visit};
use super::roles::all;
use super::rule::{PolicyRule, Simple, describe};
use crate::identity::User;
use crate::object;
use crate::state::{Authorization, State};
use crate::status::Status;

/// The most simple rules that a role is broken down into; a larger one is refused to all but superusers.
const MOST_RULES: usize = 100_000;

/// Checks the write of a role or a binding, or of a policy that reads other objects.
///
/// `asked` is the request: its name is empty for a create.
///
/// # Errors
/// 403 for rights that the user has not, 404 for a role that is not there.
pub(crate) fn check_escalation(
    state: &State,
    user: &User,
    asked: &Attributes,
    before: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if state.authorization != Authorization::Rbac || user.is_superuser() {
        return Ok(());
    }
    if asked.group == POLICIES {
        return check_params(state, user, asked, before, new);
    }
    if asked.group != GROUP {
        return Ok(());
    }
    let name = object::name(new);
    let forbidden = |why: String| Status::forbidden(GROUP, &asked.resource, name, &why);
    if before.is_some_and(|before| only_for_the_collector(before, new)) {
        return Ok(());
    }
    match asked.resource.as_str() {
        "roles" | "clusterroles" => {
            let escalate =
                Attributes { verb: "escalate".to_owned(), subresource: String::new(), ..asked.clone() };
            if let Decision::Allowed(_) = decide(state, user, &escalate) {
                return Ok(());
            }
            let rules = new["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
            hold(state, user, &asked.namespace, rules).map_err(&forbidden)?;
            let aggregates = |role: &Value| {
                role["aggregationRule"]["clusterRoleSelectors"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty())
            };
            if asked.resource == "clusterroles" && (aggregates(new) || before.is_some_and(aggregates)) {
                let everything = [
                    json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
                    json!({"verbs": ["*"], "nonResourceURLs": ["*"]}),
                ];
                let why = "must have cluster-admin privileges to use the aggregationRule";
                hold(state, user, "", &everything).map_err(|_| forbidden(why.to_owned()))?;
            }
            Ok(())
        }
        "rolebindings" | "clusterrolebindings" => {
            let role = &new["roleRef"];
            let text = |key: &str| role[key].as_str().unwrap_or_default();
            let plural = match text("kind") {
                "Role" => "roles",
                "ClusterRole" => "clusterroles",
                _ => "",
            };
            let bind = Attributes {
                verb: "bind".to_owned(),
                group: text("apiGroup").to_owned(),
                resource: plural.to_owned(),
                name: text("name").to_owned(),
                namespace: asked.namespace.clone(),
                ..Attributes::default()
            };
            if !plural.is_empty() && matches!(decide(state, user, &bind), Decision::Allowed(_)) {
                return Ok(());
            }
            let rules = rules_of(&state.store, role, &asked.namespace).map_err(|missing| match &missing {
                Missing::Role(_, name) => Status::not_found(GROUP, &asked.resource, name),
                Missing::Kind(_) => Status::internal(missing.to_string()),
            })?;
            hold(state, user, &asked.namespace, rules).map_err(forbidden)
        }
        _ => Ok(()),
    }
}

/// Returns whether an update changes only what the garbage collector changes.
fn only_for_the_collector(before: &Value, new: &Value) -> bool {
    let bare = |value: &Value| {
        let mut value = value.clone();
        for field in ["ownerReferences", "finalizers", "managedFields", "generation"] {
            object::remove(&mut value, field);
        }
        value
    };
    bare(before) == bare(new)
}

/// Checks that a user has every right that rules give.
fn hold(state: &State, user: &User, namespace: &str, rules: &[Value]) -> Result<(), String> {
    let groups = user.groups().iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(" ");
    let who = format!("user {:?} (groups=[{groups}])", user.name());
    let size = rules.iter().map(|rule| PolicyRule(rule).size()).fold(0, usize::saturating_add);
    if size > MOST_RULES {
        return Err(format!(
            "{who} is attempting to grant {size} RBAC permissions at once, and at most {MOST_RULES} can be compared"
        ));
    }
    let mut own = Vec::new();
    let missing = visit(&state.store, user, namespace, |_, rule| {
        own.push(rule);
        ControlFlow::Continue(())
    });
    let wanted = rules.iter().flat_map(|rule| PolicyRule(rule).simple());
    let lacking: Vec<Simple<'_>> =
        wanted.filter(|simple| !own.iter().any(|rule| rule.covers(simple))).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let errors =
        if missing.is_empty() { String::new() } else { format!("; resolution errors: [{}]", all(&missing)) };
    let lacking = describe(&lacking);
    Err(format!("{who} is attempting to grant RBAC permissions not currently held:\n{lacking}{errors}"))
}

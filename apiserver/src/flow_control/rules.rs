//! Rules: which requests a flow schema is for.

use serde::Deserialize;
use serde_json::Value;

use crate::authz::Attributes;
use crate::identity::{User, service_account};

/// A stored flow schema, as far as requests are chosen by it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlowSchema {
    matching_precedence: i64,
    priority_level_configuration: NamedRules,
    #[serde(default)]
    rules: Vec<Rules>,
}

#[derive(Debug, Deserialize)]
struct NamedRules {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rules {
    #[serde(default)]
    subjects: Vec<Subject>,
    #[serde(default)]
    resource_rules: Vec<ResourceRule>,
    #[serde(default)]
    non_resource_rules: Vec<PathRule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: Option<NamedRules>,
    group: Option<NamedRules>,
    service_account: Option<Account>,
}

#[derive(Debug, Deserialize)]
struct Account {
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    cluster_scope: bool,
    #[serde(default)]
    namespaces: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct PathRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    paths: Vec<String>,
}

impl FlowSchema {
    /// Reads a stored object; `None` if it is not a flow schema.
    pub(super) fn read(stored: &Value) -> Option<Self> {
        Self::deserialize(&stored["spec"]).ok()
    }

    /// Returns the precedence; lower ones are matched first.
    pub(super) fn precedence(&self) -> i64 {
        self.matching_precedence
    }

    /// Returns the name of the priority level.
    pub(super) fn level(&self) -> &str {
        &self.priority_level_configuration.name
    }

    /// Returns whether it is for a request.
    pub(super) fn fits(&self, user: &User, asked: &Attributes) -> bool {
        self.rules.iter().any(|rules| {
            rules.subjects.iter().any(|subject| subject.is(user))
                && match &asked.path {
                    None => rules.resource_rules.iter().any(|rule| rule.fits(asked)),
                    Some(path) => rules.non_resource_rules.iter().any(|rule| rule.fits(&asked.verb, path)),
                }
        })
    }
}

impl Subject {
    fn is(&self, user: &User) -> bool {
        match (self.kind.as_str(), &self.user, &self.group, &self.service_account) {
            ("User", Some(named), ..) => named.name == "*" || named.name == user.name(),
            ("Group", _, Some(group), _) => group.name == "*" || user.is_in(&group.name),
            ("ServiceAccount", .., Some(account)) => {
                service_account(user.name()).is_some_and(|(namespace, name)| {
                    namespace == account.namespace && (account.name == "*" || account.name == name)
                })
            }
            _ => false,
        }
    }
}

impl ResourceRule {
    fn fits(&self, asked: &Attributes) -> bool {
        let resource = |given: &String| match asked.subresource.as_str() {
            "" => *given == asked.resource,
            sub => given.strip_suffix(sub).and_then(|rest| rest.strip_suffix('/')) == Some(&*asked.resource),
        };
        has(&self.verbs, &asked.verb)
            && has(&self.api_groups, &asked.group)
            && (is_any(&self.resources) || self.resources.iter().any(resource))
            && match asked.namespace.as_str() {
                "" => self.cluster_scope,
                namespace => has(&self.namespaces, namespace),
            }
    }
}

impl PathRule {
    fn fits(&self, verb: &str, path: &str) -> bool {
        let covers = |given: &String| {
            let prefix = given.strip_suffix('*').unwrap_or(given);
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            given == "*"
                || given == path
                || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        has(&self.verbs, verb) && self.paths.iter().any(covers)
    }
}

fn is_any(list: &[String]) -> bool {
    matches!(list, [one] if one == "*")
}

fn has(list: &[String], text: &str) -> bool {
    is_any(list) || list.iter().any(|one| one == text)
}

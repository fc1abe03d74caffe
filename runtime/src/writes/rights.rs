//! The permissions that a controller declares, and the undeclared ones that it uses.

use std::{borrow::Cow, collections::BTreeSet};

use super::request::ObjectRequest;
use crate::{
    api_request::{ApiVerb, MediaType},
    object::{Kind, Scope},
};

/// What a reconciler does with objects of a kind, for [`Controller::uses`](crate::Controller::uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Use {
    /// `cx.get`.
    Get,
    /// `cx.apply`.
    Apply,
    /// `cx.create`.
    Create,
    /// `cx.delete`.
    Delete,
    /// `cx.patch`, of the reconciled object itself.
    Patch,
    /// `cx.patch_status`.
    PatchStatus,
    /// Bindings to roles of this kind (Role or ClusterRole), whatever these allow: the verb `bind`.
    ///
    /// The API server refuses a RoleBinding or a ClusterRoleBinding that gives what its author may not do, unless the
    /// author may `bind` the role. Say [`Use::Apply`] of the bindings too.
    Bind,
    /// Roles of this kind (Role or ClusterRole), whatever they allow: the verb `escalate`.
    ///
    /// The API server refuses a role that allows what its author may not do, unless the author may `escalate`. Say
    /// [`Use::Apply`] of the roles too. Who may `escalate` may give itself anything: prefer [`Use::Bind`] of roles that
    /// an administrator wrote.
    Escalate,
}

impl Use {
    fn verbs(self) -> &'static [ApiVerb] {
        match self {
            Self::Get | Self::PatchStatus => &[ApiVerb::Get],
            // What is there already is asked for, where no cache shows it or the server refuses a write as stale.
            Self::Apply => &[ApiVerb::Get, ApiVerb::Create, ApiVerb::Patch],
            Self::Create => &[ApiVerb::Get, ApiVerb::Create],
            Self::Patch => &[ApiVerb::Get, ApiVerb::Patch],
            Self::Delete => &[ApiVerb::Get, ApiVerb::Delete],
            Self::Bind => &[ApiVerb::Bind],
            Self::Escalate => &[ApiVerb::Escalate],
        }
    }
}

/// One thing that a role allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Right {
    pub(crate) group: Cow<'static, str>,
    /// The plural, with a slash and the subresource where it is one.
    pub(crate) resource: String,
    /// A right to a kind without namespaces is needed for the whole cluster.
    pub(crate) scope: Scope,
    pub(crate) verb: ApiVerb,
}

/// What a controller declares that it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(BTreeSet<Right>);

impl Rights {
    /// It lists and watches a kind.
    pub(crate) fn watch(&mut self, kind: &Kind) {
        [ApiVerb::List, ApiVerb::Watch].into_iter().for_each(|verb| self.add(kind, "", verb));
    }

    /// It does something with a kind.
    pub(crate) fn allow(&mut self, kind: &Kind, use_: Use) {
        use_.verbs().iter().for_each(|verb| self.add(kind, "", *verb));
        if use_ == Use::PatchStatus {
            self.add(kind, "/status", ApiVerb::Patch);
        }
    }

    /// It records events.
    pub(crate) fn record_events(&mut self, events: &Kind) {
        [ApiVerb::Create, ApiVerb::Patch].into_iter().for_each(|verb| self.add(events, "", verb));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Right> {
        self.0.iter()
    }

    fn add(&mut self, kind: &Kind, subresource: &str, verb: ApiVerb) {
        let resource = format!("{}{subresource}", kind.plural);
        self.0.insert(Right { group: kind.group.clone(), resource, scope: kind.scope, verb });
    }

    /// Returns what a request does that is not declared: a role made of what is declared does not allow it.
    pub(super) fn lacks(&self, request: &ObjectRequest<'_>) -> Option<Use> {
        let use_ = match (request.verb, request.subresource, request.media_type) {
            (ApiVerb::Get | ApiVerb::List, ..) => Use::Get,
            (ApiVerb::Create, ..) => Use::Create,
            (ApiVerb::Delete, ..) => Use::Delete,
            (_, Some(_), _) => Use::PatchStatus,
            (.., MediaType::Apply) => Use::Apply,
            _ => Use::Patch,
        };
        let mut needed = Self::default();
        needed.allow(&request.target.kind, use_);
        (request.verb != ApiVerb::List && !needed.0.is_subset(&self.0)).then_some(use_)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Kind {
        Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            scope: Scope::Namespaced,
        }
    }

    fn shown(rights: &Rights) -> Vec<String> {
        rights.iter().map(|right| format!("{} {}", right.verb.as_str(), right.resource)).collect()
    }

    // W20 P21
    #[test]
    fn each_use_takes_exactly_the_verbs_that_it_sends() {
        for (use_, verbs) in [
            (Use::Get, &["get pods"][..]),
            (Use::Apply, &["get pods", "create pods", "patch pods"]),
            (Use::Create, &["get pods", "create pods"]),
            (Use::Delete, &["get pods", "delete pods"]),
            (Use::Patch, &["get pods", "patch pods"]),
            (Use::PatchStatus, &["get pods", "patch pods/status"]),
            (Use::Bind, &["bind pods"]),
            (Use::Escalate, &["escalate pods"]),
        ] {
            let mut rights = Rights::default();
            rights.allow(&pods(), use_);
            assert_eq!(shown(&rights), verbs, "{use_:?}");
        }
        let mut watched = Rights::default();
        watched.watch(&pods());
        assert_eq!(shown(&watched), ["list pods", "watch pods"]);
    }
}

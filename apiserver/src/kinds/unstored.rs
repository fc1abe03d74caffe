//! Kinds that are answered and never stored: reviews, bindings and the statuses of components.

use super::Reach;

/// A kind that is answered and never stored, in version `v1` of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unstored {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) reach: Reach,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) short_names: &'static [&'static str],
}

impl Unstored {
    const fn made(group: &'static str, plural: &'static str, kind: &'static str, reach: Reach) -> Self {
        Self { group, plural, kind, reach, verbs: &["create"], short_names: &[] }
    }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const ALL: [Unstored; 8] = [
    Unstored::made("", "bindings", "Binding", Reach::Namespaced),
    Unstored {
        verbs: &["get", "list"],
        short_names: &["cs"],
        ..Unstored::made("", "componentstatuses", "ComponentStatus", Reach::Cluster)
    },
    Unstored::made(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview", Reach::Cluster),
    Unstored::made(AUTHENTICATION, "tokenreviews", "TokenReview", Reach::Cluster),
    Unstored::made(AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview", Reach::Namespaced),
    Unstored::made(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview", Reach::Cluster),
    Unstored::made(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview", Reach::Cluster),
    Unstored::made(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview", Reach::Cluster),
];

/// Lists those of a group version.
pub(crate) fn unstored(group: &str, version: &str) -> impl Iterator<Item = &'static Unstored> {
    ALL.iter().filter(move |unstored| unstored.group == group && version == "v1")
}

/// Lists the groups that have nothing else; all are only in version `v1`.
pub(crate) const UNSTORED_GROUPS: [&str; 2] = [AUTHENTICATION, AUTHORIZATION];

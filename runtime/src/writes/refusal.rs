//! What a refusal says beyond its code: who refused, when to try again, and that a version was old.

use std::{error::Error, fmt, time::Duration};

use http::HeaderMap;
use kube::core::Status;
use tokio::time::Instant;

use crate::{chain::chain, list_watch::retry_after, plain::said};

/// The longest time that a server may ask for; more is cut down to this.
const LONGEST: Duration = Duration::from_secs(300);

/// Who refused a write with HTTP 403, as far as the server's words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForbiddenBy {
    /// The authorizer: this user lacks the permission.
    Rights,
    /// The protection of roles: who gives permissions away must have them, or be allowed to give them.
    Escalation,
    /// The protection of owners: who sets `blockOwnerDeletion` must be allowed to update the owner's finalizers.
    OwnerProtection,
    /// A quota is used up, or wants what the object does not say.
    Quota,
    /// The namespace is being deleted, and takes nothing new.
    TerminatingNamespace,
    /// An admission webhook.
    Webhook,
    /// Somebody else, such as another admission plugin.
    Other,
}

impl ForbiddenBy {
    pub(super) fn of(status: &Status) -> Self {
        let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes);
        if causes.iter().any(|cause| cause.reason == "NamespaceTerminating") {
            return Self::TerminatingNamespace;
        }
        if is_of_webhook(status) {
            return Self::Webhook;
        }
        let says = |words: &str| status.message.contains(words);
        match WORDINGS.iter().find(|(words, _)| says(words)) {
            Some((_, by)) => *by,
            None if says("User \"") && says("\" cannot ") => Self::Rights,
            None => Self::Other,
        }
    }
}

/// Returns whether an admission webhook refused, as far as the server's words tell. Webhooks choose their codes.
pub(crate) fn is_of_webhook(status: &Status) -> bool {
    status.message.starts_with("admission webhook \"")
}

/// What servers say, and who says it. The first that fits counts.
const WORDINGS: [(&str, ForbiddenBy); 5] = [
    ("because it is being terminated", ForbiddenBy::TerminatingNamespace),
    ("exceeded quota: ", ForbiddenBy::Quota),
    ("failed quota: ", ForbiddenBy::Quota),
    ("attempting to grant RBAC permissions not currently held", ForbiddenBy::Escalation),
    ("cannot set blockOwnerDeletion", ForbiddenBy::OwnerProtection),
];

/// Reads after "forbidden": who refused, and what helps.
impl fmt::Display for ForbiddenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rights => "; a permission is missing: allow it in a Role or ClusterRole, and bind that",
            Self::Escalation => {
                "; it gives more than this user may do itself: allow this user to `bind` the role \
                 (`.uses::<ClusterRole>(Use::Bind)`), or, to write roles, to `escalate` (`Use::Escalate`), or what the role \
                 allows"
            }
            Self::OwnerProtection => {
                "; a permission is missing: allow `update` of the owner's finalizers (`<plural>/finalizers` in a Role or ClusterRole)"
            }
            Self::Quota => " by a quota; raise it, or remove some of what it counts",
            Self::TerminatingNamespace => "; its namespace is being deleted, and takes nothing new",
            Self::Webhook => " by an admission webhook",
            Self::Other => "",
        })
    }
}

/// When a server wants to be asked again: what a refusal that says so has in its chain.
///
/// At most five minutes after it was asked, whatever it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("to be tried again after {asked:?}")]
pub struct RetryAfter {
    asked: Duration,
    pub(super) until: Instant,
    /// Whether it was another request that was answered so, and this one was not sent.
    pub(crate) not_sent: bool,
}

impl RetryAfter {
    /// Reads the header, or the details of the status.
    pub(super) fn asked_by(headers: &HeaderMap, status: &Status) -> Option<Self> {
        let details = || {
            let seconds = status.details.as_ref()?.retry_after_seconds;
            Some(Duration::from_secs(u64::from(seconds)))
        };
        let asked = retry_after(headers).or_else(details).filter(|asked| !asked.is_zero())?.min(LONGEST);
        Some(Self { asked, until: Instant::now() + asked, not_sent: false })
    }

    pub(super) fn not_sent(self) -> Self {
        Self { not_sent: true, ..self }
    }

    /// Returns how long the server asked to be left alone, from its answer on.
    pub fn asked(&self) -> Duration {
        self.asked
    }

    /// Returns how much of that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// Says that a write was computed from an old version: what a [`WriteError::Conflict`](super::WriteError::Conflict) has
/// in its chain.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", said(message))]
pub struct Stale {
    message: String,
    status: Option<Box<Status>>,
}

impl Stale {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: None }
    }

    pub(super) fn said(status: Box<Status>) -> Self {
        Self { message: status.message.clone(), status: Some(status) }
    }

    /// Returns what the server said; `None` where watchkeeper found out itself.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_deref()
    }
}

/// Finds an error of a type among an error and its causes.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    fn details(retry_after_seconds: u32) -> StatusDetails {
        let (name, group, kind, uid) = Default::default();
        StatusDetails { name, group, kind, uid, causes: Vec::new(), retry_after_seconds }
    }

    fn says(message: &str) -> Status {
        Status { code: 403, reason: "Forbidden".into(), message: message.into(), ..Status::default() }
    }

    // W5 P21
    #[test]
    fn who_forbids_is_read_from_what_real_servers_say() {
        let rights = r#"configmaps is forbidden: User "viewer" cannot create resource "configmaps" in API group "" in the namespace "shop""#;
        let ended = r#"pods "a" is forbidden: unable to create new content in namespace shop because it is being terminated"#;
        let quota =
            r#"pods "a" is forbidden: exceeded quota: few, requested: pods=1, used: pods=5, limited: pods=5"#;
        let unsaid = r#"pods "a" is forbidden: failed quota: few: must specify limits.cpu for: web"#;
        let webhook =
            r#"admission webhook "guard.example.dev" denied the request: User "x" cannot have that"#;
        let owner = r#"pods "a" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>"#;
        let security = r#"pods "a" is forbidden: violates PodSecurity "restricted:latest": privileged"#;
        let grants = r#"rolebindings.rbac.authorization.k8s.io "a" is forbidden: user "op" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#;
        for (message, by) in [
            (rights, ForbiddenBy::Rights),
            (ended, ForbiddenBy::TerminatingNamespace),
            (quota, ForbiddenBy::Quota),
            (unsaid, ForbiddenBy::Quota),
            (webhook, ForbiddenBy::Webhook),
            (owner, ForbiddenBy::OwnerProtection),
            (security, ForbiddenBy::Other),
            (grants, ForbiddenBy::Escalation),
            ("", ForbiddenBy::Other),
        ] {
            assert_eq!(ForbiddenBy::of(&says(message)), by, "{message}");
            let advises_a_role = by.to_string().contains("Role");
            assert_eq!(
                advises_a_role,
                matches!(by, ForbiddenBy::Rights | ForbiddenBy::OwnerProtection | ForbiddenBy::Escalation),
                "{by:?}"
            );
        }
        let (message, field) = (String::new(), String::new());
        let cause = StatusCause { reason: "NamespaceTerminating".into(), message, field };
        let details = StatusDetails { causes: vec![cause], ..details(0) };
        let terminating = Status { details: Some(details), ..says("another wording") };
        assert_eq!(ForbiddenBy::of(&terminating), ForbiddenBy::TerminatingNamespace);
    }

    // W11
    #[tokio::test(start_paused = true)]
    async fn the_time_is_read_from_header_or_details_and_is_bounded() {
        let of = |header: Option<&'static str>, seconds: u32| {
            let mut headers = HeaderMap::new();
            headers.extend(header.map(|value| (header::RETRY_AFTER, HeaderValue::from_static(value))));
            let status = Status { details: Some(details(seconds)), ..Status::default() };
            let asked = RetryAfter::asked_by(&headers, &status);
            asked.map(|asked| asked.asked().as_secs())
        };
        assert_eq!(of(Some("7"), 2), Some(7));
        assert_eq!(of(None, 2), Some(2));
        assert_eq!(of(Some("soon"), 2), Some(2), "what can't be read is nothing");
        for none in
            [Some("0"), Some(""), Some("-1"), Some("1.5"), Some("Wed, 21 Oct 2015 07:28:00 GMT"), None]
        {
            assert_eq!(of(none, 0), None, "{none:?}");
        }
        for hostile in ["1000000000", "18446744073709551615", "99999999999999999999999999"] {
            assert_eq!(of(Some(hostile), 0), Some(300));
        }
        assert_eq!(of(None, u32::MAX), Some(300));
        assert_eq!(of(Some("Tue, 31 Dec 2999 23:59:59 GMT"), 0), Some(300), "a date");
    }
}

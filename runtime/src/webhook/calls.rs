//! When an API server calls a webhook, and what a failure of the call means.

use std::time::Duration;

use super::request::Operation;

/// What a failed call means: the webhook can't be reached, panics, or takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailurePolicy {
    /// The request is refused.
    #[default]
    Fail,
    /// The request is allowed, with a warning.
    Ignore,
}

impl FailurePolicy {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// When the API server calls a webhook, and what a failed call means; for [`Webhooks`](super::Webhooks).
///
/// Unless set: creations and updates are sent, and deletions to validators that ask for them; a call may take five
/// seconds; a failed call refuses the request. Updates of a subresource are not sent, unless [`status`](Calls::status) asks
/// for them.
///
/// ```
/// # use watchkeeper::webhook::Calls;
/// let calls = Calls::new().deletions().ignore_failures().only_if("not-a-test", "!request.name.startsWith('test-')");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "settings do nothing until a webhook has them"]
pub struct Calls {
    pub(super) operations: Vec<Operation>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) timeout: Duration,
    /// Names and CEL expressions.
    pub(super) conditions: Vec<(String, String)>,
    pub(super) reads_caches: bool,
    /// Whether updates of the status are sent as well.
    pub(super) status: bool,
}

impl Calls {
    /// Has creations and updates sent.
    #[expect(clippy::new_without_default, reason = "settings begin with a constructor everywhere")]
    pub fn new() -> Self {
        Self {
            operations: vec![Operation::Create, Operation::Update],
            failure_policy: FailurePolicy::Fail,
            timeout: Duration::from_secs(5),
            conditions: Vec::new(),
            reads_caches: true,
            status: false,
        }
    }

    /// Has deletions sent as well. A defaulter ignores this.
    pub fn deletions(mut self) -> Self {
        if !self.operations.contains(&Operation::Delete) {
            self.operations.push(Operation::Delete);
        }
        self
    }

    /// Has updates alone sent.
    pub fn only_updates(self) -> Self {
        Self { operations: vec![Operation::Update], ..self }
    }

    /// Has updates of the `status` subresource sent as well.
    ///
    /// [`Request::subresource`](super::Request::subresource) is `status` for them. Such a request can only change the status: the
    /// API server drops every other change of a defaulter. The program's own writes of a status are sent too.
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use watchkeeper::webhook::{Calls, Change, Review, Validator, Webhooks};
    /// struct NeverNegative;
    ///
    /// impl Validator<Deployment> for NeverNegative {
    ///     async fn validate(&self, change: Change<'_, Deployment>, review: &mut Review) {
    ///         let status = change.object().status.as_ref();
    ///         if review.request().subresource() == Some("status") && status.is_some_and(|s| s.replicas < Some(0)) {
    ///             review.field("status.replicas").invalid(-1, "must not be negative");
    ///         }
    ///     }
    /// }
    ///
    /// let webhooks = Webhooks::new(":9443").validates_with::<Deployment>(Calls::new().status(), NeverNegative);
    /// ```
    pub fn status(self) -> Self {
        Self { status: true, ..self }
    }

    /// Lets requests pass if the call fails.
    ///
    /// An object that the handler's type can't read is refused all the same, unless it is to be deleted.
    pub fn ignore_failures(self) -> Self {
        Self { failure_policy: FailurePolicy::Ignore, ..self }
    }

    /// Sets how long a call may take: whole seconds, from 1 to 30.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Duration::from_secs(timeout.as_secs().clamp(1, 30)), ..self }
    }

    /// Has only those requests sent for which a CEL expression is true. All expressions must be true.
    ///
    /// The expression can use `object`, `oldObject`, `request` and `authorizer`. For a deletion `object` is null, and for a
    /// creation `oldObject` is.
    pub fn only_if(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.conditions.push((name.into(), expression.into()));
        self
    }

    /// Answers before caches have synced: the handler does not read any.
    pub fn without_caches(self) -> Self {
        Self { reads_caches: false, ..self }
    }
}

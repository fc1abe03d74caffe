//! Installs the program's policies, and repairs them when they are edited.

use std::time::Duration;

use http::StatusCode;
use kube::core::Status;
use tokio::time::{sleep, timeout};

use super::objects::{OF_CONFIGURATIONS, RawObjects, WAITS};
use crate::{error::Error, manager::Stopping, plain::said, webhook::GeneratedPolicy};

/// How often the policies are applied again; an apply that changes nothing writes nothing.
const REPAIR_EVERY: Duration = Duration::from_secs(30);
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Keeps the policies of the program as they should be, while the replica leads.
#[derive(Clone)]
pub(super) struct PolicyKeeper {
    pub(super) objects: RawObjects,
    pub(super) policies: Vec<GeneratedPolicy>,
}

impl PolicyKeeper {
    /// Installs and repairs, until the manager stops.
    ///
    /// # Errors
    /// The server does not serve a policy, or refuses it.
    pub(super) async fn run(self, stopping: Stopping) -> Result<(), Error> {
        tokio::select! {
            () = stopping.wait() => Ok(()),
            kept = self.keep() => kept,
        }
    }

    async fn keep(&self) -> Result<(), Error> {
        loop {
            for policy in &self.policies {
                self.apply(policy).await?;
            }
            sleep(REPAIR_EVERY).await;
        }
    }

    /// Applies one object, until that succeeds.
    async fn apply(&self, policy: &GeneratedPolicy) -> Result<(), Error> {
        let (path, object) = (policy.path(), policy.object());
        if let Some(why) = policy.fault() {
            let status = Status {
                code: 422,
                reason: "Invalid".to_owned(),
                message: why.to_owned(),
                ..Status::default()
            };
            return Err(refused(policy, why.to_owned(), Box::new(status)));
        }
        let [mut wait, longest] = WAITS;
        loop {
            let applied = timeout(DEADLINE, self.objects.apply(&path, &object, OF_CONFIGURATIONS)).await;
            let why = match applied {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => "somebody else writes it as well".to_owned(),
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                    return Err(refused(policy, policy.remedy(), status));
                }
                Ok(Err(kube::Error::Api(status))) if is_wrong(&status) => {
                    let why = format!("the server refuses it: {}", said(&status.message));
                    return Err(refused(policy, why, status));
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {DEADLINE:?}"),
            };
            if wait == longest {
                let (kind, name) = (policy.kind(), &policy.name);
                tracing::warn!(why, "{kind} {name} can't be applied; trying again");
            }
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }
}

/// Returns whether a policy itself is wrong, so that trying again does not help.
fn is_wrong(status: &Status) -> bool {
    // While the CRD of the parameters is not established, the server demands the permission for all kinds.
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let lacks_permission = causes.into_iter().any(|cause| {
        cause.reason == "FieldValueForbidden" && matches!(&*cause.field, "spec.paramKind" | "spec.paramRef")
    });
    let is_refused = matches!(
        StatusCode::from_u16(status.code),
        Ok(StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY)
    );
    is_refused && !lacks_permission
}

fn refused(policy: &GeneratedPolicy, why: String, status: Box<Status>) -> Error {
    Error::Policy { kind: policy.kind().to_owned(), name: policy.name.clone(), why, status }
}

//! The webhooks of the operator under trial, and what can go wrong with them.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt as _;
use watchkeeper_apiserver::WebhookService;

use crate::harness::Harness;
use crate::life::Life;
use crate::trouble::{SLOW, WebhookTrouble};

/// Where an operator under trial serves its webhooks; each life of it has its own.
#[derive(Clone)]
pub struct Webhooks {
    harness: Harness,
    life: Life,
}

impl fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhooks").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Webhooks {
    pub(crate) fn new(harness: &Harness, life: Life) -> Self {
        Self { harness: harness.clone(), life }
    }

    /// Has the server call these webhooks, in the process, until this life of the operator ends.
    ///
    /// The operator installs the configurations that say when they are called.
    pub fn serve(&self, program: impl Into<WebhookService>) {
        let (this, program) = (self.clone(), program.into());
        let answers = tower::service_fn(move |request: Request<Bytes>| {
            let (this, program) = (this.clone(), program.clone());
            async move { Ok::<_, Infallible>(this.answer(program, request).await) }
        });
        self.harness.server.webhooks(WebhookService::new(answers));
    }

    /// Answers a call, under the trouble that webhooks are in.
    async fn answer(&self, program: WebhookService, request: Request<Bytes>) -> Response<Bytes> {
        self.harness.state().webhook_calls += 1;
        match self.harness.trouble_of_webhooks() {
            _ if self.harness.is_dead(self.life) => return gone(),
            Some(WebhookTrouble::Down) => return gone(),
            Some(WebhookTrouble::Refuse) => return refusal(request.body()),
            Some(WebhookTrouble::Slow) => sleep(SLOW).await,
            None => {}
        }
        program.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// The answer of a webhook that nobody serves.
fn gone() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(b"nobody serves this webhook"));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

/// Refuses what a review asks about; one of a conversion fails.
fn refusal(body: &[u8]) -> Response<Bytes> {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let why = "a trial has the webhook refuse this";
    let (uid, status) =
        (&review["request"]["uid"], json!({"code": 403, "reason": "Forbidden", "message": why}));
    let response = match review["kind"] == "ConversionReview" {
        true => json!({"uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": why}}),
        false => json!({"uid": uid, "allowed": false, "status": status}),
    };
    let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    Response::new(Bytes::from(answer.to_string()))
}

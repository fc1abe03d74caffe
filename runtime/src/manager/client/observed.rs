//! Looks at all requests of a manager: counts them, logs what the server warns of, and keeps a dry run's from writing; records them.

use std::sync::Arc;

use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either};
use kube::{Client, client::Body};
use tower::BoxError;

use super::{direct, warnings::Warnings};
use crate::{
    flight_recorder::{RecordingSlot, sent},
    manager::dry_run::DryRun,
    metrics::{Metrics, RequestMetrics},
};

/// Makes a client of the manager's own cluster or another one, whose requests are looked at; a dry run holds for all its clones, whenever they were made.
///
/// # Panics
/// Outside a tokio runtime, as every client that is made.
pub(in crate::manager) fn observed(
    client: Client,
    metrics: &Metrics,
    dry_run: &Arc<DryRun>,
    recorder: &RecordingSlot,
    is_own: bool,
) -> Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let observer = Arc::new(RequestObserver {
        requests: metrics.shared.requests.clone(),
        warnings: Warnings::default(),
        dry_run: dry_run.clone(),
        recorder: recorder.clone(),
    });
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, observer) = (client.clone(), observer.clone());
        async move {
            let send = |request| observer.send(&client, request).boxed();
            let (request, recorded) = match observer.recorder.get() {
                None => (request, None),
                Some(recorder) => {
                    let (request, recorded) = sent(recorder, request, is_own).await.map_err(unwrapped)?;
                    (request, Some(recorded))
                }
            };
            let answer = observer.dry_run.send(&send, request).await.map_err(unwrapped)?;
            let answer = match recorded {
                None => answer.map(Either::Left),
                Some(recorded) => recorded.answered(answer),
            };
            Ok::<_, BoxError>(answer.map(|body| match body {
                Either::Left(body) => Either::Left(body.map_err(unwrapped)),
                Either::Right(body) => Either::Right(body.map_err(unwrapped)),
            }))
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// Takes off what a client puts around the errors of its layers: the client outside does it again.
fn unwrapped(error: kube::Error) -> BoxError {
    match error {
        kube::Error::Service(error) => error,
        error => error.into(),
    }
}

struct RequestObserver {
    requests: RequestMetrics,
    warnings: Warnings,
    dry_run: Arc<DryRun>,
    recorder: RecordingSlot,
}

impl RequestObserver {
    async fn send(&self, client: &Client, request: Request<Body>) -> kube::Result<Response<Body>> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut count = Count { observer: self, method: method.clone(), host: None, code: None };
        let answer = client.send(request).await;
        count.host = match &answer {
            Ok(answer) => direct::host_of_answer(answer),
            Err(error) => direct::host_of_error(error),
        };
        if let Ok(answer) = &answer {
            count.code = Some(answer.status());
            self.warnings.log(answer.headers(), &method, &uri);
        }
        answer
    }
}

/// Counts a request when it ends, also one that nobody waits for any more.
struct Count<'a> {
    observer: &'a RequestObserver,
    method: Method,
    host: Option<Arc<str>>,
    code: Option<StatusCode>,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.observer.requests.ended(&self.method, self.host.take(), self.code);
    }
}

//! The body of an answer, as one life of the operator reads it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::Value;
use tokio::time::Instant;
use watchkeeper_apiserver::inside::{AnswerBody, Interrupted, object};

use crate::harness::Harness;
use crate::life::Life;
use crate::timeline::Actor;
use crate::world::seen_as;

/// The reader of a watch.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) harness: Harness,
    pub(crate) life: Life,
    pub(crate) of: String,
}

impl Heard {
    fn note(&self, bytes: &Bytes) {
        if !self.harness.state().tell {
            return;
        }
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
            let (kind, item) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            if kind == "BOOKMARK" {
                continue;
            }
            let key = object::key(object::namespace(item), object::name(item));
            let version = object::text(item, "resourceVersion");
            self.harness.tell(Actor::Watch, || format!("{kind} {} {key}, version {version}", self.of));
            if let Some((key, version)) = seen_as(&self.of, item) {
                self.harness.state().seen.insert(key, (version, Instant::now()));
            }
        }
    }
}

/// An answer's body; one that a dead operator reads never goes on.
pub(crate) struct HarnessBody {
    pub(crate) body: AnswerBody,
    pub(crate) heard: Option<Heard>,
}

impl fmt::Debug for HarnessBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessBody").finish_non_exhaustive()
    }
}

impl HarnessBody {
    pub(crate) fn whole(body: AnswerBody) -> Self {
        Self { body, heard: None }
    }
}

impl Body for HarnessBody {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        if self.heard.as_ref().is_some_and(|heard| heard.harness.is_dead(heard.life)) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(heard), Some(Ok(frame))) = (&self.heard, &frame)
            && let Some(bytes) = frame.data_ref()
        {
            heard.note(bytes);
        }
        Poll::Ready(frame)
    }
}

//! A client whose writes and watches a test holds back, and one that shows the past.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{Instant, sleep_until},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Passed = UnsyncBoxBody<Bytes, BoxError>;

/// What a test decides about the traffic of one client.
///
/// Events pass unless they are held. A write passes unless one was asked to wait: that one waits at the server's
/// door until it may go in, and its reply waits until it may come back.
#[derive(Debug)]
pub struct Gates {
    events: watch::Sender<Events>,
    /// How many writes are yet to be held.
    to_hold: AtomicUsize,
    door: Semaphore,
    reply: Semaphore,
}

/// What happens to watch events; the number counts the cuts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Events {
    held: bool,
    cuts: usize,
}

impl Gates {
    /// Puts gates before a client; all are open.
    pub fn before(client: kube::Client) -> (Arc<Self>, kube::Client) {
        let gates = Arc::new(Self {
            events: watch::Sender::default(),
            to_hold: AtomicUsize::new(0),
            door: Semaphore::new(0),
            reply: Semaphore::new(0),
        });
        let namespace = client.default_namespace().to_owned();
        let kept = gates.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, gates) = (client.clone(), gates.clone());
            async move { gates.pass(client, request).await }
        });
        (kept, kube::Client::new(service, namespace))
    }

    async fn pass(&self, client: kube::Client, request: Request<Body>) -> Result<Response<Passed>, BoxError> {
        if is_watch(&request) {
            let answer = client.send(request).await?;
            let events = self.events.subscribe();
            return Ok(answer.map(|body| gated(body, events)));
        }
        let held = request.method() != Method::GET
            && self.to_hold.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if !held {
            return Ok(client.send(request).await?.map(whole));
        }
        self.door.acquire().await?.forget();
        let answer = client.send(request).await;
        self.reply.acquire().await?.forget();
        Ok(answer?.map(whole))
    }

    /// Lets watch events pass, those that were held first.
    pub fn let_events_pass(&self) {
        self.events.send_modify(|events| events.held = false);
    }

    /// Holds watch events back.
    pub fn hold_events(&self) {
        self.events.send_modify(|events| events.held = true);
    }

    /// Breaks all watches that are open; events that were held in them are lost.
    pub fn cut_watches(&self) {
        self.events.send_modify(|events| events.cuts += 1);
    }

    /// Holds the next write at the server's door.
    pub fn hold_a_write(&self) {
        self.to_hold.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets the held write in.
    pub fn let_write_in(&self) {
        self.door.add_permits(1);
    }

    /// Lets its reply out.
    pub fn let_reply_out(&self) {
        self.reply.add_permits(1);
    }

    /// Lets writes pass, one that is held included.
    pub fn let_writes_pass(&self) {
        self.to_hold.store(0, Ordering::SeqCst);
        self.let_write_in();
        self.let_reply_out();
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"))
}

fn whole(body: Body) -> Passed {
    body.map_err(BoxError::from).boxed_unsync()
}

fn wrapped(frames: impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static) -> Passed {
    StreamBody::new(frames).boxed_unsync()
}

/// Passes frames while events may pass; ends with an error at a cut.
fn gated(body: Body, events: watch::Receiver<Events>) -> Passed {
    let cuts = events.borrow().cuts;
    let frames = BodyStream::new(body);
    wrapped(stream::unfold(Some((frames, events)), move |open| async move {
        let (mut frames, mut events) = open?;
        let cut = |events: &Events| events.cuts > cuts;
        let mut watching = events.clone();
        let next = async {
            let frame = frames.next().await?;
            let _ = events.wait_for(|events| !events.held).await;
            Some(frame.map_err(BoxError::from))
        };
        let frame = tokio::select! {
            biased;
            _ = watching.wait_for(cut) => return Some((Err("the test cut the watch".into()), None)),
            frame = next => frame?,
        };
        Some((frame, Some((frames, events))))
    }))
}

/// Shows every watch event this much later than the server tells it.
pub fn lagging(client: kube::Client, lag: Duration) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let late = is_watch(&request);
            let answer = client.send(request).await?;
            Ok::<_, kube::Error>(answer.map(|body| if late { delayed(body, lag) } else { whole(body) }))
        }
    });
    kube::Client::new(service, namespace)
}

fn delayed(body: Body, lag: Duration) -> Passed {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut frames = BodyStream::new(body);
        let mut pump = async || -> Option<Infallible> {
            loop {
                let frame = frames.next().await?;
                sender.send((Instant::now() + lag, frame)).ok()?;
            }
        };
        tokio::select! {
            _ = pump() => {}
            () = sender.closed() => {}
        }
    });
    wrapped(stream::unfold(receiver, |mut receiver| async move {
        let (due, frame) = receiver.recv().await?;
        sleep_until(due).await;
        Some((frame.map_err(BoxError::from), receiver))
    }))
}

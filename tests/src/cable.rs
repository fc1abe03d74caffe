//! A replica's connection to its server, which a test cuts: both ways, or one.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyStream, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use tokio::sync::watch;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a connection lets through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// Everything.
    #[default]
    Both,
    /// Requests reach the server, and nothing comes back: it does what they ask.
    RequestsAlone,
    /// Requests get lost; what the server had to say comes through.
    RepliesAlone,
    /// Nothing.
    Nothing,
}

impl Passes {
    /// Returns whether requests reach the server.
    pub fn requests(self) -> bool {
        matches!(self, Self::Both | Self::RequestsAlone)
    }

    /// Returns whether answers come back.
    pub fn replies(self) -> bool {
        matches!(self, Self::Both | Self::RepliesAlone)
    }
}

/// The connection of one client. It drops bytes silently.
#[derive(Clone, Debug)]
pub struct Cable {
    passes: Arc<watch::Sender<Passes>>,
}

impl Cable {
    /// Puts a cable between a client and its server; everything passes.
    pub fn of(client: kube::Client) -> (Self, kube::Client) {
        let cable = Self { passes: Arc::default() };
        let (namespace, own) = (client.default_namespace().to_owned(), cable.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, cable) = (client.clone(), own.clone());
            async move { cable.carry(client, request).await }
        });
        (cable, kube::Client::new(service, namespace))
    }

    /// Lets through what is said from now on; streams that are open stay silent meanwhile.
    pub fn set(&self, passes: Passes) {
        self.passes.send_replace(passes);
    }

    async fn carry(
        self,
        client: kube::Client,
        request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        if !self.passes.borrow().requests() {
            return std::future::pending().await;
        }
        let answer = client.send(request).await;
        if !self.passes.borrow().replies() {
            return std::future::pending().await;
        }
        Ok(answer?.map(|body| silenced(body, self.passes.subscribe())))
    }
}

/// Passes frames while replies pass, and keeps those that come meanwhile.
fn silenced(body: Body, passes: watch::Receiver<Passes>) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = stream::unfold((BodyStream::new(body), passes), |(mut frames, mut passes)| async move {
        let frame: Result<Frame<Bytes>, BoxError> = frames.next().await?.map_err(BoxError::from);
        let _ = passes.wait_for(|passes| passes.replies()).await;
        Some((frame, (frames, passes)))
    });
    UnsyncBoxBody::new(StreamBody::new(frames))
}

//! Connections, whatever they go through.

use std::{
    io::{Error, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to the server that a URL names.
pub(super) type Connector = BoxCloneSyncService<Uri, Io, BoxError>;

/// Forgets what a connector goes through.
pub(super) fn connector<C>(connects: C) -> Connector
where
    C: Service<Uri, Response: Stream, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(connects.map_response(|stream| Io(Box::new(stream))).map_err(Into::into))
}

/// Bounds what connections are made of.
pub(super) trait Stream: Read + Write + Connection + Send + Unpin + 'static {}

impl<S: Read + Write + Connection + Send + Unpin + 'static> Stream for S {}

/// A connection over TCP, TLS, a proxy, or several of these.
pub(super) struct Io(Box<dyn Stream>);

impl Io {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut dyn Stream> {
        Pin::new(&mut *self.get_mut().0)
    }
}

impl Read for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        self.inner().poll_read(cx, buf)
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        self.inner().poll_write_vectored(cx, slices)
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

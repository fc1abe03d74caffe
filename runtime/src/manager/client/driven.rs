//! A body that reads its own connection, in the task that reads the body.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use futures::task::AtomicWaker;
use http_body::{Body, Frame};
use hyper::{
    body::Incoming,
    client::conn::http1::Connection,
    rt::{Read, Write},
};

/// How often a body that wakes itself is polled again before other tasks have their turn.
const POLLS_IN_A_ROW: usize = 4;

/// The body of an answer, and the connection that brings it.
///
/// The task that polls the body also reads the connection. Dropping the body closes the connection.
pub(super) struct Driven<S: Read + Write> {
    body: Incoming,
    /// None once it has ended.
    connection: Option<Connection<S, kube::client::Body>>,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl<S: Read + Write> Driven<S> {
    pub(super) fn new(body: Incoming, connection: Option<Connection<S, kube::client::Body>>) -> Self {
        let alarm = Arc::new(Alarm::default());
        let waker = Waker::from(alarm.clone());
        Self { body, connection, alarm, waker }
    }
}

impl<S: Read + Write + Unpin + Send + 'static> Driven<S> {
    /// Reads what there is: the body first, then the connection, then what that brought.
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let ended = match &mut self.connection {
            Some(connection) => Pin::new(connection).poll(cx),
            None => return Poll::Pending,
        };
        if let Poll::Ready(end) = ended {
            self.connection = None;
            if let Err(error) = end {
                // The body may tell of the same failure; what came before it is read first.
                return match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(frame) => Poll::Ready(frame),
                    Poll::Pending => Poll::Ready(Some(Err(error))),
                };
            }
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

impl<S: Read + Write + Unpin + Send + 'static> Body for Driven<S> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        this.alarm.outer.register(cx.waker());
        let waker = this.waker.clone();
        let mut inner = Context::from_waker(&waker);
        for _ in 0..POLLS_IN_A_ROW {
            this.alarm.state.store(POLLING, Ordering::SeqCst);
            let polled = this.advance(&mut inner);
            let rang = this.alarm.state.swap(RESTING, Ordering::SeqCst) == RANG;
            if polled.is_ready() || !rang {
                return polled;
            }
        }
        // The task has used up its share: other tasks run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes the task that reads, unless it is reading just now: then it only says so.
///
/// Body and connection wake each other while they are polled; a task that wakes itself is scheduled again, at
/// the price of a system call an event.
#[derive(Debug, Default)]
struct Alarm {
    outer: AtomicWaker,
    state: AtomicU8,
}

const RESTING: u8 = 0;
const POLLING: u8 = 1;
const RANG: u8 = 2;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let polling = self.state.compare_exchange(POLLING, RANG, Ordering::SeqCst, Ordering::SeqCst);
        if polling == Err(RESTING) {
            self.outer.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(AtomicU8);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn an_alarm_wakes_the_task_only_while_it_does_not_read() {
        let (alarm, count) = (Arc::new(Alarm::default()), Arc::new(Count::default()));
        alarm.outer.register(&Waker::from(count.clone()));
        alarm.state.store(POLLING, Ordering::SeqCst);
        alarm.wake_by_ref();
        alarm.wake_by_ref();
        let state = alarm.state.swap(RESTING, Ordering::SeqCst);
        assert_eq!(state, RANG, "what rang while reading is read at once");
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        alarm.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}

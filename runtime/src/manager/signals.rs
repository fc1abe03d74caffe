//! What stops a process: SIGINT and SIGTERM, and their like on Windows.
//!
//! They are waited for on a thread of their own. The second one ends the process, whatever the program's own threads do,
//! and also once the manager has stopped: neither what still runs then nor a `main` that does not return prevents it.

use std::{future::pending, io, mem, sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use tokio::{runtime::Builder, sync::watch, time::sleep};

use crate::error::Error;

/// How long a process may take to end by itself once a second signal came.
const FAREWELL: Duration = Duration::from_secs(1);

/// A signal, and the code with which it ends a process: as shells have it, 128 and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) name: &'static str,
    code: i32,
}

type Came = watch::Sender<CameSignals>;

/// The signals that came, and how many of them a manager has taken.
#[derive(Default)]
struct CameSignals {
    all: Vec<Signal>,
    taken: usize,
}

/// Signals are the process's, whatever number of managers it runs.
static LISTENER: Mutex<Option<Arc<Came>>> = Mutex::new(None);

/// The signals that came since this is listened to, and those that no manager has taken.
pub(super) struct Signals {
    came: Arc<Came>,
    next: watch::Receiver<CameSignals>,
}

impl Signals {
    /// Listens from now on, for as long as the process lives.
    pub(super) fn listen() -> Result<Self, Error> {
        let mut listener = LISTENER.lock();
        let came = match &*listener {
            Some(came) => came.clone(),
            None => listener.insert(begin().map_err(Error::Signals)?).clone(),
        };
        Ok(Self::of(came))
    }

    fn of(came: Arc<Came>) -> Self {
        if came.receiver_count() == 0 {
            // They stopped an earlier manager. One that came after its end is for the next.
            came.send_modify(|came| drop(came.all.drain(..mem::take(&mut came.taken))));
        }
        Self { next: came.subscribe(), came }
    }

    /// Waits for the `n`-th signal and returns it.
    pub(super) async fn nth(&mut self, count: usize) -> Signal {
        let came = self.next.wait_for(|came| came.all.len() >= count).await;
        match came.ok().and_then(|came| came.all.get(count - 1).copied()) {
            Some(signal) => {
                self.came.send_if_modified(|came| {
                    came.taken = came.taken.max(count);
                    false
                });
                signal
            }
            None => pending().await,
        }
    }
}

/// Starts the thread that listens; with a runtime of its own, since the program's may be blocked.
fn begin() -> io::Result<Arc<Came>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let signals = {
        let _entered = runtime.enter();
        listen()
    };
    let next = match signals {
        Ok(next) => next,
        Err(error) => {
            // Otherwise it would wait for its threads, which the caller's runtime does not allow.
            runtime.shutdown_background();
            return Err(error);
        }
    };
    let came = Arc::new(Came::default());
    let noted = came.clone();
    let run = move || std::process::exit(runtime.block_on(until_the_end(next, &noted)));
    thread::Builder::new().name("watchkeeper-signals".to_owned()).spawn(run)?;
    Ok(came)
}

/// Notes signals until the process is to end, and returns with which code.
async fn until_the_end(mut next: impl AsyncFnMut() -> Signal, came: &Came) -> i32 {
    loop {
        let signal = next().await;
        let is_the_end = |came: &CameSignals| came.all.len() >= 2;
        came.send_modify(|came| came.all.push(signal));
        if is_the_end(&came.borrow()) {
            sleep(FAREWELL).await;
        }
        if is_the_end(&came.borrow()) {
            return signal.code;
        }
    }
}

/// Listens to what stops a process.
#[cfg(unix)]
fn listen() -> io::Result<impl AsyncFnMut() -> Signal + Send> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move || {
        tokio::select! {
            _ = interrupt.recv() => Signal { name: "SIGINT", code: 130 },
            _ = terminate.recv() => Signal { name: "SIGTERM", code: 143 },
        }
    })
}

/// Listens to what stops a process.
#[cfg(windows)]
fn listen() -> io::Result<impl AsyncFnMut() -> Signal + Send> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    let (mut interrupt, mut break_off) = (ctrl_c()?, ctrl_break()?);
    let (mut close, mut shutdown) = (ctrl_close()?, ctrl_shutdown()?);
    Ok(async move || {
        tokio::select! {
            _ = interrupt.recv() => Signal { name: "CTRL-C", code: 130 },
            _ = break_off.recv() => Signal { name: "CTRL-BREAK", code: 130 },
            _ = close.recv() => Signal { name: "CTRL-CLOSE", code: 143 },
            _ = shutdown.recv() => Signal { name: "CTRL-SHUTDOWN", code: 143 },
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc::unbounded_channel, time::Instant};

    use super::*;

    const TERM: Signal = Signal { name: "SIGTERM", code: 143 };
    const INT: Signal = Signal { name: "SIGINT", code: 130 };

    // P15
    #[tokio::test(start_paused = true)]
    async fn the_second_signal_ends_the_process_although_nobody_waits_for_it_any_more() {
        let (send, mut sent) = unbounded_channel();
        let came = Arc::new(Came::default());
        let mut signals = Signals::of(came.clone());
        let end = until_the_end(async || sent.recv().await.unwrap(), &came);
        let sender = async {
            send.send(TERM).unwrap();
            assert_eq!(signals.nth(1).await, TERM);
            // The manager has stopped, and its process goes on.
            drop(signals);
            sleep(Duration::from_secs(3_600)).await;
            send.send(INT).unwrap();
            Instant::now()
        };
        let (code, second) = tokio::join!(end, sender);
        assert_eq!(
            (code, second.elapsed()),
            (130, FAREWELL),
            "one signal does not end it, the second one does"
        );
    }

    // P15
    #[tokio::test]
    async fn a_signal_between_two_managers_stops_the_second_one() {
        let came = Arc::new(Came::default());
        let mut first = Signals::of(came.clone());
        came.send_modify(|came| came.all.push(INT));
        assert_eq!(first.nth(1).await, INT);
        drop(first);
        let second = Signals::of(came.clone());
        assert!(came.borrow().all.is_empty(), "that one stopped the first");
        drop(second);
        came.send_modify(|came| came.all.push(TERM));
        assert_eq!(Signals::of(came).nth(1).await, TERM);
    }
}

//! What stops a process: SIGINT and SIGTERM, and their like on Windows.
//!
//! They are waited for on a thread of their own. The second one ends the process, whatever the program's own threads do,
//! and also once the manager has stopped: neither what still runs then nor a `main` that does not return prevents it.

use std::{
    future::pending,
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

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

type Came = watch::Sender<Vec<Signal>>;

/// Signals are the process's, whatever number of managers it runs.
static LISTENER: Mutex<Option<Arc<Came>>> = Mutex::new(None);

/// The signals that came since this is listened to.
pub(super) struct Signals {
    came: watch::Receiver<Vec<Signal>>,
}

impl Signals {
    /// Listens from now on, for as long as the process lives.
    pub(super) fn listen() -> Result<Self, Error> {
        let mut listener = LISTENER.lock();
        let came = match &*listener {
            Some(came) => came.clone(),
            None => listener.insert(begin().map_err(Error::Signals)?).clone(),
        };
        if came.receiver_count() == 0 {
            // Those that came stopped an earlier manager.
            came.send_replace(Vec::new());
        }
        Ok(Self { came: came.subscribe() })
    }

    /// Waits for the `n`-th signal and returns it.
    pub(super) async fn nth(&mut self, count: usize) -> Signal {
        let came = self.came.wait_for(|came| came.len() >= count).await;
        let last = came.ok().and_then(|came| came.get(count - 1).copied());
        match last {
            Some(signal) => signal,
            None => pending().await,
        }
    }
}

/// Starts the thread that listens; a runtime of its own, since the program's may be blocked.
fn begin() -> io::Result<Arc<Came>> {
    let (came, (ready, begun)) = (Arc::new(watch::Sender::new(Vec::new())), mpsc::sync_channel(1));
    let noted = came.clone();
    let listen = move || {
        let listened = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let signals = runtime.block_on(async { system::Signals::listen() })?;
            Ok((runtime, signals))
        });
        match listened {
            Ok((runtime, mut signals)) => {
                let _ = ready.send(Ok(()));
                let next = async || {
                    let (name, code) = signals.next().await;
                    Signal { name, code }
                };
                std::process::exit(runtime.block_on(until_the_end(next, &noted)));
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    thread::Builder::new().name("watchkeeper-signals".to_owned()).spawn(listen)?;
    begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
    Ok(came)
}

/// Notes signals until the process is to end, and returns with which code.
async fn until_the_end(mut next: impl AsyncFnMut() -> Signal, came: &Came) -> i32 {
    loop {
        let signal = next().await;
        let is_the_end = |came: &Vec<Signal>| came.len() >= 2;
        came.send_modify(|came| came.push(signal));
        if is_the_end(&came.borrow()) {
            sleep(FAREWELL).await;
        }
        if is_the_end(&came.borrow()) {
            return signal.code;
        }
    }
}

#[cfg(unix)]
mod system {
    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    pub(super) struct Signals {
        interrupt: Signal,
        terminate: Signal,
    }

    impl Signals {
        pub(super) fn listen() -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }

        /// Waits for the next signal: its name, and the code with which it ends a process.
        pub(super) async fn next(&mut self) -> (&'static str, i32) {
            tokio::select! {
                _ = self.interrupt.recv() => ("SIGINT", 130),
                _ = self.terminate.recv() => ("SIGTERM", 143),
            }
        }
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use tokio::signal::windows::{
        CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
    };

    pub(super) struct Signals {
        interrupt: CtrlC,
        break_off: CtrlBreak,
        close: CtrlClose,
        shutdown: CtrlShutdown,
    }

    impl Signals {
        pub(super) fn listen() -> io::Result<Self> {
            Ok(Self {
                interrupt: ctrl_c()?,
                break_off: ctrl_break()?,
                close: ctrl_close()?,
                shutdown: ctrl_shutdown()?,
            })
        }

        /// Waits for the next signal: its name, and the code with which it ends a process.
        pub(super) async fn next(&mut self) -> (&'static str, i32) {
            tokio::select! {
                _ = self.interrupt.recv() => ("CTRL-C", 130),
                _ = self.break_off.recv() => ("CTRL-BREAK", 130),
                _ = self.close.recv() => ("CTRL-CLOSE", 143),
                _ = self.shutdown.recv() => ("CTRL-SHUTDOWN", 143),
            }
        }
    }
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
        let mut signals = Signals { came: came.subscribe() };
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
}

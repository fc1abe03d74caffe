//! SIGINT and SIGTERM, as something to wait for.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// The signals that stop a process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

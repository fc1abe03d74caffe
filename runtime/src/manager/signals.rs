//! What stops a process, as something to wait for: SIGINT and SIGTERM, and their like on Windows.

use crate::error::Error;

/// The signals that stop a process.
pub(super) struct Signals {
    system: system::Signals,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Error> {
        Ok(Self { system: system::Signals::listen().map_err(Error::Signals)? })
    }

    /// Waits for the next signal, and names it.
    pub(super) async fn next(&mut self) -> &'static str {
        self.system.next().await
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

        pub(super) async fn next(&mut self) -> &'static str {
            tokio::select! {
                _ = self.interrupt.recv() => "SIGINT",
                _ = self.terminate.recv() => "SIGTERM",
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

        pub(super) async fn next(&mut self) -> &'static str {
            tokio::select! {
                _ = self.interrupt.recv() => "CTRL-C",
                _ = self.break_off.recv() => "CTRL-BREAK",
                _ = self.close.recv() => "CTRL-CLOSE",
                _ = self.shutdown.recv() => "CTRL-SHUTDOWN",
            }
        }
    }
}

//! Records what one thread logs, whatever other threads do.

use tracing::{Dispatch, subscriber};

/// Hears its thread until it is dropped.
#[derive(Debug)]
#[must_use = "it hears until it is dropped"]
pub struct Hearing {
    _thread: subscriber::DefaultGuard,
    _second: Dispatch,
}

/// Lets a subscriber hear what this thread logs.
///
/// As long as `tracing` knows of one subscriber only, it asks that of the thread which meets a callsite first whether
/// anybody cares, and keeps the answer for all. Tests run side by side, and most hear nothing: their answer is never.
/// With a second subscriber it asks all.
pub fn hear(subscriber: impl Into<Dispatch>) -> Hearing {
    let second = Dispatch::new(subscriber::NoSubscriber::default());
    Hearing { _thread: tracing::dispatcher::set_default(&subscriber.into()), _second: second }
}

/// Has a program log to the standard error, filtered by `RUST_LOG`.
pub fn log_to_stderr() {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}

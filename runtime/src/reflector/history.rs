//! Lets the reflectors of one server know that it lost its history.

use std::sync::Arc;

use tokio::sync::watch;

/// Passes on that a server lost its history; clones are one.
///
/// A server that was restored to an older state is told by its version, which is lower than before. Writes raise it
/// again, and where they are fast, only the reflector that asked first could tell. So it tells the others.
#[derive(Clone, Debug, Default)]
pub struct History {
    losses: Arc<watch::Sender<u64>>,
}

impl History {
    /// Hears of losses from now on.
    pub(super) fn follow(&self) -> Losses {
        Losses { history: self.clone(), heard: self.losses.subscribe() }
    }
}

/// What one reflector has heard of losses.
#[derive(Debug)]
pub(super) struct Losses {
    history: History,
    heard: watch::Receiver<u64>,
}

impl Losses {
    /// Tells the others of a loss, unless one of them was first.
    pub(super) fn found(&mut self) {
        if !self.take() {
            self.history.losses.send_modify(|losses| *losses += 1);
            self.take();
        }
    }

    /// Says whether there was news of a loss, and takes it.
    pub(super) fn take(&mut self) -> bool {
        let news = self.heard.has_changed().unwrap_or_default();
        self.heard.mark_unchanged();
        news
    }

    /// Waits for news of a loss, and takes it.
    pub(super) async fn news(&mut self) {
        self.heard.changed().await.expect("the sender is held here");
    }
}

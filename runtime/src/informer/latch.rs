//! A latch: set once, for good, and awaited by any number.

use tokio_util::sync::CancellationToken;

/// Starts unset; once set it stays so.
#[derive(Clone, Debug, Default)]
pub(super) struct Latch(CancellationToken);

impl Latch {
    pub(super) fn set(&self) {
        self.0.cancel();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) async fn wait(&self) {
        self.0.cancelled().await;
    }
}

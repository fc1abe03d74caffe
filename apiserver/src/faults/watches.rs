//! Watches of one resource, stopped and stepped by hand.

use super::registry::Faults;

/// The watches of one resource, `"*"` all: those open and those to come.
///
/// A held stream sends nothing, not even bookmarks; what it holds back is sent later.
#[derive(Clone, Debug)]
pub struct Watches {
    faults: Faults,
    resource: String,
}

impl Faults {
    /// Returns the handle by which the watches of one resource, by its plural, are stopped and stepped.
    #[must_use]
    pub fn watches(&self, resource: &str) -> Watches {
        Watches::new(self.clone(), resource)
    }
}

impl Watches {
    fn new(faults: Faults, resource: &str) -> Self {
        Self { faults, resource: resource.to_owned() }
    }

    /// Returns the number of streams that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.faults.taps(&self.resource).len()
    }

    /// Returns the number of events that have passed on the streams that are open now; bookmarks don't count.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.faults.taps(&self.resource).iter().map(|tap| tap.events()).sum()
    }

    /// Holds everything back from now on.
    pub fn hold(&self) {
        self.faults.set_credit(&self.resource, |_| Some(0));
    }

    /// Lets `n` more events pass on each held stream, then holds it again.
    pub fn release(&self, n: u32) {
        self.faults.set_credit(&self.resource, |credit| credit.map(|credit| credit.saturating_add(n)));
    }

    /// Releases everything.
    pub fn resume(&self) {
        self.faults.set_credit(&self.resource, |_| None);
    }

    /// Waits until at least `n` streams are open.
    pub async fn wait_for(&self, n: usize) {
        self.wait(|watches| watches.open() >= n).await;
    }

    /// Waits until at least `n` events have [passed](Watches::passed).
    pub async fn wait_passed(&self, n: u64) {
        self.wait(|watches| watches.passed() >= n).await;
    }

    async fn wait(&self, done: impl Fn(&Self) -> bool) {
        let mut news = self.faults.news();
        while !done(self) {
            // The sender lives in `self`.
            if news.changed().await.is_err() {
                return;
            }
        }
    }
}

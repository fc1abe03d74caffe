//! Decodes on several threads where there are several, and in order.
//!
//! A deque of handles; the first one is awaited. This costs less than `FuturesOrdered`.

use std::{collections::VecDeque, hint::black_box};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::task::AbortOnDropHandle;

/// How many bytes are worth a task of their own: some objects, a fraction of a millisecond.
pub(super) const WORTH_A_TASK: usize = 32 << 10;

/// Room for such a piece of work and one more object of the usual size.
///
/// Below the size at which allocators return memory to the system at once, and must request it again each time.
pub(super) const ROOM_FOR_A_TASK: usize = 48 << 10;

/// What the objects of such a piece of work take in memory, which is more than their text.
///
/// Below the sizes for which allocators ask the system each time.
const MEMORY_OF_A_TASK: usize = 96 << 10;

/// Pieces of work that run side by side, and whose results come in the order in which they were begun.
///
/// On a current-thread runtime there is none: work is done where it stands, so that paused time is not fooled by
/// threads. What is under way is bounded, and dropped with the pool.
#[derive(Debug)]
pub(super) struct DecodePool<R> {
    running: VecDeque<AbortOnDropHandle<R>>,
    most: usize,
}

impl<R: Send + 'static> DecodePool<R> {
    /// Makes a pool, where the runtime has several threads.
    pub(super) fn new() -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let workers = runtime.metrics().num_workers();
        let pool = Self { running: VecDeque::new(), most: 2 * workers };
        (runtime.runtime_flavor() == RuntimeFlavor::MultiThread && workers > 1).then_some(pool)
    }

    /// Begins a piece of work.
    pub(super) fn begin(&mut self, work: impl FnOnce() -> R + Send + 'static) {
        self.running.push_back(AbortOnDropHandle::new(tokio::spawn(async {
            grow_at_once();
            work()
        })));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running.len() >= self.most
    }

    /// Waits for the oldest piece of work; `None` where there is none. Nothing is lost if it is not waited for.
    ///
    /// # Panics
    /// As the work did.
    pub(super) async fn next(&mut self) -> Option<R> {
        let done = self.running.front_mut()?.await;
        self.running.pop_front();
        match done {
            Ok(result) => Some(result),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down: nobody reads on.
                Err(_) => None,
            },
        }
    }
}

/// Lets the allocator ask the system once for what a piece of work is about to take.
///
/// glibc's grows by the page in all threads but the first: 95,000 calls of `mprotect` for a list of 100,000 objects, a
/// tenth of the whole CPU, and 8,600 with this. Where there is room already it costs next to nothing.
fn grow_at_once() {
    drop(black_box(Vec::<u8>::with_capacity(MEMORY_OF_A_TASK)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn results_come_in_the_order_in_which_work_was_begun() {
        let mut pool = DecodePool::new().unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        pool.begin(move || {
            wait.recv().unwrap();
            vec![1, 2]
        });
        pool.begin(move || {
            go.send(()).unwrap();
            vec![3]
        });
        assert_eq!(pool.next().await.unwrap(), [1, 2]);
        assert_eq!(pool.next().await.unwrap(), [3]);
        assert!(pool.is_idle() && pool.next().await.is_none());
    }

    #[tokio::test]
    async fn one_thread_makes_no_crew() {
        assert!(DecodePool::<()>::new().is_none());
    }
}

//! Decodes on several threads where there are several, and in order.

use std::{hint::black_box, panic::resume_unwind};

use futures::{Stream, StreamExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::task::AbortOnDropHandle;

use super::error::ListWatchError;

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

/// Decodes blocks, each with a flag that says whether it is worth a task; the results come in the order of the blocks.
///
/// On a current-thread runtime all is decoded where it is read, so that paused time is not fooled by threads. What is
/// under way is bounded, and dropped with the stream.
pub(super) fn decoded<B: Send + 'static, T: Send + 'static>(
    blocks: impl Stream<Item = Result<(B, bool), ListWatchError>>,
    decode: impl Fn(B) -> Result<T, ListWatchError> + Clone + Send + 'static,
) -> impl Stream<Item = Result<T, ListWatchError>> {
    let runtime =
        Handle::try_current().ok().map(|runtime| (runtime.runtime_flavor(), runtime.metrics().num_workers()));
    let most = match runtime {
        Some((RuntimeFlavor::MultiThread, workers)) if workers > 1 => 2 * workers,
        _ => 1,
    };
    let results = blocks.map(move |block| {
        let decode = decode.clone();
        async move {
            match block? {
                (block, true) if most > 1 => in_a_task(move || decode(block)).await,
                (block, _) => decode(block),
            }
        }
    });
    results.buffered(most)
}

/// Does a piece of work on any thread; it is dropped with the future.
///
/// # Panics
/// As the work does.
async fn in_a_task<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let task = tokio::spawn(async {
        // Lets the allocator ask the system once for what the work is about to take, and not page by page.
        drop(black_box(Vec::<u8>::with_capacity(MEMORY_OF_A_TASK)));
        work()
    });
    match AbortOnDropHandle::new(task).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shutting down: nobody reads on.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use futures::{TryStreamExt, stream};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn results_come_in_the_order_of_the_blocks() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let blocks = stream::iter([Ok((1, true)), Ok((2, true)), Ok((3, false))]);
        let results = decoded(blocks, move |block| {
            match block {
                1 => wait.lock().unwrap().recv().unwrap(),
                _ => drop(go.send(())),
            }
            Ok(block)
        });
        assert_eq!(results.try_collect::<Vec<_>>().await.unwrap(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn one_thread_decodes_each_block_before_it_reads_the_next() {
        let read = Arc::new(Mutex::new(0));
        let reads = read.clone();
        let blocks = stream::iter(1..=3).map(move |block| {
            *reads.lock().unwrap() = block;
            Ok((block, true))
        });
        let results = decoded(blocks, move |block| Ok((block, *read.lock().unwrap())));
        assert_eq!(results.try_collect::<Vec<_>>().await.unwrap(), [(1, 1), (2, 2), (3, 3)]);
    }
}

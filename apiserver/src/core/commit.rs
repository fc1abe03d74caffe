//! Commits: a write is on disk before any client sees it.
//!
//! One task at a time writes everything that has arrived since the last sync, so concurrent writes share a sync. A
//! change that can't be written is rolled back, and those who wait for it get an error.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::guard::Guard;
use crate::crd;
use crate::data::{DataError, DataFile, Entry, Image};
use crate::state::State;
use crate::store::Batch;

/// Whether it is on disk, or why not.
pub(super) type Committed = Result<(), Arc<DataError>>;

/// Waits until all earlier writes are on disk.
pub(super) type Ticket = oneshot::Receiver<Committed>;

/// The state, as the task that writes needs it.
pub(super) trait Shared: Send + Sync + 'static {
    /// Locks the state.
    fn state(&self) -> Guard<'_>;
    /// Returns the committer.
    fn committer(&self) -> Option<&Committer>;
}

/// Writes a core's changes to its data file.
#[derive(Debug)]
pub(super) struct Committer {
    path: PathBuf,
    started: u64,
    file: Arc<Mutex<Option<DataFile>>>,
    turn: Mutex<Turn>,
    runtime: Handle,
}

/// The waiters, and whether a write is running; locked after the state.
#[derive(Debug, Default)]
struct Turn {
    waiting: Vec<oneshot::Sender<Committed>>,
    running: bool,
    outgrown: bool,
    phase: CommitterPhase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CommitterPhase {
    #[default]
    Serving,
    /// A last snapshot is to be written.
    Closing,
    /// The file is released as soon as the current write ends.
    Closed,
}

/// One turn of writing.
struct Job {
    batch: Arc<Batch>,
    image: Option<Image>,
    waiting: Vec<oneshot::Sender<Committed>>,
    last: bool,
}

impl Committer {
    /// Makes a committer; writes happen on the current runtime.
    pub(super) fn new(file: DataFile, started: u64) -> Self {
        let turn = Turn { outgrown: file.is_outgrown(), ..Turn::default() };
        Self {
            path: file.path().to_owned(),
            started,
            file: Arc::new(Mutex::new(Some(file))),
            turn: Mutex::new(turn),
            runtime: Handle::current(),
        }
    }

    /// Returns what to wait for before this state is shown to anyone; `None` if all of it is on disk.
    pub(super) fn ticket(&self, state: &State) -> Option<Ticket> {
        let mut turn = lock(&self.turn);
        (state.store.has_unsaved() || turn.running).then(|| turn.wait())
    }

    /// Starts writing unsaved changes.
    pub(super) fn start<S: Shared>(&self, shared: &Weak<S>) {
        let mut turn = lock(&self.turn);
        if !turn.running
            && let Some(shared) = shared.upgrade()
        {
            turn.running = true;
            self.runtime.spawn(run(shared));
        }
    }

    /// Requests a last snapshot; after it the file can be opened by others.
    pub(super) fn close(&self, _state: &State) -> Option<Ticket> {
        let mut turn = lock(&self.turn);
        if turn.phase != CommitterPhase::Serving {
            return None;
        }
        turn.phase = CommitterPhase::Closing;
        Some(turn.wait())
    }

    /// Releases the file without a snapshot, as soon as the current write ends.
    pub(super) fn abandon(&self) {
        let mut turn = lock(&self.turn);
        turn.phase = CommitterPhase::Closed;
        if !turn.running {
            drop(lock(&self.file).take());
        }
    }

    /// Breaks the data file.
    #[cfg(test)]
    pub(super) fn break_file(&self, how: impl FnOnce(&mut DataFile)) {
        how(lock(&self.file).as_mut().expect("it is open"));
    }

    /// Takes the next batch; `None` ends the turn.
    fn next(&self, state: &mut State) -> Option<Job> {
        let mut turn = lock(&self.turn);
        let last = turn.phase == CommitterPhase::Closing;
        if !state.store.has_unsaved() && turn.waiting.is_empty() && !last {
            turn.running = false;
            if turn.phase == CommitterPhase::Closed {
                drop(lock(&self.file).take());
            }
            return None;
        }
        if last {
            turn.phase = CommitterPhase::Closed;
        }
        let batch = Arc::new(state.store.take_unsaved());
        let whole = batch.whole || last || (turn.outgrown && !batch.entries.is_empty());
        let image = whole.then(|| image(state, self.started));
        Some(Job { batch, image, waiting: std::mem::take(&mut turn.waiting), last })
    }

    /// Rolls back changes that could not be written; returns their waiters.
    fn take_back(&self, state: &mut State, batch: &Batch) -> Vec<oneshot::Sender<Committed>> {
        for fact in state.store.undo(batch) {
            state.forget_fact(&fact);
        }
        crd::register_all(state);
        state.aggregated = 0;
        std::mem::take(&mut lock(&self.turn).waiting)
    }
}

impl Turn {
    fn wait(&mut self) -> Ticket {
        let (tell, told) = oneshot::channel();
        self.waiting.push(tell);
        told
    }
}

/// Writes until no changes are left.
async fn run<S: Shared>(shared: Arc<S>) {
    let Some(committer) = shared.committer() else { return };
    loop {
        let job = committer.next(&mut shared.state());
        let Some(Job { batch, image, mut waiting, last }) = job else { return };
        let (file, path, to_write) =
            (Arc::clone(&committer.file), committer.path.clone(), Arc::clone(&batch));
        let writing = tokio::task::spawn_blocking(move || {
            write(&mut lock(&file), path, &to_write, image.as_ref(), last)
        });
        // A runtime that ends, or a panic: what has reached the disk is unknown.
        let written = writing.await.unwrap_or_else(|error| {
            let (path, earlier) = (committer.path.clone(), error.to_string());
            Err(DataError::Unknown { path, earlier })
        });
        let outcome = match written {
            Ok(outgrown) => {
                shared.state().store.saved(&batch);
                lock(&committer.turn).outgrown = outgrown;
                Ok(())
            }
            Err(error) => {
                tracing::error!(%error, "writes are refused, and what they changed is taken back");
                waiting.extend(committer.take_back(&mut shared.state(), &batch));
                Err(Arc::new(error))
            }
        };
        for tell in waiting {
            // A waiter that has gone needs no answer.
            let _gone = tell.send(outcome.clone());
        }
    }
}

/// Writes one batch; returns whether the log needs a snapshot.
fn write(
    slot: &mut Option<DataFile>,
    path: PathBuf,
    batch: &Batch,
    image: Option<&Image>,
    last: bool,
) -> Result<bool, DataError> {
    let Some(file) = slot.as_mut() else { return Err(DataError::Closed { path }) };
    let written = match image.map(|image| file.replace(image)) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if batch.whole => Err(error),
        replaced => {
            if let Some(Err(error)) = replaced {
                tracing::warn!(%error, "no snapshot was written: the log goes on");
            }
            file.append(batch.entries.iter().map(Entry::from))
        }
    };
    let outgrown = file.is_outgrown();
    if last {
        *slot = None;
    }
    written.map(|()| outgrown)
}

/// Returns the whole state.
pub(super) fn image(state: &State, started: u64) -> Image {
    let (version, objects) = (state.store.version(), state.store.everything());
    Image { version, started, objects, facts: state.facts() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

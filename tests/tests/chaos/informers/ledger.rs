//! What a run knows and what it found wrong, shared by all who look on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;
use watchkeeper::ObjectKey;

use super::state::{Content, State};

/// The book of one run; clones are the same book.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    started: Instant,
    book: Arc<Mutex<Book>>,
}

#[derive(Debug, Default)]
struct Book {
    trace: Vec<String>,
    wrongs: Vec<String>,
    /// Every state that ever was on the server, by UID.
    states: BTreeMap<String, Vec<State>>,
    /// What was heard of objects, by whom; judged at the end, as it may be heard before it is known here.
    heard: Vec<(String, State)>,
    ended: Vec<(String, String)>,
    /// How often the server lost history.
    epoch: u64,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), book: Arc::default() }
    }

    /// Writes down what happens.
    pub(crate) fn trace(&self, what: impl fmt::Display) {
        let line = format!("{:>9.3} {what}", self.started.elapsed().as_secs_f64());
        self.lock().trace.push(line);
    }

    /// Writes down that something is wrong.
    pub(crate) fn wrong(&self, what: impl fmt::Display) {
        let line = format!("{:>9.3} {what}", self.started.elapsed().as_secs_f64());
        let mut book = self.lock();
        book.trace.push(format!("WRONG {line}"));
        book.wrongs.push(line);
    }

    /// Remembers a state that is on the server.
    pub(crate) fn remember(&self, state: State) {
        self.lock().states.entry(state.uid.clone()).or_default().push(state);
    }

    /// Notes that somebody was shown a state.
    pub(crate) fn heard(&self, who: &str, state: &State) {
        self.lock().heard.push((who.to_owned(), state.clone()));
    }

    /// Records that a handler saw the end of an object.
    pub(crate) fn heard_end(&self, who: &str, uid: &str) {
        self.lock().ended.push((who.to_owned(), uid.to_owned()));
    }

    /// Counts how often the server lost its history.
    pub(crate) fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Notes that the server loses its history now.
    pub(crate) fn next_epoch(&self) {
        self.lock().epoch += 1;
    }

    /// Judges what was heard; gives what is wrong, and the trace.
    pub(crate) fn close(&self) -> (Vec<String>, Vec<String>) {
        let mut book = self.lock();
        let Book { trace, mut wrongs, states, heard, ended, .. } = std::mem::take(&mut *book);
        let was = |shown: &State| {
            states.get(&shown.uid).is_some_and(|states| states.iter().any(|state| state.shown_as(shown)))
        };
        let invented = heard.iter().filter(|(_, shown)| !was(shown));
        wrongs.extend(invented.map(|(who, shown)| format!("{who} was shown what never was: {shown}")));
        let invented = ended.iter().filter(|(_, uid)| !states.contains_key(uid));
        wrongs.extend(
            invented.map(|(who, uid)| format!("{who} saw the end of an object that never existed: {uid}")),
        );
        (wrongs, trace)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says how two contents differ; nothing if they don't.
pub(crate) fn differences(what: &str, wanted: &Content, is: &Content) -> Vec<String> {
    let keys: BTreeSet<&ObjectKey> = wanted.keys().chain(is.keys()).collect();
    let show = |state: Option<&State>| state.map_or_else(|| "nothing".to_owned(), State::to_string);
    let differs = |key: &&&ObjectKey| match (wanted.get(**key), is.get(**key)) {
        (Some(wanted), Some(is)) => !wanted.shown_as(is),
        (wanted, is) => wanted.is_some() || is.is_some(),
    };
    let differing = keys.iter().filter(differs);
    differing
        .map(|key| format!("{what}: {key} is {}, should be {}", show(is.get(*key)), show(wanted.get(*key))))
        .collect()
}

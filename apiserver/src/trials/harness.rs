//! What is known of a run: the requests that were sent, the troubles that struck, and when all is at rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::diff::changed_fields;
use super::place::{Case, Place, Planned, describe};
use super::timeline::{Line, Who};
use super::times;
use super::trouble::{Deed, There, Trouble};
use super::world::seen_as;
use crate::object;
use crate::route::{RequestInfo, Verb};
use crate::server::ApiServer;

/// How many writes of others lie between two of a trial whose server will be restored.
const CROWD: usize = 60;

/// One request of the operator, as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) place: Place,
    pub(super) info: RequestInfo,
    /// What was there, in a calm run.
    pub(super) there: There,
}

/// What stands for the field where an object was deleted.
pub(super) const DELETED: &str = "(deleted)";

/// A write to an object that is not the operator's: the resource, and the field.
pub(super) type Meddling = (String, String);

/// What someone else did that must stay.
#[derive(Clone, Debug)]
pub(super) enum Owed {
    /// The label and the annotation.
    Labels,
    /// The condition.
    Condition,
}

/// What is known of a run while it goes on.
#[derive(Debug)]
pub(super) struct Book {
    /// Rises with each start of the operator; requests of earlier ones go nowhere.
    pub(super) generation: u64,
    /// Until when a killed operator stays down.
    pub(super) down: Option<Instant>,
    /// It ended by itself, and is not yet started again.
    pub(super) ended_now: bool,
    /// Until when what goes wrong goes on: the operator's time begins then.
    wrong_until: Instant,
    planned: Vec<(Planned, Fate)>,
    counts: HashMap<String, u32>,
    pub(super) sent: Vec<Sent>,
    bound: usize,
    in_flight: usize,
    /// When something last happened that is no part of rest.
    disturbed: Instant,
    /// What that was.
    pub(super) disturbance: String,
    /// UIDs of what the operator made.
    pub(super) made: HashSet<String>,
    /// The versions that changes of the operator got, where the answer came.
    pub(super) own: HashSet<u64>,
    /// The UIDs of what it deleted, where the answer came.
    pub(super) deleted: HashSet<String>,
    /// Objects by UID as they were before their last change, where somebody is to put one back.
    pub(super) earlier: HashMap<String, Value>,
    /// What the operator last sent of an object, by its path.
    pub(super) bodies: HashMap<String, Value>,
    pub(super) meddled: BTreeSet<Meddling>,
    pub(super) meddled_objects: Vec<String>,
    pub(super) owed: Vec<(String, Owed)>,
    /// What of it is missing.
    pub(super) undone: BTreeSet<String>,
    pub(super) denied: Option<Denied>,
    pub(super) paging: Option<Paging>,
    /// How often the operator ended by itself, and how at last.
    pub(super) ended: Vec<String>,
    /// The steps of the script that were refused, by number.
    pub(super) refused: BTreeSet<usize>,
    /// The states that the user waited for in vain.
    pub(super) in_vain: Vec<String>,
    /// The kinds that this life of the operator has listed to the end.
    pub(super) listed: HashSet<String>,
    /// What became known on a page that was not the last of its list, to an operator that had listed the kind before.
    pub(super) paged: Vec<String>,
    /// Somebody else touched what is not the operator's.
    pub(super) touched_foreign: bool,
    /// The server went back to an older state.
    pub(super) restored: bool,
    /// Changes of objects that the operator made.
    pub(super) changes: usize,
    pub(super) tell: bool,
    pub(super) lines: Vec<Line>,
    /// The last version of each object that a watch or a read has shown to the operator.
    pub(super) seen: HashMap<String, (u64, Instant)>,
    /// The version before each write.
    pub(super) before_writes: Vec<u64>,
    /// The version that each object got last, and when.
    pub(super) written: HashMap<String, (u64, Instant)>,
}

impl Book {
    /// Says how many requests of a sort there were.
    pub(super) fn count(&self, name: &str) -> u32 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

/// What became of a planned trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    Struck,
    /// It struck, and there was nothing for it to do.
    Inert,
}

#[derive(Clone, Debug)]
pub(super) struct Denied {
    /// `None`: the server can't be reached.
    pub(super) resource: Option<String>,
    pub(super) until: Instant,
}

/// Lists come in small pages, and the first token of each kind has expired.
#[derive(Debug)]
pub(super) struct Paging {
    pub(super) until: Instant,
    /// The kinds whose first token was refused.
    pub(super) expired: HashSet<String>,
}

/// Where the operator plays; clones are one.
#[derive(Clone)]
pub(super) struct Harness {
    /// This run is the one that others are compared with.
    pub(super) calm: bool,
    pub(super) server: Arc<ApiServer>,
    pub(super) stranger: kube::Client,
    book: Arc<Mutex<Book>>,
    pub(super) moved: Arc<Notify>,
    began: Instant,
    /// What the server's clock showed then.
    start: Timestamp,
    /// The server's version before the operator started.
    pub(super) first_version: u64,
    /// The server will be restored: others write between the writes of the trial.
    crowded: bool,
    /// Somebody may put an earlier copy back.
    copies: bool,
    /// How long the operator may take to put things right.
    pub(super) patience: Duration,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").finish_non_exhaustive()
    }
}

/// Counts a request as under way.
pub(super) struct InFlight(Harness);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.book().in_flight -= 1;
        self.0.moved.notify_waiters();
    }
}

/// Whose rest is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// That of all: an operator that is down will come back.
    OfAll,
    /// That of what is up: users go on while an operator is down.
    OfWhatIsUp,
}

/// A request as it comes in.
pub(super) struct Arrival {
    pub(super) name: String,
    /// Its place among those that were sent.
    pub(super) at: usize,
    pub(super) trouble: Option<(usize, Trouble)>,
    pub(super) denied: Option<Denied>,
    pub(super) in_flight: Option<InFlight>,
}

impl Harness {
    pub(super) fn new(
        server: Arc<ApiServer>,
        case: &Case,
        bound: usize,
        patience: Duration,
        tell: bool,
    ) -> Self {
        let now = Instant::now();
        let book = Book {
            generation: 0,
            down: None,
            ended_now: false,
            wrong_until: now,
            planned: case.planned.iter().map(|planned| (planned.clone(), Fate::Waits)).collect(),
            counts: HashMap::new(),
            sent: Vec::new(),
            bound,
            in_flight: 0,
            disturbed: now,
            disturbance: "the start".to_owned(),
            made: HashSet::new(),
            own: HashSet::new(),
            deleted: HashSet::new(),
            earlier: HashMap::new(),
            bodies: HashMap::new(),
            meddled: BTreeSet::new(),
            meddled_objects: Vec::new(),
            owed: Vec::new(),
            undone: BTreeSet::new(),
            denied: None,
            paging: None,
            ended: Vec::new(),
            refused: BTreeSet::new(),
            in_vain: Vec::new(),
            listed: HashSet::new(),
            paged: Vec::new(),
            touched_foreign: false,
            restored: false,
            changes: 0,
            tell,
            lines: Vec::new(),
            seen: HashMap::new(),
            before_writes: Vec::new(),
            written: HashMap::new(),
        };
        let stranger = server.kit().client_ref().clone();
        let moved = Arc::default();
        let calm = case.planned.is_empty() && case.without.is_empty();
        let crowded = case.planned.iter().any(|one| one.trouble.changes_the_end());
        let replaces = |one: &Planned| matches!(one.trouble, Trouble::Stranger(Deed::Replaces, ..));
        let copies = calm || case.planned.iter().any(replaces);
        let (first_version, book) = (server.resource_version(), Arc::new(Mutex::new(book)));
        let start = server.clock().now();
        Self {
            calm,
            server,
            stranger,
            book,
            moved,
            began: now,
            start,
            first_version,
            crowded,
            copies,
            patience,
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(super) fn tell(&self, who: Who, text: impl FnOnce() -> String) {
        if self.book().tell {
            let line = Line { at: self.began.elapsed(), who, text: times::since(&text(), self.start) };
            self.book().lines.push(line);
        }
    }

    /// Adds to the last line that tells of somebody.
    pub(super) fn tell_more(&self, who: Who, text: &str) {
        if let Some(line) = self.book().lines.iter_mut().rev().find(|line| line.who == who) {
            line.text += &times::since(text, self.start);
        }
    }

    /// Takes note of something that is no part of rest.
    pub(super) fn disturb(&self, what: impl FnOnce() -> String) {
        let mut book = self.book();
        book.disturbed = Instant::now();
        book.disturbance = what();
        drop(book);
        self.moved.notify_waiters();
    }

    /// Returns whether something planned had nothing to do, or never came.
    pub(super) fn is_inert(&self) -> bool {
        self.book().planned.iter().any(|(_, fate)| *fate != Fate::Struck)
    }

    /// Takes note of something that became known on a page that was not the last of its list.
    pub(super) fn paged(&self, what: String) {
        let mut book = self.book();
        if !book.paged.contains(&what) {
            book.paged.push(what);
        }
    }

    /// Returns whether the operator sends more than it ever may.
    pub(super) fn is_flooded(&self) -> bool {
        let book = self.book();
        book.sent.len() > book.bound
    }

    pub(super) fn made_by_operator(&self, uid: &str) -> bool {
        self.book().made.contains(uid)
    }

    pub(super) fn count_as_made(&self, uid: &str) {
        self.book().made.insert(uid.to_owned());
    }

    /// Waits until nothing has happened for a while; false where that never comes in time.
    pub(super) async fn rest(&self, whose: Rest, quiet: Duration, deadline: Instant) -> bool {
        loop {
            let (busy, disturbed) = {
                let book = self.book();
                let down = whose == Rest::OfAll && (book.down.is_some() || book.ended_now);
                (book.in_flight > 0 || down, book.disturbed)
            };
            if self.is_flooded() {
                return false;
            }
            let now = Instant::now();
            if !busy && now >= disturbed + quiet {
                return true;
            }
            if now >= deadline {
                return false;
            }
            let until = if busy { deadline } else { deadline.min(disturbed + quiet) };
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.moved.notified() => {}
            }
        }
    }

    /// Takes note of something wrong that goes on for a while.
    pub(super) fn wrong_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut book = self.book();
        book.wrong_until = book.wrong_until.max(until);
    }

    /// Says until when the operator has time to put right what went wrong, if nothing more does.
    pub(super) fn deadline(&self, from: Instant) -> Instant {
        self.book().wrong_until.max(from) + self.patience
    }

    /// Kills the operator: from now on it sends and receives nothing.
    pub(super) fn kill(&self, down_for: Option<Duration>) {
        self.wrong_for(down_for.unwrap_or_default());
        {
            let mut book = self.book();
            book.generation += 1;
            book.down = down_for.map(|time| Instant::now() + time);
        }
        self.tell(Who::Operator, || "dies".into());
        self.disturb(|| "the operator's death".into());
    }

    /// Ends the time for which it is down.
    pub(super) fn up(&self) {
        if self.book().down.take().is_some() {
            self.moved.notify_waiters();
        }
    }

    pub(super) fn is_dead(&self, generation: u64) -> bool {
        self.book().generation != generation
    }

    /// Counts a request; `None` if the life that sent it is over, or it sends more than it may.
    pub(super) fn arrive(
        &self,
        generation: u64,
        method: &http::Method,
        info: &RequestInfo,
        body: &[u8],
    ) -> Option<Arrival> {
        let name = describe(method, info, body);
        let mut book = self.book();
        if book.generation != generation || book.sent.len() > book.bound {
            return None;
        }
        let nth = book.counts.entry(name.clone()).or_default();
        *nth += 1;
        let place = Place { request: name.clone(), nth: *nth };
        let struck = book
            .planned
            .iter_mut()
            .enumerate()
            .find(|(_, (planned, fate))| *fate == Fate::Waits && planned.place == place);
        let trouble = struck.map(|(at, (planned, fate))| {
            *fate = Fate::Struck;
            (at, planned.trouble)
        });
        let at = book.sent.len();
        book.sent.push(Sent { place, info: info.clone(), there: There::default() });
        let now = Instant::now();
        if trouble.is_some() {
            book.wrong_until = book.wrong_until.max(now);
        }
        let denied = book.denied.clone().filter(|denied| {
            now < denied.until && denied.resource.as_ref().is_none_or(|of| *of == info.resource)
        });
        let counted = info.verb != Some(Verb::Watch);
        if counted {
            book.in_flight += 1;
        }
        drop(book);
        let in_flight = counted.then(|| InFlight(self.clone()));
        Some(Arrival { name, at, trouble, denied, in_flight })
    }

    /// Takes note of a version that an object got, and of what it was before; `version` is the server's before that.
    pub(super) fn written(&self, resource: &str, before: Option<&Value>, object: &Value, version: u64) {
        self.crowd(version);
        let mut book = self.book();
        if self.copies
            && let Some(before) = before
            && !changed_fields(before, object).is_empty()
        {
            book.earlier.insert(object::uid(before).to_owned(), before.clone());
        }
        if book.tell
            && let Some((key, version)) = seen_as(resource, object)
        {
            book.written.insert(key, (version, Instant::now()));
        }
    }

    /// Lets others write, as they do in a cluster.
    ///
    /// Else the writes of the trial would soon carry a restored server to versions that caches have seen of what is
    /// lost, and nothing could tell.
    fn crowd(&self, before: u64) {
        if !self.crowded || self.book().restored {
            return;
        }
        self.book().before_writes.push(before);
        self.others_write();
    }

    /// Lets others write.
    ///
    /// After a restore too: else the next write to an object would get the very version that its lost one had, and no
    /// client could tell one from the other.
    pub(super) fn others_write(&self) {
        let somewhere = http::Uri::from_static("/api/v1/namespaces/kube-public");
        let elsewhere = RequestInfo::of(&http::Method::PATCH, &somewhere);
        let writes = if self.book().restored { CROWD / 2 } else { CROWD };
        (0..writes).for_each(|_| self.server.core().bump(&elsewhere));
    }

    /// Takes note that something planned had nothing to do.
    pub(super) fn inert(&self, at: usize) {
        if let Some((_, fate)) = self.book().planned.get_mut(at) {
            *fate = Fate::Inert;
        }
    }

    /// Counts something wrong as under way until the guard goes; it takes at least this time.
    pub(super) fn fly(self, time: Duration) -> impl Drop + Send + 'static {
        self.wrong_for(time);
        self.book().in_flight += 1;
        InFlight(self)
    }
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "?".into())
}

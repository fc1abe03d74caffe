//! What is known of a run: the requests that were sent, the troubles that struck, and when all is at rest.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use watchkeeper_apiserver::inside::{RequestInfo, object};
use watchkeeper_apiserver::{ApiServer, Verb, inside};

use crate::diff::changed_fields;

use crate::hidden::HiddenField;
use crate::life::{Life, Lives, Version};
use crate::recording::Effect;
use crate::records::Records;
use crate::schedule::{Place, PlannedTrouble, RequestPoint, Schedule, describe};
use crate::timeline::{Actor, Line};
use crate::times;
use crate::trouble::{AWAY, ForeignChange, RequestTargets, SLOW, Trouble, WebhookTrouble};
use crate::world::{Difference, seen_as};

/// How many writes of others lie between two of a trial whose server will be restored.
const CROWD: usize = 60;

/// One request of the operator, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) place: RequestPoint,
    pub(crate) info: RequestInfo,
    /// When.
    pub(crate) at: Instant,
    /// The new version sent it, in an upgrade.
    pub(crate) is_of_new: bool,
    /// What was there, in the baseline run.
    pub(crate) there: RequestTargets,
}

/// The most sorts of requests that are named as still moving.
const MOVING: usize = 5;

/// What stands for the field where an object was deleted.
pub(crate) const DELETED: &str = "(deleted)";

/// A write to an object that is not the operator's: the resource, and the field.
pub(crate) type ForeignWrite = (String, String);

/// What someone else did that must stay.
#[derive(Clone, Debug)]
pub(crate) enum ForeignAddition {
    /// The label.
    Label,
    /// The annotation.
    Annotation,
    /// The condition.
    Condition,
}

/// What is known of a run while it goes on.
#[derive(Debug)]
pub(crate) struct RunState {
    /// Who lives, and is to live.
    pub(crate) lives: Lives,
    /// Until when what goes wrong goes on: the operator's time begins then.
    pub(crate) wrong_until: Instant,
    planned: Vec<(PlannedTrouble, Fate)>,
    counts: HashMap<String, u32>,
    pub(crate) sent: Vec<Sent>,
    bound: usize,
    in_flight: usize,
    /// When something last happened that ends a rest.
    disturbed: Instant,
    /// What that was.
    pub(crate) disturbance: String,
    /// UIDs of what the operator made.
    pub(crate) made: HashSet<String>,
    /// The versions that changes of the operator got, where the answer came.
    pub(crate) own: HashSet<u64>,
    /// The UIDs of what it deleted, where the answer came.
    pub(crate) deleted: HashSet<String>,
    /// Objects by UID as they were before their last change, where somebody is to put one back.
    pub(crate) earlier: HashMap<String, Value>,
    /// What the operator last sent of an object, by its path.
    pub(crate) bodies: HashMap<String, Value>,
    pub(crate) foreign_writes: BTreeSet<ForeignWrite>,
    pub(crate) foreign_objects_written: Vec<(ForeignWrite, String)>,
    pub(crate) additions: Vec<(String, ForeignAddition)>,
    /// What of it is missing.
    pub(crate) undone: BTreeSet<String>,
    /// What the API outside the cluster keeps.
    pub(crate) external: Records,
    /// How many steps of the script are over.
    pub(crate) steps: usize,
    /// What the new version changed as it took over at rest.
    pub(crate) changed_by_upgrade: Vec<Difference>,
    /// The definitions of the new version that the server refused.
    pub(crate) refused_definitions: Vec<String>,
    /// What the new version wrote while both ran: resource, namespace, name.
    pub(crate) written_by_new: HashSet<(String, String, String)>,
    /// The first write of the old version to what the new one had written.
    pub(crate) both_at_work: Option<String>,
    pub(crate) denied: Option<Denied>,
    pub(crate) paging: Option<Paging>,
    /// The trouble that webhooks are in, and until when.
    pub(crate) webhooks: Option<(WebhookTrouble, Instant)>,
    /// How often webhooks were called.
    pub(crate) webhook_calls: usize,
    /// How often the operator ended by itself, and how at last.
    pub(crate) ended: Vec<String>,
    /// The steps of the script that were refused, by number.
    pub(crate) refused: BTreeSet<usize>,
    /// The states that the user waited for in vain.
    pub(crate) in_vain: Vec<String>,
    /// The kinds that this life of the operator has listed to the end.
    pub(crate) listed: HashSet<String>,
    /// What became known on a page that was not the last of its list, to an operator that had listed the kind before.
    pub(crate) paged: Vec<String>,
    /// Somebody else touched what is not the operator's.
    pub(crate) touched_foreign: bool,
    /// The server went back to an older state.
    pub(crate) restored: bool,
    /// Changes of objects that the operator made.
    pub(crate) changes: usize,
    pub(crate) tell: bool,
    pub(crate) lines: Vec<Line>,
    /// What the operator changed, if there is to be a story.
    pub(crate) effects: Vec<Effect>,
    /// The UIDs of the objects that the recording that is played begins with.
    pub(crate) recorded: HashSet<String>,
    /// The fields that the recording that is played does not have.
    pub(crate) not_recorded: Vec<HiddenField>,
    /// Since when others do what a recording says; their times count from here.
    pub(crate) played_since: Option<Instant>,
    /// The last version of each object that a watch or a read has shown to the operator.
    pub(crate) seen: HashMap<String, (u64, Instant)>,
    /// The version before each write.
    pub(crate) before_writes: Vec<u64>,
    /// The version that each object got last, and when.
    pub(crate) written: HashMap<String, (u64, Instant)>,
}

impl RunState {
    /// Notes a write to what the operator has not made.
    pub(crate) fn write_foreign(&mut self, what: ForeignWrite, request: &str) {
        let told = format!("{request}: {}", what.1);
        if self.foreign_writes.insert(what.clone()) {
            self.foreign_objects_written.push((what, told));
        }
    }

    /// Says how many requests of a sort there were.
    pub(crate) fn count(&self, name: &str) -> u32 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Names what was sent most often since a time, and how often.
    pub(crate) fn moving_since(&self, since: Instant) -> Vec<(String, usize)> {
        let mut times = HashMap::<&str, usize>::new();
        for sent in self.sent.iter().rev().take_while(|sent| sent.at >= since) {
            *times.entry(&sent.place.request).or_default() += 1;
        }
        let mut times: Vec<_> = times.into_iter().map(|(name, times)| (name.to_owned(), times)).collect();
        times.sort_by(|one, other| (other.1, &one.0).cmp(&(one.1, &other.0)));
        times.truncate(MOVING);
        times
    }

    /// Takes what is planned for a place, and its number.
    pub(crate) fn strike(&mut self, place: &Place) -> Option<(usize, Trouble)> {
        let mut all = self.planned.iter_mut().enumerate();
        let (at, (planned, fate)) =
            all.find(|(_, (planned, fate))| *fate == Fate::Waits && planned.place == *place)?;
        *fate = Fate::Struck;
        Some((at, planned.trouble))
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
pub(crate) struct Denied {
    /// `None`: the server can't be reached.
    pub(crate) resource: Option<String>,
    pub(crate) until: Instant,
}

/// Lists come in small pages, and the first token of each kind has expired.
#[derive(Debug)]
pub(crate) struct Paging {
    pub(crate) until: Instant,
    /// The kinds whose first token was refused.
    pub(crate) expired: HashSet<String>,
}

/// Where the operator plays; clones are one.
#[derive(Clone)]
pub(crate) struct Harness {
    /// This run is the one that others are compared with.
    pub(crate) baseline: bool,
    pub(crate) server: Arc<ApiServer>,
    pub(crate) stranger: kube::Client,
    state: Arc<Mutex<RunState>>,
    pub(crate) moved: Arc<Notify>,
    began: Instant,
    /// What the server's clock showed then.
    start: Timestamp,
    /// The server's version before the operator started.
    pub(crate) first_version: u64,
    /// The server will be restored: others write between the writes of the trial.
    crowded: bool,
    /// Somebody may put an earlier copy back.
    copies: bool,
    /// How long the operator may take to put things right.
    pub(crate) patience: Duration,
    /// The definitions that come with the new version.
    pub(crate) upgraded: Arc<Vec<Value>>,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").finish_non_exhaustive()
    }
}

/// Counts a request as under way.
pub(crate) struct InFlight(Harness);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
        self.0.moved.notify_waiters();
    }
}

/// Whose rest is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// That of all: an operator that is down will come back.
    OfAll,
    /// That of what is up: users go on while an operator is down.
    OfWhatIsUp,
}

/// A request as it comes in.
pub(crate) struct Arrival {
    pub(crate) name: String,
    /// Its place among those that were sent.
    pub(crate) at: usize,
    pub(crate) trouble: Option<(usize, Trouble)>,
    pub(crate) denied: Option<Denied>,
    pub(crate) in_flight: Option<InFlight>,
}

impl Harness {
    pub(crate) fn new(
        server: Arc<ApiServer>,
        schedule: &Schedule,
        (patience, upgraded): (Duration, Arc<Vec<Value>>),
        bound: usize,
        tell: bool,
    ) -> Self {
        let now = Instant::now();
        let state = RunState {
            lives: Lives::with(schedule.begins),
            wrong_until: now,
            planned: schedule.planned.iter().map(|planned| (planned.clone(), Fate::Waits)).collect(),
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
            foreign_writes: BTreeSet::new(),
            foreign_objects_written: Vec::new(),
            additions: Vec::new(),
            undone: BTreeSet::new(),
            external: Records::default(),
            steps: 0,
            changed_by_upgrade: Vec::new(),
            refused_definitions: Vec::new(),
            written_by_new: HashSet::new(),
            both_at_work: None,
            denied: None,
            paging: None,
            webhooks: None,
            webhook_calls: 0,
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
            effects: Vec::new(),
            recorded: HashSet::new(),
            not_recorded: Vec::new(),
            played_since: None,
            seen: HashMap::new(),
            before_writes: Vec::new(),
            written: HashMap::new(),
        };
        let stranger = inside::client(server.kit());
        let moved = Arc::default();
        let baseline = schedule.is_calm() && schedule.without.is_empty();
        let crowded = schedule.planned.iter().any(|one| one.trouble.changes_the_end());
        let replaces =
            |one: &PlannedTrouble| matches!(one.trouble, Trouble::Stranger(ForeignChange::Replaces, ..));
        let copies = baseline || schedule.planned.iter().any(replaces);
        let (first_version, state) = (server.resource_version(), Arc::new(Mutex::new(state)));
        let start = server.clock().now();
        Self {
            baseline,
            server,
            stranger,
            state,
            moved,
            began: now,
            start,
            first_version,
            crowded,
            copies,
            patience,
            upgraded,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&self, who: Actor, text: impl FnOnce() -> String) {
        if self.state().tell {
            let line = Line { at: self.began.elapsed(), who, text: times::since(&text(), self.start) };
            self.state().lines.push(line);
        }
    }

    /// Keeps what the operator changed.
    pub(crate) fn keep_effect(&self, request: &str, lines: Vec<String>) {
        let mut state = self.state();
        let (at, request) = (state.played_since.unwrap_or(self.began).elapsed(), request.to_owned());
        state.effects.push(Effect { at, request, lines });
    }

    /// Adds to the last line that tells of somebody.
    pub(crate) fn tell_more(&self, who: Actor, text: &str) {
        if let Some(line) = self.state().lines.iter_mut().rev().find(|line| line.who == who) {
            line.text += &times::since(text, self.start);
        }
    }

    /// Records something that ends a rest.
    pub(crate) fn disturb(&self, what: impl FnOnce() -> String) {
        let mut state = self.state();
        state.disturbed = Instant::now();
        state.disturbance = what();
        drop(state);
        self.moved.notify_waiters();
    }

    /// Returns whether something planned had nothing to do, or never came.
    pub(crate) fn is_inert(&self) -> bool {
        self.state().planned.iter().any(|(_, fate)| *fate != Fate::Struck)
    }

    /// Records what became known on a page that was not the last of its list.
    pub(crate) fn paged(&self, what: String) {
        let mut state = self.state();
        if !state.paged.contains(&what) {
            state.paged.push(what);
        }
    }

    /// Returns whether the operator sends more than it ever may.
    pub(crate) fn is_flooded(&self) -> bool {
        let state = self.state();
        state.sent.len() > state.bound
    }

    pub(crate) fn made_by_operator(&self, uid: &str) -> bool {
        self.state().made.contains(uid)
    }

    pub(crate) fn count_as_made(&self, uid: &str) {
        self.state().made.insert(uid.to_owned());
    }

    /// Waits until nothing has happened for a while; false where that never comes in time.
    pub(crate) async fn rest(&self, whose: Rest, quiet: Duration, deadline: Instant) -> bool {
        loop {
            let (busy, disturbed) = {
                let state = self.state();
                let down = whose == Rest::OfAll && state.lives.is_any_down();
                (state.in_flight > 0 || down, state.disturbed)
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

    /// Records that something is wrong for a while.
    pub(crate) fn wrong_for(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        state.wrong_until = state.wrong_until.max(until);
    }

    /// Says until when the operator has time to put right what went wrong, if nothing more does.
    pub(crate) fn deadline(&self, from: Instant) -> Instant {
        self.state().wrong_until.max(from) + self.patience
    }

    /// Kills the operator: from now on it sends and receives nothing.
    pub(crate) fn kill(&self, version: Version, down_for: Option<Duration>) {
        self.wrong_for(down_for.unwrap_or_default());
        self.state().lives.kill(version, down_for);
        self.tell(version.actor(), || "dies".into());
        self.disturb(|| "the operator's death".into());
    }

    /// Ends the time for which it is down.
    pub(crate) fn up(&self) {
        if self.state().lives.all_up() {
            self.moved.notify_waiters();
        }
    }

    pub(crate) fn is_dead(&self, life: Life) -> bool {
        self.state().lives.is_over(life)
    }

    /// Counts a request; `None` if the life that sent it is over, or it sends more than it may.
    pub(crate) fn arrive(
        &self,
        life: Life,
        method: &http::Method,
        info: &RequestInfo,
        body: &[u8],
    ) -> Option<Arrival> {
        let name = describe(method, info, body);
        let mut state = self.state();
        if state.lives.is_over(life) || state.sent.len() > state.bound {
            return None;
        }
        let request = life.of.request(&name);
        let nth = state.counts.entry(request.clone()).or_default();
        *nth += 1;
        let place = RequestPoint { request, nth: *nth };
        let trouble = state.strike(&Place::Request(place.clone()));
        let (at, now) = (state.sent.len(), Instant::now());
        let (info_of, there) = (info.clone(), RequestTargets::default());
        state.sent.push(Sent { place, info: info_of, at: now, is_of_new: life.of == Version::New, there });
        if trouble.is_some() {
            state.wrong_until = state.wrong_until.max(now);
        }
        let denied = state.denied.clone().filter(|denied| {
            now < denied.until && denied.resource.as_ref().is_none_or(|of| *of == info.resource)
        });
        let counted = info.verb != Some(Verb::Watch);
        if counted {
            state.in_flight += 1;
        }
        drop(state);
        let in_flight = counted.then(|| InFlight(self.clone()));
        Some(Arrival { name, at, trouble, denied, in_flight })
    }

    /// Records the version that an object got, and what it was before; `version` is the server's before that.
    pub(crate) fn written(&self, resource: &str, before: Option<&Value>, object: &Value, version: u64) {
        self.crowd(version);
        let mut state = self.state();
        if self.copies
            && let Some(before) = before
            && !changed_fields(before, object).is_empty()
        {
            state.earlier.insert(object::uid(before).to_owned(), before.clone());
        }
        if state.tell
            && let Some((key, version)) = seen_as(resource, object)
        {
            state.written.insert(key, (version, Instant::now()));
        }
    }

    /// Lets others write, as they do in a cluster.
    ///
    /// Else the writes of the trial would soon carry a restored server to versions that caches have seen of what is
    /// lost, and nothing could tell.
    fn crowd(&self, before: u64) {
        if !self.crowded || self.state().restored {
            return;
        }
        self.state().before_writes.push(before);
        self.others_write();
    }

    /// Lets others write.
    ///
    /// After a restore too: else the next write to an object would get the very version that its lost one had, and no
    /// client could tell one from the other.
    pub(crate) fn others_write(&self) {
        let somewhere = http::Uri::from_static("/api/v1/namespaces/kube-public");
        let elsewhere = RequestInfo::of(&http::Method::PATCH, &somewhere);
        let writes = if self.state().restored { CROWD / 2 } else { CROWD };
        (0..writes).for_each(|_| inside::bump(&self.server, &elsewhere));
    }

    /// Records that something planned had nothing to act on.
    pub(crate) fn inert(&self, at: usize) {
        if let Some((_, fate)) = self.state().planned.get_mut(at) {
            *fate = Fate::Inert;
        }
    }

    /// Counts something wrong as under way until the guard goes; it takes at least this time.
    pub(crate) fn fly(self, time: Duration) -> impl Drop + Send + 'static {
        self.wrong_for(time);
        self.state().in_flight += 1;
        InFlight(self)
    }

    /// Puts all webhooks in trouble for a while.
    pub(crate) fn trouble_webhooks(&self, how: WebhookTrouble) {
        self.state().webhooks = Some((how, Instant::now() + AWAY));
        // The last call may begin just before the end.
        self.wrong_for(AWAY + if how == WebhookTrouble::Slow { SLOW } else { Duration::ZERO });
    }

    /// Returns the trouble that webhooks are in, if any.
    pub(crate) fn trouble_of_webhooks(&self) -> Option<WebhookTrouble> {
        let troubled = self.state().webhooks;
        troubled.filter(|(_, until)| Instant::now() < *until).map(|(how, _)| how)
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "?".into())
}

/// Says why a request was refused, and nothing twice.
pub(crate) fn in_short(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        error => error.to_string(),
    }
}

//! Between the operator and the server: where requests are counted, and troubles strike.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;

use super::foreign;
use super::timeline::{Line, Who};
use super::trouble::{AWAY, Case, Event, Moment, Place, Planned, SLOW, Trouble, describe};
use crate::core::Restart;
use crate::faults::{Fault, FaultyBody, Interrupted};
use crate::object;
use crate::route::{RequestInfo, Verb};
use crate::server::ApiServer;
use crate::service::{Passage, client_over};
use crate::status::Status;

/// How late a request is carried out whose connection broke first.
const LATE: Duration = Duration::from_secs(3);
/// How long watches of a kind are late.
const LAG: Duration = Duration::from_secs(5);
/// How long an operator that ended by itself waits for its next start, at first.
const RESTART: Duration = Duration::from_secs(1);

/// One request of the operator, as it was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) place: Place,
    pub(super) info: RequestInfo,
}

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
    generation: u64,
    /// Until when a killed operator stays down.
    down: Option<Instant>,
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
    made: HashSet<String>,
    /// What the operator last sent of an object, by its path.
    pub(super) bodies: HashMap<String, Value>,
    pub(super) meddled: BTreeSet<Meddling>,
    pub(super) meddled_objects: Vec<String>,
    pub(super) owed: Vec<(String, Owed)>,
    denied: Option<Denied>,
    /// How often the operator ended by itself, and how at last.
    pub(super) ended: Vec<String>,
    /// A stranger touched what is not the operator's.
    pub(super) touched_foreign: bool,
    /// Changes of objects that the operator made.
    pub(super) changes: usize,
    tell: bool,
    pub(super) lines: Vec<Line>,
    /// The last version of each object that a watch or a read has shown to the operator.
    seen: HashMap<String, (u64, Instant)>,
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
struct Denied {
    /// `None`: the server can't be reached.
    resource: Option<String>,
    until: Instant,
}

/// Where the operator plays; clones are one.
#[derive(Clone)]
pub(super) struct Harness {
    pub(super) server: Arc<ApiServer>,
    pub(super) stranger: kube::Client,
    book: Arc<Mutex<Book>>,
    moved: Arc<Notify>,
    began: Instant,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").finish_non_exhaustive()
    }
}

/// Counts a request as under way.
struct InFlight(Harness);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.book().in_flight -= 1;
        self.0.moved.notify_waiters();
    }
}

/// A request as it comes in.
struct Arrival {
    name: String,
    trouble: Option<(usize, Trouble)>,
    denied: Option<Denied>,
    in_flight: Option<InFlight>,
}

impl Harness {
    pub(super) fn new(server: Arc<ApiServer>, case: &Case, bound: usize, tell: bool) -> Self {
        let now = Instant::now();
        let book = Book {
            generation: 0,
            down: None,
            planned: case.planned.iter().map(|planned| (planned.clone(), Fate::Waits)).collect(),
            counts: HashMap::new(),
            sent: Vec::new(),
            bound,
            in_flight: 0,
            disturbed: now,
            disturbance: "the start".to_owned(),
            made: HashSet::new(),
            bodies: HashMap::new(),
            meddled: BTreeSet::new(),
            meddled_objects: Vec::new(),
            owed: Vec::new(),
            denied: None,
            ended: Vec::new(),
            touched_foreign: false,
            changes: 0,
            tell,
            lines: Vec::new(),
            seen: HashMap::new(),
        };
        let stranger = server.kit().client_ref().clone();
        let moved = Arc::default();
        Self { server, stranger, book: Arc::new(Mutex::new(book)), moved, began: now }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the story.
    pub(super) fn tell(&self, who: Who, text: impl FnOnce() -> String) {
        if self.book().tell {
            let line = Line { at: self.began.elapsed(), who, text: text() };
            self.book().lines.push(line);
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
    pub(super) async fn rest(&self, quiet: Duration, deadline: Instant) -> bool {
        loop {
            let (busy, disturbed) = {
                let book = self.book();
                (book.in_flight > 0 || book.down.is_some(), book.disturbed)
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

    // --- the operator's life

    /// Runs the operator for ever: what dies or ends is started anew.
    pub(super) async fn supervise(self, operator: super::Operator) {
        let mut wait = RESTART;
        loop {
            let generation = {
                let mut book = self.book();
                book.generation += 1;
                book.seen.clear();
                book.generation
            };
            self.tell(Who::Operator, || if generation == 1 { "starts".into() } else { "starts anew".into() });
            let mut running = tokio::task::spawn_local(operator(self.client(generation)));
            tokio::select! {
                biased;
                () = self.dead(generation) => {
                    running.abort();
                    drop(running.await);
                }
                ended = &mut running => {
                    let how = match ended {
                        Ok(how) => format!("it ended: {how}"),
                        Err(error) if error.is_panic() => format!("it panicked: {}", panic_text(&*error.into_panic())),
                        Err(_) => "it was stopped".to_owned(),
                    };
                    self.tell(Who::Operator, || how.clone());
                    self.book().generation += 1;
                    self.disturb(|| how.clone());
                    self.book().ended.push(how);
                    sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(60));
                }
            }
            while let Some(until) = self.down_until() {
                tokio::select! {
                    () = sleep_until(until) => self.book().down = None,
                    () = self.moved.notified() => {}
                }
            }
        }
    }

    fn down_until(&self) -> Option<Instant> {
        self.book().down
    }

    async fn dead(&self, generation: u64) {
        loop {
            let moved = self.moved.notified();
            if self.book().generation != generation {
                return;
            }
            moved.await;
        }
    }

    /// Kills the operator: nothing of it acts or hears any more.
    pub(super) fn kill(&self, down_for: Option<Duration>) {
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

    fn client(&self, generation: u64) -> kube::Client {
        let service = HarnessService { harness: self.clone(), generation };
        client_over(service, Some("admin-token"), self.server.kit().namespace())
    }

    fn is_dead(&self, generation: u64) -> bool {
        self.book().generation != generation
    }

    // --- requests

    fn arrive(&self, generation: u64, method: &http::Method, info: &RequestInfo) -> Option<Arrival> {
        let mut book = self.book();
        if book.generation != generation || book.sent.len() > book.bound {
            return None;
        }
        let name = describe(method, info);
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
        book.sent.push(Sent { place, info: info.clone() });
        let now = Instant::now();
        let denied = book.denied.clone().filter(|denied| {
            now < denied.until && denied.resource.as_ref().is_none_or(|of| *of == info.resource)
        });
        let counted = info.verb != Some(Verb::Watch);
        if counted {
            book.in_flight += 1;
        }
        drop(book);
        let in_flight = counted.then(|| InFlight(self.clone()));
        Some(Arrival { name, trouble, denied, in_flight })
    }

    fn inert(&self, at: usize) {
        if let Some((_, fate)) = self.book().planned.get_mut(at) {
            *fate = Fate::Inert;
        }
    }

    async fn carry(
        self,
        generation: u64,
        request: Request<kube::client::Body>,
    ) -> Result<Response<HarnessBody>, Interrupted> {
        let info = RequestInfo::of(request.method(), request.uri());
        let Some(arrival) = self.arrive(generation, request.method(), &info) else { return pending().await };
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Interrupted::Cut)?.to_bytes();
        let call = Call { harness: self, generation, info, name: arrival.name, parts, body };
        let answer = call.under(arrival.trouble, arrival.denied).await;
        drop(arrival.in_flight);
        if call.harness.is_dead(generation) {
            return pending().await;
        }
        answer
    }
}

/// One request under way.
struct Call {
    harness: Harness,
    generation: u64,
    info: RequestInfo,
    name: String,
    parts: http::request::Parts,
    body: Bytes,
}

impl Call {
    async fn under(
        &self,
        trouble: Option<(usize, Trouble)>,
        denied: Option<Denied>,
    ) -> Result<Response<HarnessBody>, Interrupted> {
        if let Some(Denied { resource, .. }) = denied {
            return match resource {
                Some(_) => Ok(self.refuse(403)),
                None => Err(self.broken("the server is out of reach")),
            };
        }
        let Some((at, trouble)) = trouble else { return self.serve().await };
        self.harness.tell(Who::Trouble, || format!("{}: {}", self.name, trouble.tell()));
        match trouble {
            Trouble::Lost => Err(self.broken("lost")),
            Trouble::ReplyLost => {
                drop(self.serve().await);
                Err(self.broken("done, and the reply lost"))
            }
            Trouble::DoneLate => {
                self.arrives_after(LATE);
                Err(self.broken("the connection broke"))
            }
            Trouble::Frozen => {
                self.arrives_after(AWAY);
                self.harness.kill(None);
                pending().await
            }
            Trouble::Slow => {
                let answer = self.serve().await;
                sleep(SLOW).await;
                answer
            }
            Trouble::Refused(code) => Ok(self.refuse(code)),
            Trouble::Killed(moment) | Trouble::Down(moment) => {
                if moment == Moment::After {
                    drop(self.serve().await);
                }
                self.harness.kill(matches!(trouble, Trouble::Down(_)).then_some(AWAY));
                pending().await
            }
            Trouble::Stranger(deed, whose, moment) => {
                if moment == Moment::Before
                    && !foreign::act(&self.harness, deed, whose, &self.hand(None)).await
                {
                    self.harness.inert(at);
                }
                let answer = self.serve_read().await?;
                if moment == Moment::After {
                    let hand = self.hand(answer.1.as_ref());
                    if !foreign::act(&self.harness, deed, whose, &hand).await {
                        self.harness.inert(at);
                    }
                }
                Ok(answer.0)
            }
            Trouble::Server(event) => {
                if !self.event(event) {
                    self.harness.inert(at);
                }
                match event {
                    Event::Partitioned => Err(self.broken("the server is out of reach")),
                    Event::RightsTaken => Ok(self.refuse(403)),
                    _ => self.serve().await,
                }
            }
        }
    }

    /// Lets the request be carried out later, on its own.
    fn arrives_after(&self, time: Duration) {
        let (late, in_flight) = (self.again(), self.harness.clone().fly());
        tokio::spawn(async move {
            sleep(time).await;
            drop(late.serve().await);
            drop(in_flight);
        });
    }

    /// The same request, to be carried out on its own.
    fn again(&self) -> Self {
        let mut parts = Request::new(()).into_parts().0;
        parts.method = self.parts.method.clone();
        parts.uri = self.parts.uri.clone();
        parts.headers = self.parts.headers.clone();
        Self {
            harness: self.harness.clone(),
            generation: self.generation,
            info: self.info.clone(),
            name: self.name.clone(),
            parts,
            body: self.body.clone(),
        }
    }

    /// What the request is about, as far as it says so itself or its answer does.
    fn hand(&self, answer: Option<&Value>) -> foreign::Hand {
        let body: Value = serde_yaml_ng::from_slice(&self.body).unwrap_or_default();
        let named = |value: &Value| {
            let name = object::name(value);
            (!name.is_empty()).then(|| name.to_owned())
        };
        let name = self.info.name.clone().or_else(|| answer.and_then(named)).or_else(|| named(&body));
        foreign::Hand { info: self.info.clone(), name, body }
    }

    fn broken(&self, how: &str) -> Interrupted {
        self.harness.disturb(|| format!("{}: {how}", self.name));
        self.harness.tell(Who::Operator, || format!("{} → {how}", self.name));
        Interrupted::Cut
    }

    fn refuse(&self, code: u16) -> Response<HarnessBody> {
        self.harness.disturb(|| format!("{}: {code}", self.name));
        self.harness.tell(Who::Operator, || format!("{} → {code}", self.name));
        refusal(code, &self.info).to_response().map(|bytes| HarnessBody::whole(FaultyBody::whole(bytes)))
    }

    async fn serve(&self) -> Result<Response<HarnessBody>, Interrupted> {
        Ok(self.serve_read().await?.0)
    }

    /// Carries it out; gives the answer's object as well.
    async fn serve_read(&self) -> Result<(Response<HarnessBody>, Option<Value>), Interrupted> {
        let writes = self.info.verb.is_some_and(Verb::writes);
        let core = self.harness.server.core();
        let before = writes.then(|| core.peek(&self.info)).flatten();
        let version = core.resource_version();
        let mut request = Request::new(http_body_util::Full::new(self.body.clone()));
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let handled = self.harness.server.front().handle(request, Passage::Ruled).await;
        let response = handled.inspect_err(|_| {
            self.broken("the connection broke");
        })?;
        if self.info.verb == Some(Verb::Watch) && response.status().is_success() {
            self.harness
                .tell(Who::Operator, || format!("{} from version {:?}", self.name, self.info.version_asked));
            let heard = Heard {
                harness: self.harness.clone(),
                generation: self.generation,
                of: self.info.resource.clone(),
            };
            return Ok((response.map(|body| HarnessBody { body, heard: Some(heard) }), None));
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|_| Interrupted::Cut)?.to_bytes();
        let reads = writes || self.harness.book().tell;
        let value = reads.then(|| serde_json::from_slice::<Value>(&bytes).ok()).flatten();
        self.note(parts.status.as_u16(), version, before.as_ref(), value.as_ref());
        let response = Response::from_parts(parts, HarnessBody::whole(FaultyBody::whole(bytes)));
        Ok((response, value))
    }

    /// Takes note of an answer.
    fn note(&self, code: u16, version: u64, before: Option<&Value>, answer: Option<&Value>) {
        let failed = code >= 400 && !(code == 404 && self.info.verb == Some(Verb::Get));
        let writes = self.info.verb.is_some_and(Verb::writes);
        let after = answer.filter(|_| writes && code < 300);
        let risen = |after: &Value| {
            object::text(after, "resourceVersion").parse::<u64>().is_ok_and(|now| now > version)
        };
        let deletes = matches!(self.info.verb, Some(Verb::Delete | Verb::DeleteCollection));
        let changed = after.is_some_and(|after| risen(after) || deletes);
        if failed {
            self.harness.disturb(|| format!("{} → {code}", self.name));
        }
        if changed {
            self.harness.disturb(|| format!("{} changed something", self.name));
            self.harness.book().changes += 1;
        }
        if let Some(after) = after {
            self.wrote(before, after, changed, deletes);
        }
        self.harness.tell(Who::Operator, || self.line(code, before, answer, changed));
        self.saw(answer);
    }

    /// Keeps what was made, what was sent, and whose it was.
    fn wrote(&self, before: Option<&Value>, after: &Value, changed: bool, deletes: bool) {
        let mut book = self.harness.book();
        let uid = object::uid(after).to_owned();
        if before.is_none() && !deletes && !uid.is_empty() && self.info.subresource.is_empty() {
            book.made.insert(uid);
        } else if changed
            && let Some(before) = before
            && !book.made.contains(object::uid(before))
        {
            let resource = self.info.resource.clone();
            let fields = if deletes { vec!["(deleted)".to_owned()] } else { changed_fields(before, after) };
            for field in fields {
                let what = format!("{}: {field}", self.name);
                if book.meddled.insert((resource.clone(), field)) {
                    book.meddled_objects.push(what);
                }
            }
        }
        if !deletes
            && self.info.subresource.is_empty()
            && let Ok(sent) = serde_yaml_ng::from_slice::<Value>(&self.body)
        {
            let key = object::key(object::namespace(after), object::name(after));
            book.bodies.insert(format!("{} {key}", self.info.resource), sent);
        }
    }

    /// Takes note of what an answer has shown to the operator.
    fn saw(&self, answer: Option<&Value>) {
        let Some(answer) = answer else { return };
        let mut book = self.harness.book();
        if !book.tell {
            return;
        }
        let now = Instant::now();
        let one = [answer.clone()];
        for item in answer["items"].as_array().map_or(&one[..], Vec::as_slice) {
            if let Some((key, version)) = seen_as(&self.info.resource, item) {
                book.seen.insert(key, (version, now));
            }
        }
    }

    fn line(&self, code: u16, before: Option<&Value>, answer: Option<&Value>, changed: bool) -> String {
        let mut line = format!("{} → {code}", self.name);
        let writes = self.info.verb.is_some_and(Verb::writes);
        if let Some(answer) = answer {
            if code >= 400 {
                line += &format!(" {}", answer["message"].as_str().unwrap_or_default());
            } else if writes {
                let made = before.is_none() && self.info.name.is_none();
                let name = if made { format!(", made {}", object::name(answer)) } else { String::new() };
                let version = object::text(answer, "resourceVersion");
                line += &match changed {
                    true if version.is_empty() => ", gone".to_owned(),
                    true => format!("{name}, version {version}"),
                    false => ", nothing changed".to_owned(),
                };
            }
        }
        if let Some(before) = before.filter(|_| writes) {
            line += &self.staleness(before);
            for field in changed_fields(before, answer.unwrap_or(&Value::Null)).iter().take(4) {
                if changed && code < 300 {
                    line += &format!("\n{:>12}{field}", "");
                }
            }
        }
        line
    }

    /// Says how far behind the operator's view of an object is.
    fn staleness(&self, before: &Value) -> String {
        let version = object::text(before, "resourceVersion").parse::<u64>().unwrap_or_default();
        let Some((key, _)) = seen_as(&self.info.resource, before) else { return String::new() };
        match self.harness.book().seen.get(&key) {
            Some((known, at)) if *known < version => {
                format!(
                    "  [stale: it has seen version {known}, {:.1?} ago; {version} is there]",
                    at.elapsed()
                )
            }
            Some(_) => String::new(),
            None => "  [it has not seen this object]".to_owned(),
        }
    }

    /// Lets something happen to the server; false where there is nothing to happen.
    fn event(&self, event: Event) -> bool {
        let (server, faults) = (&self.harness.server, self.harness.server.faults());
        let open = faults.open_streams() as u64;
        match event {
            Event::WatchesCut | Event::WatchesSilent if open == 0 => return false,
            Event::WatchesCut => {
                let rule = faults.on(Verb::Watch, "*").times(open);
                drop(rule.then(Fault::Cut));
            }
            Event::WatchesSilent => {
                let rule = faults.on(Verb::Watch, "*").times(open);
                drop(rule.then(Fault::Silence));
            }
            Event::WatchesLate => {
                let armed = faults.on(Verb::Watch, &self.info.resource).then(Fault::Silence);
                let in_flight = self.harness.clone().fly();
                tokio::spawn(async move {
                    sleep(LAG).await;
                    armed.disarm();
                    drop(in_flight);
                });
            }
            Event::Restarts => server.restart(Restart::Keep),
            Event::ForgetsHistory => server.restart(Restart::ForgetHistory),
            Event::Restored => {
                let to = server.resource_version().saturating_sub(2);
                return server.front().restart(Restart::At(to)).is_ok();
            }
            Event::RightsTaken | Event::Partitioned => {
                let resource = (event == Event::RightsTaken).then(|| self.info.resource.clone());
                let until = Instant::now() + AWAY;
                self.harness.book().denied = Some(Denied { resource, until });
                if event == Event::Partitioned && open > 0 {
                    drop(faults.on(Verb::Watch, "*").times(open).then(Fault::Cut));
                }
            }
            Event::ClockAhead => server.clock().skew(jiff::SignedDuration::from_hours(1)),
        }
        true
    }
}

impl Harness {
    /// Counts something as under way until the guard goes.
    pub(super) fn fly(self) -> impl Drop + Send + 'static {
        self.book().in_flight += 1;
        InFlight(self)
    }
}

fn seen_as(resource: &str, item: &Value) -> Option<(String, u64)> {
    let version = object::text(item, "resourceVersion").parse().ok()?;
    let key = object::key(object::namespace(item), object::name(item));
    Some((format!("{resource} {key}"), version))
}

/// Names the fields outside the status that differ, to the second level within the metadata.
fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    const KEPT_BY_SERVERS: [&str; 6] =
        ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];
    let empty = serde_json::Map::new();
    let (old, new) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut fields = Vec::new();
    for key in keys {
        if key == "metadata" {
            let (old, new) = (old[key].as_object().unwrap_or(&empty), &after["metadata"]);
            let new = new.as_object().unwrap_or(&empty);
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let changed = names
                .into_iter()
                .filter(|name| !KEPT_BY_SERVERS.contains(&name.as_str()) && old.get(*name) != new.get(*name));
            fields.extend(changed.map(|name| format!("metadata.{name}")));
        } else if key != "status" && old.get(key) != new.get(key) {
            fields.push(key.clone());
        }
    }
    fields
}

fn refusal(code: u16, info: &RequestInfo) -> Status {
    let name = info.name.as_deref().unwrap_or_default();
    let reason = match code {
        403 => "Forbidden",
        404 => return Status::not_found(&info.group, &info.resource, name),
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let mut status = Status::new(code, Some(reason), format!("a trial refuses this request with {code}"));
    if matches!(code, 429 | 503) {
        status.retry_after = Some(2);
    }
    status
}

pub(super) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "?".into())
}

/// The harness as a tower service, for one life of the operator.
#[derive(Clone, Debug)]
struct HarnessService {
    harness: Harness,
    generation: u64,
}

impl Service<Request<kube::client::Body>> for HarnessService {
    type Response = Response<HarnessBody>;
    type Error = Interrupted;
    type Future = BoxFuture<'static, Result<Response<HarnessBody>, Interrupted>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Interrupted>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.harness.clone().carry(self.generation, request))
    }
}

/// Who hears a watch.
#[derive(Debug)]
struct Heard {
    harness: Harness,
    generation: u64,
    of: String,
}

impl Heard {
    fn note(&self, bytes: &Bytes) {
        if !self.harness.book().tell {
            return;
        }
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
            let (kind, item) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            if kind == "BOOKMARK" {
                continue;
            }
            let key = object::key(object::namespace(item), object::name(item));
            let version = object::text(item, "resourceVersion");
            self.harness.tell(Who::Watch, || format!("{kind} {} {key}, version {version}", self.of));
            if let Some((key, version)) = seen_as(&self.of, item) {
                self.harness.book().seen.insert(key, (version, Instant::now()));
            }
        }
    }
}

/// An answer's body; one that a dead operator reads never goes on.
pub(super) struct HarnessBody {
    body: FaultyBody,
    heard: Option<Heard>,
}

impl fmt::Debug for HarnessBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessBody").finish_non_exhaustive()
    }
}

impl HarnessBody {
    fn whole(body: FaultyBody) -> Self {
        Self { body, heard: None }
    }
}

impl Body for HarnessBody {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        if self.heard.as_ref().is_some_and(|heard| heard.harness.is_dead(heard.generation)) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(heard), Some(Ok(frame))) = (&self.heard, &frame)
            && let Some(bytes) = frame.data_ref()
        {
            heard.note(bytes);
        }
        Poll::Ready(frame)
    }
}

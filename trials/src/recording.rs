//! Reads what a flight recorder wrote: what was there, what others changed, and what the operator wrote.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::path::Path;
use std::time::Duration;

use http::{Method, Uri};
use serde_json::Value;
use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::{RequestInfo, object};

use crate::diff;
use crate::hidden::HiddenField;
use crate::recorded_lines::{self, RecordedLine, RecordedLines};
use crate::schedule::describe;
use crate::world::MACHINERY;

/// A change by somebody else.
#[derive(Clone, Debug)]
pub(crate) struct ForeignEvent {
    /// After the beginning of the recording.
    pub(crate) at: Duration,
    /// The path of the object.
    pub(crate) path: String,
    /// Before it; `None`: there was none, or it was not seen.
    pub(crate) before: Option<Value>,
    /// After it; `None`: it is gone.
    pub(crate) after: Option<Value>,
}

/// A write of the operator that changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) at: Duration,
    /// The request in words.
    pub(crate) request: String,
    /// What changed, without what servers choose.
    pub(crate) lines: Vec<String>,
}

/// What a recording tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    /// The objects that were there at first, by path.
    pub(crate) initial: Vec<(String, Value)>,
    pub(crate) others: Vec<ForeignEvent>,
    pub(crate) effects: Vec<Effect>,
    /// The paths of the objects that the operator made, by the UIDs that they had.
    pub(crate) made: HashMap<String, String>,
    /// The UIDs of the first objects that it made under names of its own choice, by path: a build makes them in any case.
    pub(crate) first_made: HashMap<String, String>,
    pub(crate) runs: usize,
    /// How many requests were sent.
    pub(crate) requests: usize,
    /// Lines that the recorder left out.
    pub(crate) missing: u64,
    pub(crate) took: Duration,
    /// What its lines do not have.
    pub(crate) hidden: Vec<HiddenField>,
    /// The namespaces that requests named.
    pub(crate) asked_in: BTreeSet<String>,
}

/// A request of the operator.
#[derive(Clone)]
struct RecordedRequest {
    method: Method,
    uri: Uri,
    info: RequestInfo,
    body: Value,
    /// The newest version of its object that had been seen when it was sent.
    seen: u64,
}

impl RecordedRequest {
    /// Returns the token of the page that it asks for, unless that is the first.
    fn continues(&self) -> Option<&str> {
        self.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("continue="))
    }

    fn selects(&self) -> bool {
        let query = self.uri.query().unwrap_or_default();
        ["labelSelector=", "fieldSelector="].iter().any(|part| query.contains(part))
    }
}

impl Recording {
    /// # Errors
    ///
    /// The file can't be read, or is not a recording.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let read = recorded_lines::read(file).map_err(|error| error.to_string());
        read.and_then(|text| Self::parse(&text))
            .map_err(|error| format!("the recording {} can't be read: {error}", file.display()))
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let (mut asked, mut reading, mut start) = (HashMap::new(), Reading::default(), Start::default());
        // An event may be there before the answer to the write that caused it.
        for (number, line) in RecordedLines::new(text).enumerate() {
            let line = line?;
            reading.note_own(&mut asked, &line.value);
            start.note(number, &line);
        }
        let mut asked = HashMap::new();
        let mut lines = RecordedLines::new(text);
        for line in lines.by_ref().take(start.folded) {
            // A process that begins reads all that there is.
            if start.whole.is_some() {
                reading.take(&mut asked, &line?);
            }
        }
        if start.whole.is_some() {
            reading.begin(&asked);
        }
        let (mut began, mut took) = (start.whole, Duration::ZERO);
        for line in lines {
            let mut line = line?;
            line.at = line.at.saturating_sub(*began.get_or_insert(line.at));
            reading.take(&mut asked, &line);
            took = line.at;
        }
        reading.take_all_early();
        reading.recording.effects.sort_by_key(|effect| effect.at);
        // It makes these again.
        reading.recording.asked_in.retain(|namespace| !reading.made_namespaces.contains(namespace));
        let mut first_made = reading.first_made;
        // This build meets these, and makes others only after them.
        reading.recording.initial.iter().for_each(|(path, _)| drop(first_made.remove(path)));
        Ok(Self { took, made: reading.made, first_made, ..reading.recording })
    }

    /// Names the namespaces in which there is something.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        let paths = self.initial.iter().map(|(path, _)| path).chain(self.others.iter().map(|one| &one.path));
        let namespace = |path: &String| RequestInfo::of(&Method::GET, &path.parse().ok()?).namespace;
        // The operator may have been the only one who wrote there.
        paths.filter_map(namespace).chain(self.asked_in.iter().cloned()).collect()
    }
}

/// Finds where what happened begins.
#[derive(Default)]
struct Start {
    /// How many lines come before it.
    folded: usize,
    /// When lines have shown all that was there; `None` where a process begins, or nothing is known.
    whole: Option<Duration>,
    /// It was found.
    is_over: bool,
    parts: HashSet<u64>,
}

impl Start {
    fn note(&mut self, number: usize, line: &RecordedLine) {
        let part = line.value["part"].as_u64();
        match self.whole {
            _ if self.is_over => {}
            // What was read before this moment is cached by then, and its line may follow.
            Some(whole) if line.at <= whole && part != Some(1) => self.folded = number + 1,
            Some(_) => self.is_over = true,
            None if part == Some(1) => (self.folded, self.is_over) = (number, true),
            None => {
                self.parts.extend(part);
                if line.value["whole"].as_u64().is_some_and(|since| self.parts.contains(&since)) {
                    (self.folded, self.whole) = (number + 1, Some(line.at));
                }
            }
        }
    }
}

/// What is known while a recording is read.
#[derive(Default)]
struct Reading {
    recording: Recording,
    /// Objects by path, as they were last seen.
    known: HashMap<String, Value>,
    /// The paths and versions of the operator's writes.
    own: HashSet<(String, String)>,
    /// What was there before a write of the operator whose event came before its answer.
    before_own: HashMap<(String, String), Option<Value>>,
    /// The UIDs of what it deleted.
    deleted: HashSet<String>,
    /// The UIDs of what its writes ended: nobody else had to let it go.
    ended_by_it: HashSet<String>,
    /// The paths of the objects that it made, by UID.
    made: HashMap<String, String>,
    /// All versions that are shown anywhere, by path.
    versions: HashMap<String, BTreeSet<u64>>,
    /// Answers to writes that came before a change of others that is older, by path.
    early: HashMap<String, Vec<EarlyAnswer>>,
    /// The newest versions that were seen, by path, while the operator's writes are looked for.
    newest: HashMap<String, u64>,
    /// The first of those at each path, unless the server chose the name.
    first_made: HashMap<String, String>,
    /// The namespaces that the operator made.
    made_namespaces: HashSet<String>,
    /// The last state of what is gone, by path, until the answer to the write that ended it.
    ended: HashMap<String, Value>,
    /// The collections that have been listed to the end.
    listed: HashSet<String>,
    /// The versions at which objects went, by path: what is encoded later may be older.
    gone: HashMap<String, u64>,
    /// What watches that list have shown so far, by request.
    shown: HashMap<u64, HashSet<String>>,
    /// What the pages of lists have shown so far, by collection and the token of the next page; not those of selections.
    pages: HashMap<(String, String), HashSet<String>>,
    /// The objects whose last change was shown by a watch of metadata alone.
    partly: HashSet<String>,
    /// A part begins: requests that go on are named again.
    names_again: bool,
}

/// An answer to a write.
struct EarlyAnswer {
    at: Duration,
    of: RecordedRequest,
    answer: Value,
}

impl Reading {
    /// What the lines so far have shown was there at first. What follows is played.
    fn begin(&mut self, asked: &HashMap<u64, RecordedRequest>) {
        self.take_all_early();
        let (missing, hidden) = (self.recording.missing, mem::take(&mut self.recording.hidden));
        let asked_in = mem::take(&mut self.recording.asked_in);
        let initial = self.known.iter().map(|(path, value)| (path.clone(), value.clone()));
        let mut initial: Vec<_> = initial.collect();
        initial.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.recording = Recording { initial, missing, hidden, asked_in, ..Recording::default() };
        let reads = asked.values().filter(|asked| asked.method == Method::GET);
        self.listed.extend(reads.map(|asked| asked.uri.path().to_owned()));
    }

    fn note_own(&mut self, asked: &mut HashMap<u64, RecordedRequest>, line: &Value) {
        let id = line["request"].as_u64();
        let before = id.and_then(|id| asked.get(&id)).map(|sent| (sent.uri.clone(), sent.seen));
        note_request(asked, line);
        if let Some(sent) = id.and_then(|id| asked.get_mut(&id)) {
            let newest = || self.newest.get(&path_of(sent, &Value::Null)?).copied();
            // A part that begins names again what is under way.
            let again = before.filter(|(uri, _)| *uri == sent.uri).map(|(_, seen)| seen);
            sent.seen = again.or_else(newest).unwrap_or_default();
        }
        self.note_newest(asked, line);
        let Some(asked) = line["answer"].as_u64().and_then(|id| asked.get(&id)) else { return };
        let (body, is_done) = (&line["body"], line["code"].as_u64().is_some_and(|code| code < 300));
        let Some(verb) = asked.info.verb.filter(|verb| verb.writes() && is_done) else { return };
        if matches!(verb, Verb::Delete | Verb::DeleteCollection) {
            let uid = body["details"]["uid"].as_str().unwrap_or_default();
            let gone =
                body["items"].as_array().into_iter().flatten().chain([body]).map(object::uid).chain([uid]);
            self.deleted.extend(gone.filter(|uid| !uid.is_empty()).map(str::to_owned));
            let all = body["items"].as_array().into_iter().flatten().chain([body]);
            let gone = all.filter(|one| !waits(one)).map(object::uid).chain([uid]);
            self.ended_by_it.extend(gone.filter(|uid| !uid.is_empty()).map(str::to_owned));
        } else if object::is_deleting(body) && !waits(body) {
            self.deleted.insert(object::uid(body).to_owned());
            self.ended_by_it.insert(object::uid(body).to_owned());
        }
        if line["code"] == 201
            && asked.info.subresource.is_empty()
            && let Some(path) = path_of(asked, body)
        {
            if object::text(body, "generateName").is_empty() {
                self.first_made.entry(path.clone()).or_insert_with(|| object::uid(body).to_owned());
            }
            self.made.insert(object::uid(body).to_owned(), path);
        }
        // A write that changed nothing is answered with the version that somebody else made.
        let is_new = version(body) == 0 || version(body) > asked.seen;
        if let Some(path) = path_of(asked, body).filter(|_| is_new) {
            self.own.insert((path, object::text(body, "resourceVersion").to_owned()));
        }
    }

    /// Keeps the newest version of each object that a line shows.
    fn note_newest(&mut self, asked: &HashMap<u64, RecordedRequest>, line: &Value) {
        let id = line["event"].as_u64().or_else(|| line["answer"].as_u64());
        let of = id.and_then(|id| asked.get(&id));
        let (body, event) = (&line["body"], &line["line"]["object"]);
        let items = body["items"].as_array().into_iter().flatten().chain([event]);
        let listed = of.into_iter().flat_map(|of| {
            items.clone().filter_map(|item| Some((item_path(of.uri.path(), item)?, version(item))))
        });
        let answered = of.and_then(|of| Some((path_of(of, body)?, version(body))));
        let cached = line["path"].as_str().map(|path| (path.to_owned(), version(&line["object"])));
        for (path, version) in listed.chain(answered).chain(cached) {
            let newest = self.newest.entry(path.clone()).or_default();
            *newest = version.max(*newest);
            self.versions.entry(path).or_default().insert(version);
        }
    }

    fn take(&mut self, asked: &mut HashMap<u64, RecordedRequest>, line: &RecordedLine) {
        let value = &line.value;
        if let Some(part) = value["part"].as_u64() {
            self.names_again = part > 1;
        }
        self.names_again &= !value["settings"].is_object();
        if let Some(hidden) = HiddenField::all(value) {
            self.recording.hidden = hidden;
        }
        note_request(asked, value);
        if let Some((id, of)) = value["request"].as_u64().and_then(|id| Some((id, asked.get(&id)?))) {
            let is_below = of.info.resource != "namespaces";
            self.recording.asked_in.extend(of.info.namespace.clone().filter(|_| is_below));
            let asks = |what: &str| of.uri.query().is_some_and(|query| query.contains(what));
            if !self.names_again {
                if asks("sendInitialEvents=true") {
                    self.shown.insert(id, HashSet::new());
                }
            } else if asks("watch=true") && !self.shown.contains_key(&id) {
                // It has listed in an earlier part.
                self.listed.insert(of.uri.path().to_owned());
            }
        }
        self.recording.missing += value["missing"].as_u64().unwrap_or_default();
        self.recording.runs += usize::from(value["run"].is_object());
        self.recording.requests += usize::from(value["request"].is_u64());
        if let (Some(path), true) = (value["path"].as_str(), value["object"].is_object()) {
            // Where versions can't be compared, what was seen is newer than what was cached.
            let is_seen = version(&value["object"]) == 0 && self.known.contains_key(path);
            if !is_seen {
                self.see(line.at, path.to_owned(), Some(&value["object"]), true);
            }
            return;
        }
        let id = value["event"].as_u64().or_else(|| value["answer"].as_u64());
        let Some(of) = id.and_then(|id| asked.get(&id)) else { return };
        if MACHINERY.contains(&of.info.resource.as_str()) {
            return;
        }
        if value["line"].is_object() {
            return self.event(line.at, (id.unwrap_or_default(), of), &value["line"]);
        }
        let is_done = value["code"].as_u64().is_some_and(|code| code < 300);
        match of.info.verb {
            // It was too large to be recorded: that says nothing of what is there.
            Some(Verb::List) if is_done && value["body"].is_null() => self.recording.missing += 1,
            Some(Verb::List) if is_done => self.list(line.at, of, &value["body"]),
            Some(Verb::Get) if is_done => {
                if let Some(path) = path_of(of, &value["body"]) {
                    self.see(line.at, path, Some(&value["body"]), false);
                }
            }
            Some(verb) if verb.writes() && is_done => self.answered(line.at, of, &value["body"]),
            _ => {}
        }
    }

    fn event(&mut self, at: Duration, (id, of): (u64, &RecordedRequest), event: &Value) {
        let object = &event["object"];
        if event["type"] == "BOOKMARK" {
            // It names no object.
            let is_first = self.listed.insert(of.uri.path().to_owned());
            if object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
                && let Some(shown) = self.shown.remove(&id)
                && !is_first
            {
                self.only(at, of, &shown, version(object));
            }
        }
        let Some(path) = item_path(of.uri.path(), object) else { return };
        // The first events of a watch are what was there, if it asks for that.
        let query = of.uri.query().unwrap_or_default();
        let initial = query.contains("sendInitialEvents=true") && !self.listed.contains(of.uri.path());
        if let Some(shown) = self.shown.get_mut(&id) {
            shown.insert(path.clone());
        }
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => self.see(at, path, Some(object), initial),
            Some("DELETED") => {
                // What only left a selection has the version of that change.
                let is_there = self.known.get(&path).is_some_and(|known| version(known) >= version(object));
                // So it is where the operator itself took off a label that was selected by.
                let written = (path.clone(), object::text(object, "resourceVersion").to_owned());
                let is_there = is_there || self.own.contains(&written);
                if !(is_there && of.selects()) {
                    self.gone.insert(path.clone(), version(object));
                    self.see(at, path, None, false);
                }
            }
            _ => {}
        }
    }

    fn list(&mut self, at: Duration, of: &RecordedRequest, list: &Value) {
        let place = of.uri.path().to_owned();
        // All pages of the first list are.
        let initial = !self.listed.contains(&place);
        // By the token: several may be read at once. A page that was not recorded may have shown anything.
        let token = |text: &str| (place.clone(), text.to_owned());
        let before = of.continues().map(|from| self.pages.remove(&token(from)));
        let knows_all = !of.selects() && !matches!(before, Some(None));
        let before = before.flatten();
        let mut there = before.unwrap_or_default();
        let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            // Items of a list do not name their kind.
            if item["kind"].is_null() {
                (item["kind"], item["apiVersion"]) = (kind.clone().into(), list["apiVersion"].clone());
            }
            let Some(path) = item_path(&place, &item) else { continue };
            there.insert(path.clone());
            self.see(at, path, Some(&item), initial);
        }
        let next = object::text(list, "continue");
        if !next.is_empty() {
            if knows_all {
                self.pages.insert(token(next), there);
            }
            return;
        }
        self.listed.insert(place);
        if knows_all && !initial {
            self.only(at, of, &there, version(list));
        }
    }

    /// A list showed what there is of a collection at a version; if it was of all objects, the others are gone.
    fn only(&mut self, at: Duration, of: &RecordedRequest, there: &HashSet<String>, as_of: u64) {
        if of.selects() {
            return;
        }
        let (collection, plural) = (of.uri.path(), of.uri.path().rsplit('/').next().unwrap_or_default());
        // Another watch, or an answer, may show what is newer.
        let is_gone = |(path, known): &(&String, &Value)| {
            is_below(path, collection, plural)
                && !there.contains(*path)
                && (as_of == 0 || version(known) <= as_of)
        };
        let after = |known: &Value| if version(known) == 0 { 0 } else { version(known) + 1 };
        let gone = self.known.iter().filter(is_gone).map(|(path, known)| (path.clone(), after(known)));
        let mut gone: Vec<_> = gone.collect();
        gone.sort();
        for (path, version) in gone {
            self.gone.insert(path.clone(), version);
            self.see(at, path, None, false);
        }
    }

    /// Takes a state of an object that the operator was shown, and the answers that waited for it.
    fn see(&mut self, at: Duration, path: String, state: Option<&Value>, initial: bool) {
        self.show(at, path.clone(), state, initial);
        self.take_early(&path, |reading, early| !reading.is_early(&path, &early.answer));
    }

    /// Takes the answers that came early, as far as they are due.
    fn take_early(&mut self, path: &str, is_due: impl Fn(&Self, &EarlyAnswer) -> bool) {
        let Some(mut waiting) = self.early.remove(path) else { return };
        while waiting.first().is_some_and(|early| is_due(self, early)) {
            let EarlyAnswer { at, of, answer } = waiting.remove(0);
            self.wrote(at, &of, &answer);
        }
        if !waiting.is_empty() {
            self.early.insert(path.to_owned(), waiting);
        }
    }

    /// Takes all of them: what they wait for was not recorded.
    fn take_all_early(&mut self) {
        let mut early: Vec<String> = self.early.keys().cloned().collect();
        early.sort();
        early.iter().for_each(|path| self.take_early(path, |_, _| true));
    }

    /// Returns whether a change of others that is older than an answer is still to be shown.
    fn is_early(&self, path: &str, answer: &Value) -> bool {
        let known = self.known.get(path).map(version).max(self.gone.get(path).copied());
        let between = known.unwrap_or_default() + 1..version(answer).max(1);
        let is_own = |of: &u64| self.own.contains(&(path.to_owned(), of.to_string()));
        let versions = self.versions.get(path).filter(|_| !between.is_empty());
        versions.is_some_and(|all| all.range(between).any(|of| !is_own(of)))
    }

    fn show(&mut self, at: Duration, path: String, state: Option<&Value>, initial: bool) {
        let before = self.known.get(&path).cloned();
        let Some(state) = state else {
            let Some(before) = before else { return };
            self.known.remove(&path);
            self.ended.insert(path.clone(), before.clone());
            if !self.ended_by_it.contains(object::uid(&before)) {
                self.recording.others.push(ForeignEvent { at, path, before: Some(before), after: None });
            }
            return;
        };
        if self.gone.get(&path).is_some_and(|gone| version(state) < *gone) {
            return;
        }
        // A watch of metadata may show a version before one that shows all of it, or alone.
        let is_partial = |object: &Value| object["kind"] == "PartialObjectMetadata";
        let mut state = Cow::Borrowed(state);
        let is_partly = is_partial(&state);
        if let Some(before) = &before {
            let completes = !is_partly && (is_partial(before) || self.partly.contains(&path));
            let differs = version(&state) == 0 && *state != *before;
            let is_newer = version(&state) > version(before) || differs;
            if !(is_newer || (completes && version(&state) == version(before))) {
                return;
            }
            if is_partly && !is_partial(before) {
                let mut whole = before.clone();
                whole["metadata"] = state["metadata"].clone();
                state = Cow::Owned(whole);
            }
        }
        match is_partly {
            true => self.partly.insert(path.clone()),
            false => self.partly.remove(&path),
        };
        let state: &Value = &state;
        let written = (path.clone(), object::text(state, "resourceVersion").to_owned());
        let own = self.own.contains(&written);
        if own {
            self.before_own.insert(written, before.clone());
        }
        self.known.insert(path.clone(), state.clone());
        match (initial && before.is_none(), own) {
            (true, _) => self.recording.initial.push((path, state.clone())),
            (false, true) => {}
            (false, false) => {
                self.recording.others.push(ForeignEvent { at, path, before, after: Some(state.clone()) });
            }
        }
    }

    fn answered(&mut self, at: Duration, of: &RecordedRequest, answer: &Value) {
        let path = path_of(of, answer).unwrap_or_else(|| of.uri.path().to_owned());
        let written = (path.clone(), object::text(answer, "resourceVersion").to_owned());
        let is_shown = self.before_own.contains_key(&written);
        match !is_shown && self.is_early(&path, answer) {
            true => {
                let early = EarlyAnswer { at, of: of.clone(), answer: answer.clone() };
                self.early.entry(path).or_default().push(early);
            }
            false => self.wrote(at, of, answer),
        }
    }

    fn wrote(&mut self, at: Duration, of: &RecordedRequest, answer: &Value) {
        let body = of.body.to_string();
        let request = describe(&of.method, &of.info, body.as_bytes());
        let path = path_of(of, answer).unwrap_or_else(|| of.uri.path().to_owned());
        if matches!(of.info.verb, Some(Verb::Delete | Verb::DeleteCollection)) {
            // Its end may have been shown before the answer.
            let ended = self.ended.remove(&path);
            let was_ended = || ended.is_some_and(|ended| self.deleted.contains(object::uid(&ended)));
            let all = answer["items"].as_array().is_some_and(|items| !items.is_empty());
            let there = match of.info.verb {
                Some(Verb::DeleteCollection) => all,
                _ => self.known.contains_key(&path) || was_ended(),
            };
            if there {
                self.recording.effects.push(Effect {
                    at,
                    request,
                    lines: vec!["- the whole object".to_owned()],
                });
            }
            return;
        }
        // A review, or a token, is stored nowhere.
        if object::text(answer, "resourceVersion").is_empty() {
            return;
        }
        let written = (path.clone(), object::text(answer, "resourceVersion").to_owned());
        let was_ended = || {
            let is_older = self.gone.get(&path).is_some_and(|gone| (1..=*gone).contains(&version(answer)));
            self.ended.get(&path).filter(|_| is_older)
        };
        let known = || self.known.get(&path).or_else(was_ended).cloned();
        let before = self.before_own.remove(&written).unwrap_or_else(known);
        // Answers of other subresources have a form of their own.
        let alike = before.as_ref().is_none_or(|before| before["kind"] == answer["kind"]);
        if !alike || answer["metadata"].is_null() {
            return;
        }
        if before.is_none() && of.info.resource == "namespaces" {
            self.made_namespaces.insert(object::name(answer).to_owned());
        }
        let lines = effect(before.as_ref(), answer);
        if !lines.is_empty() {
            self.recording.effects.push(Effect { at, request, lines });
        }
        // A later change, or the end, may have been shown before the answer.
        let is_over = self.gone.get(&path).is_some_and(|gone| version(answer) <= *gone);
        let is_old = self.known.get(&path).is_some_and(|known| version(answer) < version(known));
        if !is_over && !is_old {
            self.known.insert(path, answer.clone());
        }
    }
}

/// Returns the version of an object; 0 for one that can't be compared.
fn version(object: &Value) -> u64 {
    object::text(object, "resourceVersion").parse().unwrap_or_default()
}

/// Returns whether somebody still has to let go of what is deleted: of a Pod, the kubelet.
///
/// The answer to the deletion of a collection may show its objects as they were before.
fn waits(deleted: &Value) -> bool {
    let grace = object::meta(deleted, "deletionGracePeriodSeconds").and_then(Value::as_u64);
    let is_to_end = !object::is_deleting(deleted) && deleted["spec"]["nodeName"].is_string();
    !object::finalizers(deleted).is_empty() || grace.unwrap_or_default() > 0 || is_to_end
}

/// Says what a write changed, all of it, so that two runs of one operator say the same.
pub(crate) fn effect(before: Option<&Value>, after: &Value) -> Vec<String> {
    let lines = diff::all_lines(before, Some(after));
    lines.iter().map(|line| settled(line)).collect()
}

/// Puts words in the place of times and UIDs.
fn settled(line: &str) -> String {
    let line = crate::times::map(line, |_| "<a time>".to_owned());
    let mut out = Vec::new();
    for word in line.split(' ') {
        let core = word.trim_matches(['"', '\'', ',', ')', '(']);
        out.push(if crate::world::is_uid(core) { word.replace(core, "<uid>") } else { word.to_owned() });
    }
    out.join(" ")
}

fn note_request(asked: &mut HashMap<u64, RecordedRequest>, line: &Value) {
    let Some(id) = line["request"].as_u64() else { return };
    let method = line["method"].as_str().and_then(|method| method.parse::<Method>().ok());
    let uri = line["uri"].as_str().and_then(|uri| uri.parse::<Uri>().ok());
    if let (Some(method), Some(uri)) = (method, uri) {
        let info = RequestInfo::of(&method, &uri);
        let text = line["text"].as_str().and_then(|text| serde_yaml_ng::from_str(text).ok());
        let body = text.unwrap_or_else(|| line["body"].clone());
        asked.insert(id, RecordedRequest { method, uri, info, body, seen: 0 });
    }
}

/// Returns the path of the object that a request is about, without its subresource.
fn path_of(asked: &RecordedRequest, answer: &Value) -> Option<String> {
    let path = asked.uri.path();
    match (&asked.info.name, asked.info.subresource.as_str()) {
        (Some(_), "") => Some(path.to_owned()),
        (Some(_), subresource) => Some(path.trim_end_matches(&format!("/{subresource}")).to_owned()),
        (None, _) => item_path(path, answer),
    }
}

/// Returns the path of an object that is listed, or made, at a path.
fn item_path(collection: &str, item: &Value) -> Option<String> {
    let (name, namespace) = (object::name(item), object::namespace(item));
    if name.is_empty() {
        return None;
    }
    if namespace.is_empty() || collection.contains("/namespaces/") {
        return Some(format!("{collection}/{name}"));
    }
    let (root, plural) = collection.rsplit_once('/')?;
    Some(format!("{root}/namespaces/{namespace}/{plural}/{name}"))
}

/// Returns whether an object is in a collection, in all namespaces or in one.
fn is_below(path: &str, collection: &str, plural: &str) -> bool {
    if let Some(name) = path.strip_prefix(collection).and_then(|rest| rest.strip_prefix('/')) {
        return !name.contains('/');
    }
    let root = collection.trim_end_matches(plural);
    let rest = path.strip_prefix(root).and_then(|rest| rest.strip_prefix("namespaces/"));
    rest.and_then(|rest| rest.split_once('/')).is_some_and(|(_, rest)| {
        rest.strip_prefix(plural)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|name| !name.contains('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

    fn parsed(lines: &[&str]) -> Recording {
        Recording::parse(lines.join("\n").as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    // T32
    #[test]
    fn what_was_there_what_others_did_and_what_the_operator_did_are_told_apart() {
        let map = |name: &str, version: u32, text: &str| {
            format!(
                r#"{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}},"data":{{"text":"{text}"}}}}"#
            )
        };
        let lines = [
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z"}"#.to_owned(),
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?limit=500"}"#.to_owned(),
            format!(
                r#"{{"t":2,"answer":1,"code":200,"body":{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"9"}},"items":[{}]}}}}"#,
                map("a", 5, "one")
            ),
            r#"{"t":3,"request":2,"method":"GET","uri":"/api/v1/configmaps?watch=true"}"#.to_owned(),
            format!(
                r#"{{"t":4,"request":3,"method":"PATCH","uri":"{MAPS}/a-copy?fieldManager=x","type":"application/apply-patch+yaml","body":{}}}"#,
                map("a-copy", 0, "one")
            ),
            // The event comes before the answer.
            format!(r#"{{"t":5,"event":2,"line":{{"type":"ADDED","object":{}}}}}"#, map("a-copy", 10, "one")),
            format!(r#"{{"t":6,"answer":3,"code":201,"body":{}}}"#, map("a-copy", 10, "one")),
            format!(r#"{{"t":900,"event":2,"line":{{"type":"MODIFIED","object":{}}}}}"#, map("a", 11, "two")),
            format!(r#"{{"t":950,"event":2,"line":{{"type":"DELETED","object":{}}}}}"#, map("a", 12, "two")),
            r#"{"t":960,"run":{},"controller":"x"}"#.to_owned(),
            r#"{"t":970,"missing":2}"#.to_owned(),
            r#"{"t":980,"cut"#.to_owned(),
        ];
        let recording = parsed(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(recording.initial.len(), 1);
        assert_eq!(recording.initial[0].0, format!("{MAPS}/a"));
        let others: Vec<_> =
            recording.others.iter().map(|one| (one.at.as_millis(), one.after.is_some())).collect();
        assert_eq!(others, [(900, true), (950, false)], "{recording:?}");
        let effects: Vec<_> = recording.effects.iter().map(|one| one.request.as_str()).collect();
        assert_eq!(effects, ["patch configmaps shop/a-copy"]);
        assert_eq!((recording.missing, recording.runs), (2, 1));
        assert_eq!(recording.namespaces().into_iter().collect::<Vec<_>>(), ["shop"]);
    }

    // T32
    #[test]
    fn all_pages_of_a_first_list_were_there_and_a_list_that_is_missing_deletes_nothing() {
        let map = |name: &str| {
            format!(r#"{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"5"}}}}"#)
        };
        let page = |answer: u32, token: &str, name: &str| {
            format!(
                r#"{{"t":{answer},"answer":{answer},"code":200,"body":{{"kind":"ConfigMapList","metadata":{{"continue":"{token}"}},"items":[{}]}}}}"#,
                map(name)
            )
        };
        let ask = |request: u32, query: &str| {
            format!(r#"{{"t":0,"request":{request},"method":"GET","uri":"/api/v1/configmaps?{query}"}}"#)
        };
        let lines = [
            ask(1, "limit=1"),
            page(1, "next", "a"),
            ask(2, "limit=1&continue=next"),
            page(2, "", "b"),
            ask(3, "limit=1"),
            r#"{"t":9,"answer":3,"code":200}"#.to_owned(),
        ];
        let recording = parsed(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((recording.initial.len(), recording.others.len()), (2, 0), "{recording:?}");
        assert_eq!(recording.missing, 1);
    }

    // T32
    #[test]
    fn what_happens_begins_where_the_lines_show_all_that_was_there() {
        let map = |name: &str, version: u32| {
            format!(
                r#""object":{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"{name}","uid":"u-{name}","resourceVersion":"{version}"}},"data":{{"text":"{version}"}}}}"#
            )
        };
        let header = |t: u32, part: u32| {
            format!(r#"{{"t":{t},"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":{part}}}"#)
        };
        let watch = |t: u32| {
            format!(
                r#"{{"t":{t},"request":2,"method":"GET","uri":"/api/v1/configmaps?watch=true&sendInitialEvents=true"}}"#
            )
        };
        let event = |t: u32, r#type: &str, name: &str, version: u32| {
            format!(r#"{{"t":{t},"event":2,"line":{{"type":"{type}",{}}}}}"#, map(name, version))
        };
        let lines = [
            // What the first part showed is gone.
            header(4_000, 2),
            watch(4_000),
            format!(r#"{{"t":4000,"path":"{MAPS}/quiet",{}}}"#, map("quiet", 1)),
            format!(r#"{{"t":4000,"path":"{MAPS}/gone",{}}}"#, map("gone", 1)),
            r#"{"t":4001,"whole":1}"#.to_owned(),
            event(5_000, "MODIFIED", "a", 7),
            event(5_500, "DELETED", "gone", 8),
            header(6_000, 3),
            watch(6_000),
            // A watch of metadata shows the same version first.
            event(6_050, "MODIFIED", "a", 9).replace("ConfigMap", "PartialObjectMetadata"),
            event(6_050, "MODIFIED", "a", 9),
            // What is encoded may be older than an event before it.
            format!(r#"{{"t":6100,"path":"{MAPS}/a",{}}}"#, map("a", 7)),
            format!(r#"{{"t":6100,"path":"{MAPS}/gone",{}}}"#, map("gone", 1)),
            r#"{"t":6100,"whole":2}"#.to_owned(),
            // It was cached before, and its line waited.
            event(6_100, "MODIFIED", "waited", 10),
            event(7_000, "ADDED", "new", 11),
            event(7_100, "MODIFIED", "quiet", 12),
            event(7_600, "DELETED", "a", 13),
        ];
        let recording = parsed(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let initial = recording.initial.iter().map(|(path, map)| (&path[MAPS.len()..], &map["data"]["text"]));
        let initial: Vec<_> = initial.map(|(path, text)| (path, text.as_str().unwrap())).collect();
        assert_eq!(initial, [("/a", "9"), ("/quiet", "1"), ("/waited", "10")]);
        assert!(recording.initial.iter().all(|(_, map)| map["kind"] == "ConfigMap"), "{recording:?}");
        let others = recording.others.iter().map(|one| (one.at.as_millis(), &one.path[MAPS.len()..]));
        assert_eq!(others.collect::<Vec<_>>(), [(900, "/new"), (1_000, "/quiet"), (1_500, "/a")]);
        assert_eq!(recording.took, Duration::from_millis(1_500));
        // With the first part nothing of this is needed.
        let all_sent = r#"{"t":6,"event":2,"line":{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"6"}}}}"#;
        let first = [header(0, 1), watch(0), event(5, "ADDED", "a", 3), all_sent.to_owned()];
        let all: Vec<&str> = first.iter().chain(&lines).map(String::as_str).collect();
        let recording = parsed(&all);
        assert_eq!((recording.initial.len(), recording.took.as_millis()), (3, 7_600), "{recording:?}");
        // Another process goes on, and nothing shows what was there in between: it begins there.
        let other = [header(0, 1).replace("00:00:00Z", "00:00:10Z"), watch(3), event(5, "ADDED", "a", 3)];
        let all: Vec<&str> = lines[5..11].iter().chain(&other).map(String::as_str).collect();
        let recording = parsed(&all);
        assert_eq!(recording.took, Duration::from_millis(5), "{recording:?}");
        let initial: Vec<_> = recording.initial.iter().map(|(path, _)| &path[MAPS.len()..]).collect();
        assert_eq!((initial, recording.others.len()), (vec!["/a"], 0), "{recording:?}");
    }

    // T32
    #[test]
    fn what_a_watch_does_not_show_that_lists_again_is_gone() {
        let ask = |request: u32, query: &str| {
            format!(
                r#"{{"t":{request},"request":{request},"method":"GET","uri":"/api/v1/configmaps?watch=true&sendInitialEvents=true{query}"}}"#
            )
        };
        let event = |request: u32, r#type: &str, metadata: &str| {
            format!(
                r#"{{"t":{request},"event":{request},"line":{{"type":"{type}","object":{{"kind":"ConfigMap","metadata":{{{metadata}}}}}}}}}"#
            )
        };
        let added = |request: u32, name: &str| {
            event(request, "ADDED", &format!(r#""namespace":"shop","name":"{name}","resourceVersion":"1""#))
        };
        let end = r#""resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}"#;
        let lists = |request: u32, query: &str, names: &[&str]| {
            let names = names.iter().map(|name| added(request, name));
            [vec![ask(request, query)], names.collect(), vec![event(request, "BOOKMARK", end)]].concat()
        };
        let gone = |lines: &[Vec<String>]| {
            let recording = Recording::parse(lines.concat().join("\n").as_bytes()).unwrap();
            recording.others.into_iter().map(|one| (one.path, one.after.is_some())).collect::<Vec<_>>()
        };
        let first = lists(1, "", &["a", "b"]);
        assert_eq!(gone(&[first.clone(), lists(2, "", &["a"])]), [(format!("{MAPS}/b"), false)]);
        // A selection shows a part of them.
        assert_eq!(gone(&[first.clone(), lists(2, "&labelSelector=x", &["a"])]), []);
        // The list is not over.
        assert_eq!(gone(&[first.clone(), vec![ask(2, ""), added(2, "a")]]), []);
        let other = |r#type: &str, name: &str| {
            event(1, r#type, &format!(r#""namespace":"shop","name":"{name}","resourceVersion":"11""#))
        };
        // Another watch shows what is newer than the list.
        let newer =
            vec![ask(2, ""), added(2, "a"), added(2, "b"), other("ADDED", "x"), event(2, "BOOKMARK", end)];
        assert_eq!(gone(&[first.clone(), newer]), [(format!("{MAPS}/x"), true)]);
        // It leaves a selection, and is still there.
        let leaves = other("DELETED", "a").replace(r#""event":1"#, r#""event":2"#);
        let selected = lists(2, "&labelSelector=x", &["a"]);
        let leaves = [selected, vec![other("MODIFIED", "a"), leaves]].concat();
        assert_eq!(gone(&[first.clone(), leaves]), [(format!("{MAPS}/a"), true)]);
        // A change that only a watch of metadata shows is one as well.
        let partial = other("MODIFIED", "a").replace("ConfigMap", "PartialObjectMetadata");
        assert_eq!(gone(&[first, vec![partial]]), [(format!("{MAPS}/a"), true)]);
    }

    // T32
    #[test]
    fn what_lists_in_pages_do_not_show_any_more_is_gone() {
        let page = |answer: u32, query: &str, token: &str, name: &str| {
            [
                format!(
                    r#"{{"t":{answer},"request":{answer},"method":"GET","uri":"/api/v1/configmaps?limit=1{query}"}}"#
                ),
                format!(
                    r#"{{"t":{answer},"answer":{answer},"code":200,"body":{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"9","continue":"{token}"}},"items":[{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"5"}}}}]}}}}"#
                ),
            ]
        };
        let after = |token: &str| format!("&continue={token}");
        let first =
            [page(1, "", "one", "a"), page(2, &after("one"), "two", "b"), page(3, &after("two"), "", "c")]
                .concat();
        let gone = |again: &[[String; 2]]| {
            let lines = [&first[..], &again.concat()].concat();
            let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
            recording.others.into_iter().map(|one| one.path[MAPS.len()..].to_owned()).collect::<Vec<_>>()
        };
        let again = || [page(4, "", "three", "a"), page(5, &after("three"), "", "c")];
        assert_eq!(gone(&again()), ["/b"]);
        assert_eq!(gone(&again()[..1]), [""; 0], "it is not over");
        // The page in between was too large.
        let [ask, _] = page(5, &after("three"), "", "");
        let large = [ask, r#"{"t":5,"answer":5,"code":200}"#.to_owned()];
        assert_eq!(gone(&[again()[0].clone(), large, page(6, &after("four"), "", "c")]), [""; 0]);
        // Somebody reads other pages at the same time, and a selection.
        let other = page(7, "&labelSelector=x", "five", "a");
        let [one, two] = again();
        assert_eq!(gone(&[one, page(6, "", "six", "a"), other, two]), ["/b"]);
        // A part that begins names the watch again: what it watches has been listed.
        let header = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":2}"#;
        let watch =
            r#"{"t":0,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&resourceVersion=9"}"#;
        let object = |name: &str| {
            format!(
                r#"{{"t":0,"path":"{MAPS}/{name}","object":{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"5"}}}}}}"#
            )
        };
        let again = again().concat().join("\n");
        let whole = r#"{"t":6,"whole":2}"#;
        let text = [header, watch, &object("a"), &object("b"), &object("c"), &again, whole].join("\n");
        let recording = Recording::parse(text.as_bytes()).unwrap();
        let initial: Vec<_> = recording.initial.iter().map(|(path, _)| &path[MAPS.len()..]).collect();
        assert_eq!(initial, ["/a", "/c"], "{recording:?}");
    }

    // T32
    #[test]
    fn a_first_list_may_go_on_in_another_part() {
        let header = |part: u32| {
            format!(r#"{{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":{part}}}"#)
        };
        let watch = r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&sendInitialEvents=true"}"#;
        let settings = r#"{"t":1,"settings":{}}"#;
        let added = |name: &str| {
            format!(
                r#"{{"t":2,"event":1,"line":{{"type":"ADDED","object":{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"5"}}}}}}}}"#
            )
        };
        let lines = [&header(1), watch, &added("a"), &header(2), watch, settings, &added("b")];
        let recording = parsed(&lines);
        assert_eq!((recording.initial.len(), recording.others.len()), (2, 0), "{recording:?}");
    }

    // T32
    #[test]
    fn an_answer_that_comes_after_the_end_of_its_object_brings_it_not_back() {
        let map = |version: u32| {
            format!(
                r#"{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"a","uid":"u","resourceVersion":"{version}"}}}}"#
            )
        };
        let header = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#.to_owned();
        let watch =
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&resourceVersion=4"}"#;
        let event = |kind: &str, version: u32| {
            format!(r#"{{"t":2,"event":1,"line":{{"type":"{kind}","object":{}}}}}"#, map(version))
        };
        let patch = format!(r#"{{"t":3,"request":2,"method":"PATCH","uri":"{MAPS}/a","body":{{}}}}"#);
        let answer = |version: u32| format!(r#"{{"t":4,"answer":2,"code":200,"body":{}}}"#, map(version));
        let others = |lines: &[String]| {
            let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
            recording.others.iter().map(|one| (one.before.is_some(), one.after.is_some())).collect::<Vec<_>>()
        };
        let before = [header, watch.to_owned(), event("ADDED", 5), patch];
        let comes = (false, true);
        // The patch took the last finalizer off.
        let end = [event("DELETED", 7), answer(6), event("ADDED", 9)];
        assert_eq!(others(&[&before[..], &end].concat()), [comes, (true, false), comes]);
        // Somebody else's change was shown first.
        let later = [event("MODIFIED", 8), answer(6), event("MODIFIED", 8)];
        assert_eq!(others(&[&before[..], &later].concat()), [comes, (true, true)]);
        // The operator took the label off by which its watch selects: the object is still there.
        let selects = |line: &String| line.replace("watch=true", "watch=true&labelSelector=x");
        let leaves = [event("DELETED", 7), answer(7), event("ADDED", 9)];
        let leaves = [&before[..], &leaves].concat().iter().map(selects).collect::<Vec<_>>();
        assert_eq!(others(&leaves), [comes, (true, true)]);
    }

    // T32
    #[test]
    fn a_change_of_others_that_is_shown_after_a_later_answer_is_theirs() {
        let map = |version: u32, more: &str| {
            format!(
                r#"{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"a","uid":"u","resourceVersion":"{version}"}}{more}}}"#
            )
        };
        let event =
            |object: &str| format!(r#"{{"t":5,"event":1,"line":{{"type":"MODIFIED","object":{object}}}}}"#);
        let status = r#","status":{"says":"ready"}"#;
        let both = format!(r#","data":{{"text":"one"}}{status}"#);
        let recording = parsed(&[
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#,
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&sendInitialEvents=true"}"#,
            &event(&map(10, "")),
            &format!(r#"{{"t":3,"request":2,"method":"PATCH","uri":"{MAPS}/a","body":{{}}}}"#),
            &format!(r#"{{"t":4,"answer":2,"code":200,"body":{}}}"#, map(12, &both)),
            &event(&map(11, status)),
            &event(&map(12, &both)),
        ]);
        assert_eq!((recording.others.len(), recording.effects.len()), (1, 1), "{recording:?}");
        assert!(recording.others[0].after.as_ref().unwrap()["data"].is_null(), "{recording:?}");
        let lines = recording.effects[0].lines.join("; ");
        assert!(lines.contains("text: one") && !lines.contains("ready"), "{lines}");
    }

    // T32
    #[test]
    fn a_write_that_changed_nothing_takes_no_change_of_others() {
        let map = |version: u32, text: &str| {
            format!(
                r#"{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"a","uid":"u","resourceVersion":"{version}"}},"data":{{"text":"{text}"}}}}"#
            )
        };
        let event = |kind: &str, version: u32, text: &str| {
            format!(r#"{{"t":2,"event":1,"line":{{"type":"{kind}","object":{}}}}}"#, map(version, text))
        };
        let lines = [
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#.to_owned(),
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&resourceVersion=4"}"#
                .to_owned(),
            event("ADDED", 5, "one"),
            event("MODIFIED", 11, "two"),
            format!(r#"{{"t":3,"request":2,"method":"PATCH","uri":"{MAPS}/a","body":{{}}}}"#),
            format!(r#"{{"t":4,"answer":2,"code":200,"body":{}}}"#, map(11, "two")),
        ];
        let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
        assert_eq!((recording.others.len(), &*recording.effects), (2, &[][..]));
        // The event of its own write comes before a part that names the write again.
        let part = lines[0].replace(r#""part":1"#, r#""part":2"#);
        let again = [&lines[0], &lines[1], &lines[2], &lines[4], &lines[3], &part, &lines[4], &lines[5]];
        let again = again.map(String::as_str).join("\n");
        let recording = Recording::parse(again.as_bytes()).unwrap();
        assert_eq!((recording.others.len(), recording.effects.len()), (1, 1), "{recording:?}");
        // A namespace in which the operator alone writes.
        let lease = "/apis/coordination.k8s.io/v1/namespaces/ops/leases";
        let recording = parsed(&[
            &lines[0],
            &format!(r#"{{"t":1,"request":1,"method":"POST","uri":"{lease}","body":{{}}}}"#),
        ]);
        assert_eq!(recording.namespaces().into_iter().collect::<Vec<_>>(), ["ops"]);
        // One that it makes itself.
        let recording = parsed(&[
            &lines[0],
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/namespaces/team"}"#,
            r#"{"t":1,"answer":1,"code":404,"body":{}}"#,
            r#"{"t":2,"request":2,"method":"POST","uri":"/api/v1/namespaces","body":{"metadata":{"name":"team"}}}"#,
            r#"{"t":2,"answer":2,"code":201,"body":{"kind":"Namespace","metadata":{"name":"team","resourceVersion":"9"}}}"#,
            r#"{"t":3,"request":3,"method":"GET","uri":"/api/v1/namespaces/team/configmaps/a"}"#,
        ]);
        assert!(recording.namespaces().is_empty(), "{recording:?}");
    }

    // T32
    #[test]
    fn an_end_that_is_shown_before_its_answer_is_the_operators() {
        let map = |version: u32, finalizers: &str| {
            format!(
                r#"{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"a","uid":"u","resourceVersion":"{version}","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[{finalizers}]}}}}"#
            )
        };
        let event = |kind: &str, object: &str| {
            format!(r#"{{"t":2,"event":1,"line":{{"type":"{kind}","object":{object}}}}}"#)
        };
        let before = [
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#.to_owned(),
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&resourceVersion=4"}"#
                .to_owned(),
            event("ADDED", &map(5, r#""x/y""#)),
        ];
        let effects = |method: &str, answer: &str| {
            let sent = format!(r#"{{"t":3,"request":2,"method":"{method}","uri":"{MAPS}/a","body":{{}}}}"#);
            let answer = format!(r#"{{"t":4,"answer":2,"code":200,"body":{answer}}}"#);
            let lines = [&before[..], &[sent, event("DELETED", &map(6, "")), answer]].concat();
            let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
            assert_eq!(recording.others.len(), 1, "{recording:?}");
            recording.effects.into_iter().map(|effect| effect.lines.join("; ")).collect::<Vec<_>>()
        };
        let status = r#"{"kind":"Status","status":"Success","details":{"uid":"u"}}"#;
        assert_eq!(effects("DELETE", status), ["- the whole object"]);
        let released = effects("PATCH", &map(6, ""));
        assert!(released.len() == 1 && released[0].contains("finalizers"), "{released:?}");
        assert!(!released[0].contains("the whole object"), "{released:?}");
    }

    // T32
    #[test]
    fn what_others_let_go_of_is_ended_by_them() {
        let pod = |version: u32, more: &str| {
            format!(
                r#"{{"kind":"Pod","metadata":{{"namespace":"shop","name":"a","uid":"u","resourceVersion":"{version}"{more}}},"spec":{{"nodeName":"n"}}}}"#
            )
        };
        let event = |kind: &str, object: &str| {
            format!(r#"{{"t":2,"event":1,"line":{{"type":"{kind}","object":{object}}}}}"#)
        };
        let deleting = |more: &str| format!(r#","deletionTimestamp":"2026-01-01T00:00:00Z",{more}"#);
        let ends = |own: &[String], waits: &str| {
            let before = [
                r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#.to_owned(),
                r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/pods?watch=true&sendInitialEvents=true"}"#
                    .to_owned(),
                event("ADDED", &pod(5, "")),
            ];
            let after =
                [event("MODIFIED", &pod(6, &deleting(waits))), event("DELETED", &pod(7, &deleting(waits)))];
            let lines = [&before[..], own, &after].concat();
            let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
            recording.others.iter().map(|one| one.after.is_some()).collect::<Vec<_>>()
        };
        let grace = |seconds: u32| format!(r#""deletionGracePeriodSeconds":{seconds}"#);
        assert_eq!(ends(&[], &grace(30)), [true, false]);
        assert_eq!(ends(&[], r#""finalizers":["x/y"]"#), [true, false]);
        // The operator deletes it, and somebody else lets it go; or nobody has to.
        let path = "/api/v1/namespaces/shop/pods/a";
        let deletes = |answer: &str| {
            let sent = format!(r#"{{"t":2,"request":2,"method":"DELETE","uri":"{path}","body":{{}}}}"#);
            [sent, format!(r#"{{"t":2,"answer":2,"code":200,"body":{answer}}}"#)]
        };
        let answered = |seconds: u32| deletes(&pod(6, &deleting(&grace(seconds))));
        assert_eq!(ends(&answered(30), &grace(30)), [false]);
        assert_eq!(ends(&answered(0), &grace(0)), [false; 0]);
    }

    // T32
    #[test]
    fn reviews_change_nothing_and_collections_what_was_in_them() {
        let header = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#;
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        let all = |items: &str| {
            let sent = format!(
                r#"{{"t":3,"request":2,"method":"DELETE","uri":"{MAPS}?labelSelector=x","body":{{}}}}"#
            );
            let answer = format!(
                r#"{{"t":4,"answer":2,"code":200,"body":{{"kind":"ConfigMapList","metadata":{{}},"items":[{items}]}}}}"#
            );
            parsed(&[header, &sent, &answer]).effects.len()
        };
        let item = r#"{"metadata":{"namespace":"shop","name":"a","uid":"u","resourceVersion":"5"}}"#;
        assert_eq!((all(""), all(item)), (0, 1));
        let recording = parsed(&[
            header,
            &format!(r#"{{"t":1,"request":1,"method":"POST","uri":"{review}","body":{{}}}}"#),
            r#"{"t":2,"answer":1,"code":201,"body":{"kind":"TokenReview","metadata":{},"status":{"authenticated":true}}}"#,
        ]);
        assert!(recording.effects.is_empty(), "{recording:?}");
    }

    // T32
    #[test]
    fn versions_that_can_t_be_compared_follow_each_other_as_they_come() {
        let event = |kind: &str, text: &str| {
            format!(
                r#"{{"t":2,"event":1,"line":{{"type":"{kind}","object":{{"kind":"ConfigMap","metadata":{{"namespace":"shop","name":"a","resourceVersion":"x"}},"data":{{"text":"{text}"}}}}}}}}"#
            )
        };
        let cached = format!(
            r#"{{"t":3,"path":"{MAPS}/a","object":{{"kind":"ConfigMap","metadata":{{"name":"a"}}}}}}"#
        );
        let lines = [
            r#"{"t":1,"request":1,"method":"GET","uri":"/api/v1/configmaps?watch=true&resourceVersion=4"}"#
                .to_owned(),
            event("ADDED", "one"),
            event("MODIFIED", "two"),
            cached,
            event("DELETED", "two"),
            event("ADDED", "three"),
            r#"{"t":4,"request":2,"method":"GET","uri":"/api/v1/configmaps"}"#.to_owned(),
            r#"{"t":4,"answer":2,"code":200,"body":{"kind":"ConfigMapList","metadata":{},"items":[]}}"#
                .to_owned(),
            r#"{"t":5,"request":3,"method":"GET","uri":"/api/v1/configmaps"}"#.to_owned(),
            r#"{"t":5,"answer":3,"code":200,"body":{"kind":"ConfigMapList","metadata":{},"items":[]}}"#
                .to_owned(),
            event("ADDED", "four"),
        ];
        let recording = Recording::parse(lines.join("\n").as_bytes()).unwrap();
        let text = |one: &ForeignEvent| {
            one.after.as_ref().map(|map| map["data"]["text"].as_str().map(str::to_owned))
        };
        let texts: Vec<_> = recording.others.iter().map(|one| text(one).flatten()).collect();
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(texts, [told("one"), told("two"), None, told("three"), None, told("four")]);
    }

    // T32
    #[test]
    fn a_line_that_is_no_json_is_missing() {
        let header = r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z","part":1}"#;
        let recording =
            parsed(&[header, r#"{"t":5,"event":7,"line":{"type":}"#, r#"{"t":6,"run":{},"controller":"x"}"#]);
        assert_eq!((recording.missing, recording.runs), (1, 1));
    }

    // T32
    #[test]
    fn what_is_not_a_recording_is_refused() {
        for (text, wanted) in [
            ("", "it is empty"),
            ("nonsense\n{}", "line 1: "),
            ("nonsense", "line 1: "),
            ("{\"a\":1}\n{\"t\":1}", "line 1 has no time `t`"),
        ] {
            let error = Recording::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_process_that_starts_again_goes_on_at_its_time() {
        let recording = parsed(&[
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:00:00Z"}"#,
            r#"{"t":7000,"missing":0}"#,
            r#"{"t":0,"watchkeeper":"0.1.0","began":"2026-01-01T00:01:00Z"}"#,
            r#"{"t":5,"missing":0}"#,
        ]);
        assert_eq!(recording.took, Duration::from_millis(60_005));
    }

    #[test]
    fn collections_are_known() {
        assert!(is_below("/api/v1/namespaces/shop/configmaps/a", "/api/v1/configmaps", "configmaps"));
        assert!(is_below(&format!("{MAPS}/a"), MAPS, "configmaps"));
        assert!(!is_below("/api/v1/namespaces/ops/configmaps/a", MAPS, "configmaps"));
        assert!(!is_below("/api/v1/namespaces/shop/secrets/a", "/api/v1/configmaps", "configmaps"));
    }
}

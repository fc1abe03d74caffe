//! Gathers lines, and writes them to the file twice a second.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt, io, mem,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{
    hidden::{self, HiddenField},
    ring::Ring,
    snapshot::{PartContent, RecordingSource},
    template::{Buffer, ControlCharacter, Template},
    watches::{OpenWatches, ShownVersions},
};
use crate::{api_request::ResourcePath, chain::one_line, clock::WallClock, object::Version};

/// How often what was recorded is written to the file.
const FLUSH: Duration = Duration::from_millis(500);
/// With this many bytes it is written at once.
const SOON: usize = 256 << 10;
/// Most bytes that wait to be written, of a recording of any size.
const FULL: usize = 8 << 20;
/// Objects with which a part begins are written in portions of this size.
const PORTION: usize = 256 << 10;

/// Records; clones record into one file.
#[derive(Clone)]
pub(crate) struct Recording(Arc<RecordingCore>);

struct RecordingCore {
    /// `None` after an error.
    part: Mutex<Option<OpenPart>>,
    /// With this many bytes that could not be written yet, lines are left out.
    full: usize,
    path: PathBuf,
    hidden: Vec<HiddenField>,
    pending: Mutex<Pending>,
    due: Notify,
    began: Instant,
    /// The same moment, as text.
    began_at: String,
    requests: AtomicU64,
    /// The lines of requests whose answers are not over: each part names the watches that go on, and other short requests.
    open: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// The part that is written, counted from 1 on.
    part_number: AtomicU64,
    watches: Mutex<OpenWatches>,
}

/// The part of the file that is written.
struct OpenPart {
    ring: Ring,
    content: PartContent,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({})", self.0.path.display())
    }
}

/// Where the recorder of a manager is, once it has started with one; all its clients look here.
pub(crate) type RecordingSlot = Arc<OnceLock<Recording>>;

/// What is not yet written.
#[derive(Default)]
struct Pending {
    buffer: Buffer,
    missing: u64,
    /// An answer was too large.
    is_incomplete: bool,
}

impl Recording {
    /// # Errors
    /// The file can't be written.
    pub(super) fn open(
        path: &Path,
        at_most: u64,
        hidden: Vec<HiddenField>,
        clock: &WallClock,
    ) -> io::Result<Self> {
        let began_at = jiff::Timestamp::try_from(clock.now()).map(|now| now.to_string()).unwrap_or_default();
        let mut part = OpenPart { ring: Ring::open(path, at_most)?, content: PartContent::first() };
        part.ring.append(&mut header(0, &began_at, 1))?;
        let core = RecordingCore {
            part: Mutex::new(Some(part)),
            // So a part that begins with objects has room for it.
            full: usize::try_from(at_most / 8).unwrap_or(FULL).min(FULL),
            path: path.to_owned(),
            hidden,
            pending: Mutex::default(),
            due: Notify::new(),
            began: Instant::now(),
            began_at,
            requests: AtomicU64::new(0),
            open: Mutex::default(),
            part_number: AtomicU64::new(1),
            watches: Mutex::default(),
        };
        Ok(Self(Arc::new(core)))
    }

    /// Returns most bytes of a body that are recorded.
    pub(super) fn largest(&self) -> usize {
        self.0.full
    }

    /// Numbers a request.
    pub(super) fn next_request(&self) -> u64 {
        self.0.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns whether something of a kind is hidden.
    pub(super) fn hides(&self, group: &str, plural: &str) -> bool {
        self.0.hidden.iter().any(|field| field.is_of(group, plural))
    }

    /// Writes what is recorded until nothing happens any more, and a last time then.
    pub(crate) async fn write(
        self,
        manager: impl RecordingSource + 'static,
        is_over: impl Future<Output = ()> + Send + 'static,
    ) {
        let (manager, mut state, mut spare) = (Arc::new(manager), None, Vec::with_capacity(2 * SOON));
        let mut ends = pin!(is_over);
        self.line(&SettingsLine { settings: manager.settings(), hidden: &self.0.hidden });
        loop {
            let is_over = tokio::select! {
                () = &mut ends => true,
                () = sleep(FLUSH) => false,
                () = self.0.due.notified() => false,
            };
            let now = manager.state();
            if now != state {
                state = now;
                self.line(&StateLine::of(now));
            }
            // The two buffers change places, so that neither is allocated again.
            let (recording, source) = (self.clone(), manager.clone());
            let text = self.0.pending.lock().buffer.take(spare);
            let written = spawn_blocking(move || recording.flush(&*source, text, is_over));
            spare = written.await.unwrap_or_default();
            if is_over {
                return;
            }
        }
    }

    /// Writes lines to the file; returns the empty buffer.
    fn flush(&self, manager: &dyn RecordingSource, mut text: Vec<u8>, is_over: bool) -> Vec<u8> {
        let mut part = self.0.part.lock();
        let Some(open) = part.as_mut() else { return Vec::new() };
        let written = self.put(open, manager, &mut text);
        if let Err(error) = written.and_then(|()| if is_over { open.ring.close() } else { Ok(()) }) {
            tracing::error!(file = %self.0.path.display(), error = one_line(&error), "the flight recorder stops");
            *part = None;
        }
        if is_over {
            // Another manager may record into it.
            *part = None;
        }
        // What a burst needed is given back once it is over. To do so each time costs more than to write.
        let is_over = text.len() < SOON;
        text.clear();
        if is_over {
            text.shrink_to(2 * SOON);
        }
        text
    }

    /// Writes lines, into a new part where this one is full.
    fn put(&self, part: &mut OpenPart, manager: &dyn RecordingSource, text: &mut Vec<u8>) -> io::Result<()> {
        let (missing, is_incomplete) = {
            let mut pending = self.0.pending.lock();
            (mem::take(&mut pending.missing), mem::take(&mut pending.is_incomplete))
        };
        self.missing(text, missing);
        let lost = |content: &mut PartContent| {
            if missing > 0 || is_incomplete {
                content.lost();
            }
        };
        lost(&mut part.content);
        if part.ring.room() >= text.len() {
            return part.ring.append(text);
        }
        // First of all: what was recorded so far and is not in `text` is in earlier parts.
        let shown = self.0.watches.lock().turn();
        let number = self.0.part_number.fetch_add(1, Ordering::AcqRel) + 1;
        let is_named = self.begin(part, number, manager)?;
        // Before the objects: what comes while those are written is newer.
        part.ring.append(text)?;
        let mut objects = self.snapshot(part, shown, manager)?;
        add_line(&mut objects, self.millis(), &WholeLine { whole: number - 1 });
        lost(&mut part.content);
        if !is_named {
            part.content.lost();
        }
        part.ring.append(&mut objects)
    }

    /// Begins a part: with its number, and the requests that go on. Returns whether all reads are among them.
    fn begin(&self, part: &mut OpenPart, number: u64, manager: &dyn RecordingSource) -> io::Result<bool> {
        part.ring.begin()?;
        let t = self.millis();
        let mut text = header(t, &self.0.began_at, number);
        // Watches are short. Writes may be large, and end soon.
        let mut missing = 0;
        for line in self.0.open.lock().values() {
            if line.len() < PORTION / 64 && text.len() < part.ring.room() / 8 {
                add(&mut text, t, b"", line);
            } else {
                missing += u64::from(memchr::memmem::find(line, br#""method":"GET""#).is_some());
            }
        }
        self.missing(&mut text, missing);
        add_line(&mut text, t, &SettingsLine { settings: manager.settings(), hidden: &self.0.hidden });
        add_line(&mut text, t, &StateLine::of(manager.state()));
        part.ring.append(&mut text)?;
        Ok(missing == 0)
    }

    /// Writes the cached objects that the part before does not show, into three quarters of the room at most; returns the last of
    /// them.
    fn snapshot(
        &self,
        part: &mut OpenPart,
        shown: ShownVersions,
        manager: &dyn RecordingSource,
    ) -> io::Result<Vec<u8>> {
        let (t, OpenPart { ring, content, .. }) = (self.millis(), part);
        let left = |ring: &Ring| ring.room() / 4 * 3;
        let (mut buffer, mut room, mut written) = (Buffer::default(), left(ring), Ok(()));
        let (mut missing, mut is_full) = (0, false);
        let (mut template, mut kind) = (Template::default(), None);
        content.next(manager, shown, |object, path| {
            // Once something does not fit, the rest is only counted.
            let json = Some(object).filter(|_| !is_full && written.is_ok());
            let Some(json) = json.and_then(|object| (object.encode)()) else {
                missing += 1;
                return false;
            };
            let json = self.shown(&object.kind.group, &object.kind.plural, &json);
            if kind.as_ref() != Some(object.kind) {
                template.forget();
                kind = Some(object.kind.clone());
            }
            let before = buffer.text.len();
            add_time(&mut buffer.text, t);
            buffer.text.extend_from_slice(format!(",\"path\":\"{path}\",").as_bytes());
            let is_json = template.add(&mut buffer, b"\"object\":", &json).is_ok();
            buffer.text.extend_from_slice(b"}\n");
            let size = buffer.text.len() - before;
            is_full |= size > room || buffer.text.len() > left(ring);
            if is_full || !is_json {
                buffer.text.truncate(before);
                missing += 1;
                return false;
            }
            room -= size;
            if buffer.text.len() >= PORTION {
                written = ring.append(&mut buffer.text).and_then(|()| self.catch_up(ring));
                buffer.clear();
            }
            true
        });
        let mut text = buffer.text;
        if is_full {
            content.lost();
        }
        self.missing(&mut text, missing);
        written.map(|()| text)
    }

    /// Writes what waits, while there is room: while objects are encoded, too much could come.
    fn catch_up(&self, ring: &mut Ring) -> io::Result<()> {
        let mut pending = self.0.pending.lock();
        let waiting = pending.buffer.text.len();
        if waiting < SOON || waiting > ring.room() / 2 {
            return Ok(());
        }
        let mut text = pending.buffer.take(Vec::new());
        drop(pending);
        ring.append(&mut text)
    }

    fn missing(&self, text: &mut Vec<u8>, missing: u64) {
        if missing > 0 {
            add_line(text, self.millis(), &MissingLine { missing });
        }
    }

    /// Returns what is recorded of an object, an event or a list: without what is hidden, and in one line.
    pub(super) fn shown<'j>(&self, group: &str, plural: &str, json: &'j [u8]) -> Cow<'j, [u8]> {
        hidden::shown(self.0.hidden.iter().filter(|field| field.is_of(group, plural)), json)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Adds a line: the time, and the fields of a value.
    pub(super) fn line(&self, value: &impl Serialize) {
        self.add(|pending| add_line(&mut pending.buffer.text, self.millis(), value));
    }

    /// Records a request, and keeps its line until [`over`](Self::over).
    pub(super) fn request(&self, id: u64, value: &impl Serialize) {
        if let Some(fields) = fields(value) {
            // A part that begins now has the line in any case.
            let mut open = self.0.open.lock();
            self.push(b"", &fields);
            open.insert(id, fields);
        }
    }

    /// Returns which part is written.
    pub(super) fn part(&self) -> u64 {
        self.0.part_number.load(Ordering::Acquire)
    }

    /// A watch is open.
    pub(super) fn watch_opened(&self, id: u64, path: &ResourcePath) {
        self.0.watches.lock().open(id, path);
    }

    /// A watch shows its first event of this part: before the event is recorded.
    pub(super) fn watch_shows(&self, id: u64, version: Version) {
        self.0.watches.lock().note(id, version);
    }

    /// A request's answer is over.
    pub(super) fn over(&self, id: u64) {
        self.0.open.lock().remove(&id);
        self.0.watches.lock().close(id);
    }

    /// An answer, or an event, was too large to be recorded.
    pub(super) fn too_large(&self, is_event: bool) {
        let mut pending = self.0.pending.lock();
        pending.is_incomplete = true;
        pending.missing += u64::from(is_event);
    }

    /// Adds a line: the time, what comes first, and JSON behind that.
    pub(super) fn push(&self, first: &[u8], json: &[u8]) {
        self.add(|pending| add(&mut pending.buffer.text, self.millis(), first, json));
    }

    /// Writes how the line of an event begins: with the time, and the number of its request.
    pub(super) fn begin_event(&self, request: u64, head: &mut Vec<u8>) {
        add_time(head, self.millis());
        head.extend_from_slice(format!(",\"event\":{request},").as_bytes());
    }

    /// Adds an event of a watch, behind its head. One with a control character counts as missing: it would make the line unreadable, and the watch
    /// fails by it if it is in a text.
    pub(super) fn event(&self, head: &[u8], event: &[u8], template: &mut Template) {
        let is_added = self.add(|Pending { buffer, missing, .. }| {
            let before = buffer.text.len();
            buffer.text.extend_from_slice(head);
            match template.add(buffer, b"\"line\":", event) {
                Ok(()) => buffer.text.extend_from_slice(b"}\n"),
                Err(ControlCharacter) => {
                    buffer.text.truncate(before);
                    *missing += 1;
                }
            }
        });
        if !is_added {
            template.forget();
        }
    }

    /// Adds lines, unless too much waits already; returns whether that was done.
    fn add(&self, add: impl FnOnce(&mut Pending)) -> bool {
        let mut pending = self.0.pending.lock();
        let before = pending.buffer.text.len();
        add(&mut pending);
        let is_added = pending.buffer.text.len() <= self.0.full;
        if !is_added {
            pending.buffer.text.truncate(before);
            pending.missing += 1;
        }
        // The writer is woken once, and takes all that is there.
        let soon = SOON.min(self.0.full / 2);
        if before < soon && pending.buffer.text.len() >= soon {
            self.0.due.notify_one();
        }
        is_added
    }

    /// Returns what waits to be written.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> String {
        String::from_utf8_lossy(&self.0.pending.lock().buffer.text).into_owned()
    }

    /// Records a run of a controller that ended.
    pub(crate) fn run(&self, controller: &str, run: &impl Serialize) {
        self.line(&RunLine { run, controller });
    }

    /// Reads the file, the oldest part first.
    ///
    /// # Errors
    /// It can't be read.
    #[cfg(feature = "http")]
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let _not_written_now = self.0.part.lock();
        super::ring::read(&self.0.path)
    }
}

/// Begins a part. With the first one a process begins.
fn header(t: u64, began: &str, part: u64) -> Vec<u8> {
    let mut text = Vec::new();
    add_line(&mut text, t, &HeaderLine { watchkeeper: env!("CARGO_PKG_VERSION"), began, part });
    text
}

/// Returns the fields of a JSON object, without its braces.
fn fields(value: &impl Serialize) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(value).ok()?;
    json.strip_prefix(b"{").and_then(|json| json.strip_suffix(b"}")).map(<[u8]>::to_vec)
}

/// Adds a line: the time, and the fields of a value.
fn add_line(text: &mut Vec<u8>, t: u64, value: &impl Serialize) {
    let start = text.len();
    add_time(text, t);
    let brace = text.len();
    match serde_json::to_writer(&mut *text, value) {
        Ok(()) if text.get(brace) == Some(&b'{') => {
            text[brace] = b',';
            text.push(b'\n');
        }
        _ => text.truncate(start),
    }
}

fn add_time(text: &mut Vec<u8>, t: u64) {
    text.extend_from_slice(b"{\"t\":");
    let _infallible = serde_json::to_writer(text, &t);
}

/// Adds a line: the time, what comes first, and JSON behind that.
fn add(text: &mut Vec<u8>, t: u64, first: &[u8], json: &[u8]) {
    add_time(text, t);
    for part in [b",", first, json, b"}\n"] {
        text.extend_from_slice(part);
    }
}

#[derive(Serialize)]
struct HeaderLine<'a> {
    watchkeeper: &'a str,
    began: &'a str,
    part: u64,
}

/// What was cached at this moment is in the lines since a part began.
#[derive(Serialize)]
struct WholeLine {
    whole: u64,
}

#[derive(Serialize)]
struct MissingLine {
    missing: u64,
}

#[derive(Serialize)]
struct SettingsLine<'a> {
    settings: serde_json::Value,
    /// A replay compares nothing of these.
    hidden: &'a [HiddenField],
}

#[derive(Serialize)]
struct StateLine {
    state: &'static str,
}

impl StateLine {
    fn of(state: Option<&'static str>) -> Self {
        Self { state: state.unwrap_or("no election") }
    }
}

#[derive(Serialize)]
struct RunLine<'a, R> {
    run: &'a R,
    controller: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flight_recorder::{Shown, SnapshotObject},
        object::{Kind, ObjectKey},
    };

    /// Holds notes that are or can't be encoded, in this order.
    struct Notes(Vec<bool>);

    impl RecordingSource for Notes {
        fn objects(&self, _: &Shown, take: &mut dyn FnMut(SnapshotObject<'_>)) {
            let kind = Kind::of::<k8s_openapi::api::core::v1::ConfigMap>();
            for (number, encoded) in self.0.iter().enumerate() {
                let key = ObjectKey::new("shop", number.to_string());
                let encode = || encoded.then(|| br#"{"kind":"Note"}"#.to_vec());
                take(SnapshotObject { kind: &kind, key: &key, informer: 0, version: None, encode: &encode });
            }
        }

        fn settings(&self) -> serde_json::Value {
            serde_json::Value::Null
        }

        fn state(&self) -> Option<&'static str> {
            None
        }
    }

    // P26
    #[tokio::test(start_paused = true)]
    async fn no_event_refers_to_one_that_is_not_written() {
        let path = std::env::temp_dir().join(format!("watchkeeper-events-{}.wkr", std::process::id()));
        let recording = Recording::open(&path, 1 << 20, Vec::new(), &WallClock::default()).unwrap();
        let mut template = Template::default();
        let long = format!("{{\"note\":\"{}\"}}", "long ".repeat(3_000));
        let mut likes = |json: &str| {
            recording.event(b"{\"t\":0,\"event\":7,", json.as_bytes(), &mut template);
            let pending = recording.0.pending.lock();
            let text = String::from_utf8_lossy(&pending.buffer.text);
            (text.matches("\"line\"").count(), text.matches("\"like\"").count(), pending.missing)
        };
        assert_eq!([likes(&long), likes(&long)], [(1, 0, 0), (1, 1, 0)]);
        assert_eq!([likes("{\"a\0\"}"), likes(&long)], [(1, 1, 1), (1, 2, 1)]);
        // What is written later refers to nothing of what was taken.
        recording.0.pending.lock().buffer.take(Vec::new());
        assert_eq!(likes(&long), (1, 0, 1));
        // Too much waits: the event is left out, and another one does not refer to it.
        recording.push(b"\"x\":", &vec![b'1'; recording.largest() - 25_000]);
        let other = long.replace("long", "else");
        assert_eq!([likes(&other), likes(&other)], [(1, 0, 2), (1, 0, 3)]);
        std::fs::remove_file(path).unwrap();
    }

    // P26
    #[tokio::test(start_paused = true)]
    async fn a_part_leaves_out_what_can_t_be_encoded_and_what_does_not_fit() {
        leaves_out(Vec::new());
        // What is hidden is encoded again.
        leaves_out(vec![HiddenField::new("", "configmaps", "/data/token")]);
    }

    fn leaves_out(hidden: Vec<HiddenField>) {
        let path = std::env::temp_dir().join(format!("watchkeeper-snapshot-{}.wkr", std::process::id()));
        let recording = Recording::open(&path, 1 << 20, hidden, &WallClock::default()).unwrap();
        let taken = |notes: &[bool]| {
            let mut part = recording.0.part.lock();
            let part = part.as_mut().unwrap();
            part.ring.append(&mut vec![b'\n'; part.ring.room()]).unwrap();
            recording.put(part, &Notes(notes.to_vec()), &mut b"\n".to_vec()).unwrap();
            let text = String::from_utf8(crate::flight_recorder::ring::part(&path).unwrap()).unwrap();
            let missing = text.lines().find_map(|line| line.split_once("\"missing\":"));
            let missing = missing.map_or(0, |(_, count)| count.trim_end_matches('}').parse().unwrap());
            assert!(text.lines().last().unwrap().contains("\"whole\":"), "{text}");
            (text.matches("\"path\":").count(), missing)
        };
        assert_eq!(taken(&[true, false, true, true]), (3, 1));
        assert_eq!(taken(&[]), (0, 0));
        let (written, missing) = taken(&[true; 20_000]);
        assert_eq!(written + missing, 20_000);
        assert!(written > 1_000 && missing > 1_000, "{written} and {missing}");
        // As much as can wait follows the objects.
        let parts = ["wkr", "wkr.old", "wkr.oldest"].map(|suffix| path.with_extension(suffix));
        for _ in 0..10 {
            let mut text = vec![b'\n'; recording.largest()];
            let mut part = recording.0.part.lock();
            recording.put(part.as_mut().unwrap(), &Notes(vec![true; 20_000]), &mut text).unwrap();
            let sizes = parts.each_ref().map(|part| std::fs::metadata(part).unwrap().len());
            assert!(sizes.iter().sum::<u64>() <= 1 << 20, "{sizes:?}");
        }
        parts.iter().for_each(|part| std::fs::remove_file(part).unwrap());
    }
}

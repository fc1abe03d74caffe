//! Gathers lines, and writes them to the file twice a second.

use std::{
    borrow::Cow,
    fmt, io, mem,
    path::{Path, PathBuf},
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
use tokio_util::sync::CancellationToken;

use super::{
    hidden::{self, HiddenField},
    ring::Ring,
};
use crate::{chain::one_line, clock::WallClock, object::AnyObject, users_code::contained};

/// How often what was recorded is written to the file.
const FLUSH: Duration = Duration::from_millis(500);
/// With this many bytes it is written at once.
const SOON: usize = 256 << 10;
/// Most bytes that wait to be written, of a recording of any size.
const FULL: usize = 8 << 20;

/// Records; clones record into one file.
#[derive(Clone)]
pub(crate) struct Recording(Arc<RecordingCore>);

struct RecordingCore {
    /// `None` after an error.
    ring: Mutex<Option<Ring>>,
    /// With this many bytes that could not be written yet, lines are left out.
    full: usize,
    path: PathBuf,
    hidden: Vec<HiddenField>,
    pending: Mutex<Pending>,
    due: Notify,
    began: Instant,
    requests: AtomicU64,
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
    text: Vec<u8>,
    missing: u64,
}

/// An object that is cached, as a part of the file begins with it.
pub(crate) struct SnapshotObject<'a> {
    pub(crate) path: String,
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) object: &'a dyn AnyObject,
}

/// What a recorder asks its manager.
pub(crate) trait RecordingSource: Send + Sync {
    /// Lists the cached objects.
    fn objects(&self, take: &mut dyn FnMut(SnapshotObject<'_>));

    /// Shows how it is set up.
    fn settings(&self) -> serde_json::Value;

    /// Says whether the replica leads.
    fn state(&self) -> Option<&'static str>;
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
        let began = jiff::Timestamp::try_from(clock.now()).map(|now| now.to_string()).unwrap_or_default();
        let core = RecordingCore {
            ring: Mutex::new(Some(Ring::open(path, at_most, &began)?)),
            // So a part that begins with a snapshot has room for it.
            full: usize::try_from(at_most / 8).unwrap_or(FULL).min(FULL),
            path: path.to_owned(),
            hidden,
            pending: Mutex::default(),
            due: Notify::new(),
            began: Instant::now(),
            requests: AtomicU64::new(0),
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

    /// Writes what is recorded until the token is cancelled, and a last time then.
    pub(crate) async fn write(self, manager: impl RecordingSource + 'static, stop: CancellationToken) {
        let (manager, mut state, mut spare) = (Arc::new(manager), None, Vec::new());
        self.line(&SettingsLine { settings: manager.settings() });
        loop {
            let is_over = tokio::select! {
                () = stop.cancelled() => true,
                () = sleep(FLUSH) => false,
                () = self.0.due.notified() => false,
            };
            let now = manager.state();
            if now != state {
                state = now;
                self.line(&StateLine { state: now.unwrap_or("no election") });
            }
            // The two buffers change places, so that neither is allocated again.
            let (recording, source) = (self.clone(), manager.clone());
            let text = mem::replace(&mut self.0.pending.lock().text, spare);
            let written = spawn_blocking(move || recording.flush(&*source, text, is_over));
            spare = written.await.unwrap_or_default();
            if is_over {
                return;
            }
        }
    }

    /// Writes lines to the file; returns the empty buffer.
    fn flush(&self, manager: &dyn RecordingSource, mut text: Vec<u8>, is_over: bool) -> Vec<u8> {
        let missing = mem::take(&mut self.0.pending.lock().missing);
        if missing > 0 {
            text.extend_from_slice(format!("{{\"t\":{},\"missing\":{missing}}}\n", self.millis()).as_bytes());
        }
        let mut ring = self.0.ring.lock();
        let Some(open) = ring.as_mut() else { return Vec::new() };
        let written = open.write(&mut text, |most| self.snapshot(manager, most));
        if let Err(error) = written.and_then(|()| if is_over { open.close() } else { Ok(()) }) {
            tracing::error!(file = %self.0.path.display(), error = one_line(&error), "the flight recorder stops");
            *ring = None;
        }
        text.clear();
        text.shrink_to(2 * SOON);
        text
    }

    /// Writes the objects with which a part of the file begins, as far as there is room.
    fn snapshot(&self, manager: &dyn RecordingSource, most: usize) -> Vec<u8> {
        let (mut text, mut missing, mut is_full, t) = (Vec::new(), 0, false, self.millis());
        manager.objects(&mut |object| {
            // Once something does not fit, the rest is only counted. How a type is written is its user's code.
            let json = Some(object.object).filter(|_| !is_full);
            let json = json.and_then(|object| contained(|| object.to_json())?.ok()).unwrap_or_default();
            let json = self.shown(object.group, object.plural, &json);
            if json.is_empty() || text.len() + json.len() > most {
                is_full |= !json.is_empty();
                missing += 1;
                return;
            }
            text.extend_from_slice(
                format!("{{\"t\":{t},\"path\":\"{}\",\"object\":", object.path).as_bytes(),
            );
            text.extend_from_slice(&json);
            text.extend_from_slice(b"}\n");
        });
        if missing > 0 {
            text.extend_from_slice(format!("{{\"t\":{t},\"missing\":{missing}}}\n").as_bytes());
        }
        text
    }

    /// Returns what is recorded of an object, an event or a list: without what is hidden, and in one line.
    pub(super) fn shown<'j>(&self, group: &str, plural: &str, json: &'j [u8]) -> Cow<'j, [u8]> {
        hidden::shown(self.0.hidden.iter().filter(|field| field.is_of(group, plural)), json)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn line(&self, value: &impl Serialize) {
        if let Ok(json) = serde_json::to_vec(value) {
            let fields = json.strip_prefix(b"{").and_then(|json| json.strip_suffix(b"}"));
            self.push(b"", fields.unwrap_or_default());
        }
    }

    /// Adds a line: the time, what comes first, and JSON behind that.
    pub(super) fn push(&self, first: &[u8], json: &[u8]) {
        let t = self.millis();
        let mut pending = self.0.pending.lock();
        if pending.text.len() + json.len() > self.0.full {
            pending.missing += 1;
            return;
        }
        pending.text.extend_from_slice(b"{\"t\":");
        let _infallible = serde_json::to_writer(&mut pending.text, &t);
        for part in [b",", first, json, b"}\n"] {
            pending.text.extend_from_slice(part);
        }
        if pending.text.len() >= SOON.min(self.0.full / 2) {
            self.0.due.notify_one();
        }
    }

    /// Records a run of a controller that ended.
    pub(crate) fn run(&self, controller: &str, run: &impl Serialize) {
        self.line(&RunLine { run, controller });
    }

    /// Reads the file, the older part first.
    ///
    /// # Errors
    /// It can't be read.
    #[cfg(feature = "http")]
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let _not_written_now = self.0.ring.lock();
        super::ring::read(&self.0.path)
    }
}

#[derive(Serialize)]
struct SettingsLine {
    settings: serde_json::Value,
}

#[derive(Serialize)]
struct StateLine {
    state: &'static str,
}

#[derive(Serialize)]
struct RunLine<'a, R> {
    run: &'a R,
    controller: &'a str,
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;

    /// Is encoded, or can't be.
    struct Note(ObjectMeta, bool);

    impl AnyObject for Note {
        fn metadata(&self) -> &ObjectMeta {
            &self.0
        }

        fn to_json(&self) -> serde_json::Result<Vec<u8>> {
            assert!(self.1, "a user's type");
            Ok(br#"{"kind":"Note"}"#.to_vec())
        }
    }

    /// Holds notes that are or can't be encoded, in this order.
    struct Notes(Vec<bool>);

    impl RecordingSource for Notes {
        fn objects(&self, take: &mut dyn FnMut(SnapshotObject<'_>)) {
            for (number, encoded) in self.0.iter().enumerate() {
                let note = Note(ObjectMeta::default(), *encoded);
                let path = format!("/api/v1/notes/{number}");
                take(SnapshotObject { path, group: "", plural: "notes", object: &note });
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
    async fn a_snapshot_leaves_out_what_can_t_be_encoded_and_what_does_not_fit() {
        let path = std::env::temp_dir().join(format!("watchkeeper-snapshot-{}.wkr", std::process::id()));
        let recording = Recording::open(&path, 1 << 20, Vec::new(), &WallClock::default()).unwrap();
        let taken = |notes: &[bool], most| {
            let text = String::from_utf8(recording.snapshot(&Notes(notes.to_vec()), most)).unwrap();
            let missing = text.lines().last().and_then(|line| line.split_once("\"missing\":"));
            let missing = missing.map_or(0, |(_, count)| count.trim_end_matches('}').parse().unwrap());
            (text.matches("\"object\":{\"kind\":\"Note\"}").count(), missing)
        };
        assert_eq!(taken(&[true, false, true, true], 1_000), (3, 1));
        assert_eq!(taken(&[true, true, true, true], 100), (2, 2));
        assert_eq!(taken(&[], 1_000), (0, 0));
        std::fs::remove_file(path).unwrap();
    }
}

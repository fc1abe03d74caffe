//! Keeps what came in and what went out in a bounded file, so that an incident can be played again.
//!
//! A part of the file ends at its first NUL byte; after a clean end there is nothing behind that. Each line is a JSON object with
//! the milliseconds `t` since the recording began, except where it has `like`:
//!
//! | Line | Says |
//! |---|---|
//! | `{"t":0,"watchkeeper":"0.1.0","began":"…","part":1}` | a part begins; with the first one a process |
//! | `{"t":1,"settings":{…}}` | the program, and its controllers with their kinds and workers |
//! | `{"t":0,"path":"/apis/…","object":{…}}` | an object that is cached, and that the part before does not show |
//! | `{"t":0,"whole":3}` | what is cached at this time is in lines since that part began; some of them may follow |
//! | `{"t":5,"request":7,"method":"PATCH","uri":"/apis/…","type":"…","body":…}` | a request is sent, or goes on where a part begins |
//! | `{"t":9,"answer":7,"code":200,"body":{…}}` | its answer; a body that was too large is missing |
//! | `{"t":9,"event":7,"line":{…}}` | an event of the watch that it opened |
//! | `{"t":9,"run":{…},"controller":"…"}` | a run ended |
//! | `{"t":9,"state":"…"}` | the replica leads, or stands by |
//! | `{"t":9,"event":7,"like":…}` | another event of it, as what differs from the last `line` of it |
//! | `{"t":0,"path":"/apis/…","like":…}` | another object, as what differs from the last `object` |
//! | `{"t":9,"missing":3}` | lines or objects that were left out: too large, no room, or the disk was too slow |
//!
//! What is behind `like` is JSON in which references stand for parts of the other one. Byte 1 is followed by three digits for the
//! offset and three for the length, in bytes. Byte 2 is followed by two digits for the length: that part begins where the one of the
//! reference before ends, or at the beginning, and as many bytes further as are in between. A digit is a character from `@` on; it has
//! six bits, and the highest comes first.

mod answer;
mod hidden;
mod recorder;
mod ring;
mod snapshot;
mod template;
mod watches;

use std::{
    io,
    path::{Path, PathBuf},
};

use self::hidden::HiddenField;
pub(crate) use self::{
    answer::{LineRecorder, sent},
    recorder::{Recording, RecordingSlot},
    snapshot::{RecordingSource, Shown, SnapshotObject},
};
use crate::clock::WallClock;

/// The size of a recording, unless it is set.
const AT_MOST: u64 = 64 << 20;

/// Where and what a manager [records](crate::Manager::flight_recorder).
///
/// The file is a ring of three parts: `op.wkr`, `op.wkr.old` and `op.wkr.oldest`. Together they take at most the size that
/// is set. Once they are full, the oldest part only completes what was there when the next one began: a replay begins with
/// that. A new process begins a new part, and drops the oldest of those that it finds. So a program that restarts again and
/// again keeps only its last three runs. The file is readable for its owner alone.
///
/// The book's page about costs shows what recording takes. What repeats an earlier event or object of the kind is written as a
/// reference. Objects that do not change are written into every second part: choose a size of at least five times theirs in JSON,
/// or three times if they resemble each other.
///
/// Never recorded: the data of Secrets, their annotations, tokens and other headers, and what [`hide`](Self::hide) names.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{FlightRecorder, Manager};
///
/// # fn recorded(manager: Manager) -> Manager {
/// let recorder = FlightRecorder::new("/var/run/websites.wkr").at_most(64 << 20).hide::<ConfigMap>("/data/token");
/// manager.flight_recorder(recorder)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlightRecorder {
    path: PathBuf,
    at_most: u64,
    hidden: Vec<HiddenField>,
}

impl FlightRecorder {
    /// Records into a file. No other manager may record into it at the same time: a file `.lock` next to it says so.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), at_most: AT_MOST, hidden: HiddenField::always() }
    }

    /// Bounds the file, in bytes; 64 MiB unless set, and never less than 1 MiB.
    ///
    /// If an earlier process was given more, its last part stays until it is written over.
    #[must_use]
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.at_most = bytes.max(1 << 20);
        self
    }

    /// Keeps a field out of the recording: a JSON pointer in which `*` is any key or item, such as `/spec/users/*/token`.
    ///
    /// Texts in it become empty, numbers 0 and booleans false. Its keys, and how many items it has, stay. A number in the pointer is
    /// any item as well, because a patch has items at other positions.
    ///
    /// Each event of the kind is then parsed once more. What `kubectl apply` keeps of such an object in an annotation, the values
    /// of JSON patches, and what the server says where it refuses one, are left out as well. The error of a run may still quote
    /// what the server said.
    ///
    /// # Panics
    /// When the pointer does not begin with `/`.
    #[must_use]
    pub fn hide<K: kube::Resource<DynamicType = ()>>(mut self, pointer: &str) -> Self {
        // `kubectl apply` keeps a copy of what it applied.
        for pointer in [pointer, "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"] {
            self.hidden.push(HiddenField::new(&K::group(&()), &K::plural(&()), pointer));
        }
        self
    }

    /// Names the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn open(&self, clock: &WallClock) -> io::Result<Recording> {
        Recording::open(&self.path, self.at_most, self.hidden.clone(), clock)
    }
}

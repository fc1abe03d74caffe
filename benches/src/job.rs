//! The settings of a measured process, and its identity.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The benches; their names are the command line's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bench {
    /// The first list: time, CPU and memory.
    InitialList,
    /// 200,000 changes into the cache and one handler.
    WatchThroughput,
    /// 1, 10 and 50 controllers on one kind.
    FanOut,
    /// A writer at full speed with 0, 10 and 50 readers.
    ReadersWriter,
    /// What it costs to wake the keys that read what changes.
    Reads,
    /// Reads of the cache: by key, by index, by labels.
    ListerGet,
    /// A relist and a resync of unchanged objects.
    Relist,
    /// The cost of a cache while nothing happens.
    Idle,
    /// The cost of one object, from 1,000 to 1,000,000 of them.
    Scale,
    /// 10,000 changes a second: one minute of them, or with `--full` ten, of a million objects.
    Soak,
    /// The work queue: in turn, contended, delayed.
    Queue,
    /// From a write to the start of its reconcile.
    Latency,
    /// No-op reconciles of 50,000 keys; 20,000 reconciles in flight that end at staggered times.
    ReconcileThroughput,
    /// How often each of 200 keys that are always ready is served.
    Fairness,
    /// Replicas that share the work.
    Shards,
    /// The embedded API server, compared with a real kube-apiserver.
    Server,
    /// How long an operator takes to build, and how large it is.
    BuildCost,
}

/// The side that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Side {
    Watchkeeper,
    KubeRs,
    ClientGo,
    ControllerRuntime,
    /// The floor: the same bytes through socket, decoder and map.
    Floor,
    /// The embedded API server.
    ApiServer,
    /// A real kube-apiserver.
    KubeApiserver,
}

impl Side {
    /// Returns whether it is measured by the program of Go's peers.
    pub(crate) fn is_go(self) -> bool {
        matches!(self, Self::ClientGo | Self::ControllerRuntime)
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Watchkeeper => "watchkeeper",
            Self::KubeRs => "kube-rs 5.0",
            Self::ClientGo => "client-go 0.37",
            Self::ControllerRuntime => "controller-runtime 0.25",
            Self::Floor => "floor",
            Self::ApiServer => "watchkeeper-apiserver",
            Self::KubeApiserver => "kube-apiserver 1.36",
        })
    }
}

/// How the first list is read, or another way of working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// The side's default.
    Default,
    /// By a stream of initial events.
    Streaming,
    /// In pages of 500.
    Paged,
    /// By one answer at any version.
    AnyVersion,
    /// With objects kept as bytes.
    Compact,
    /// By handlers of one informer, without controllers.
    Handlers,
    /// By a work queue alone, without a controller.
    QueueAlone,
    /// By subscribers of one shared stream, or by replicas that share the work.
    Shared,
    /// By a mapping function with an index.
    Mapped,
    /// With caches that no run reads.
    Untracked,
    /// With a flight recorder.
    Recorded,
    /// With a flight recorder whose file is many times as large as what is cached.
    RecordedLong,
    /// By a server in another process.
    Socket,
    /// With bodies and answers in protobuf.
    Protobuf,
    /// Under RBAC.
    Roles,
    /// With custom objects.
    Custom,
    /// With custom objects whose schema has CEL rules.
    Rules,
    /// Built without what serves probes and metrics.
    WithoutHttp,
    /// Shared out between tenants.
    Fair,
    /// Replicas that share the work and the cache.
    Split,
    /// By a controller for each namespace.
    Namespaces,
}

/// The part of a bench with several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Question {
    Main,
    /// First list: every key also goes through a queue, as for a controller.
    Keys,
    /// First list: the keys of Pods.
    Pods,
    /// Queue: adds against a backlog and many workers.
    Contended,
    /// Queue: keys that all wait for the same moment.
    Delayed,
    /// Cache: the cost of a resync.
    Resync,
    /// Controller: many reconciles in flight at once.
    Storm,
    /// Readers: each object that a list returns is read.
    Walk,
    /// Server: how long it takes to start.
    Start,
    /// Server: long lists.
    List,
    /// Server: watchers of one namespace each.
    Apart,
    /// Server: watchers of everything.
    Together,
    /// Server: the memory of an object.
    Memory,
    /// Changes: in a manager, with or without a flight recorder.
    Recorded,
    /// Fairness: between one tenant with many keys and others with few.
    Tenants,
    /// Shards: one of the replicas.
    Replica,
}

/// The settings of a measured process: one flat record, which the Go peers read as well.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) bench: Bench,
    pub(crate) side: Side,
    pub(crate) mode: Mode,
    pub(crate) question: Question,
    /// The address of the load generator; 0 without one.
    pub(crate) port: u16,
    pub(crate) objects: usize,
    pub(crate) events: usize,
    /// How many controllers, handlers, readers or workers.
    pub(crate) users: usize,
    pub(crate) seconds: u64,
    #[serde(default)]
    pub(crate) cores: Cores,
}

/// How many cores a measured process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cores {
    #[default]
    All,
    One,
}

impl Job {
    /// Begins a job of the first side with nothing but objects.
    pub(crate) fn new(bench: Bench, objects: usize) -> Self {
        let (side, mode, question) = (Side::Watchkeeper, Mode::Default, Question::Main);
        let cores = Cores::All;
        Self { bench, side, mode, question, port: 0, objects, events: 0, users: 1, seconds: 0, cores }
    }

    pub(crate) fn events(self, events: usize) -> Self {
        Self { events, ..self }
    }

    pub(crate) fn users(self, users: usize) -> Self {
        Self { users, ..self }
    }

    pub(crate) fn seconds(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    pub(crate) fn question(self, question: Question) -> Self {
        Self { question, ..self }
    }
}

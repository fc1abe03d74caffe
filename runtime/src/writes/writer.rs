//! What all writes of one controller share: the client, the caches to compare with, the memory.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::{
    WriteError,
    answers::{Answers, LastAnswer, Seen},
    own_writes::{OwnWrites, RunEnd, SourceId, Verdict},
    request::{Answer, Content, Request, Target},
};
use crate::{
    informer::{Progress, ProgressVia},
    object::{Kind, ObjectKey, Scope, Version},
};

/// What the caches say of an object that is about to be written.
#[derive(Debug)]
pub(crate) enum Cached {
    /// The cache is synced and holds no such object.
    Absent,
    /// The cache can't say: not synced, or the object is unreadable.
    Unknown,
    /// The cached state.
    Present(CachedMeta),
}

/// As much of an object as a write must know beforehand.
#[derive(Clone, Debug)]
pub(crate) struct CachedMeta {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) owners: Vec<OwnerReference>,
}

impl CachedMeta {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
        }
    }
}

type LookUp = Box<dyn Fn(&ObjectKey) -> Cached + Send + Sync>;

/// One cache of the controller, as writes see it.
pub(crate) struct CacheView {
    pub(crate) source: SourceId,
    pub(crate) kind: Kind,
    /// The one namespace that it covers; `None`: all.
    pub(crate) namespace: Option<String>,
    pub(crate) look_up: LookUp,
}

impl CacheView {
    fn covers(&self, target: &Target) -> bool {
        let same_resource = self.kind.group == target.kind.group && self.kind.plural == target.kind.plural;
        let in_scope = self.namespace.is_none() || self.namespace.as_deref() == target.key.namespace();
        same_resource && in_scope
    }
}

impl fmt::Debug for CacheView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheView({})", self.kind)
    }
}

/// The reconciled object, as its children's owner.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    /// Empty once the object is gone.
    pub(crate) uid: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.kind, self.key)
    }
}

impl Owner {
    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.kind.scope == Scope::Cluster
    }
}

/// What is known of a target before it is written.
#[derive(Debug)]
pub(crate) enum Known {
    Absent,
    Present(CachedMeta),
}

/// How a write proved what it was computed from.
#[derive(Debug)]
pub(crate) enum Proof {
    /// It carried this version.
    Carried(String),
    /// It proved nothing but, at most, the UID.
    None,
}

#[derive(Debug, Default)]
struct Memory {
    own: OwnWrites<ObjectKey>,
    answers: Answers,
    /// Keys in flight whose run sent a write.
    sent: HashSet<ObjectKey>,
}

/// Shared by all runs of one controller.
pub(crate) struct Writer {
    client: kube::Client,
    field_manager: String,
    caches: Vec<CacheView>,
    memory: Mutex<Memory>,
    wake: Box<dyn Fn(ObjectKey) + Send + Sync>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("field_manager", &self.field_manager).finish_non_exhaustive()
    }
}

impl Writer {
    pub(crate) fn new(
        client: kube::Client,
        field_manager: String,
        caches: Vec<CacheView>,
        wake: impl Fn(ObjectKey) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { client, field_manager, caches, memory: Mutex::default(), wake: Box::new(wake) })
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Query pairs of every write: who writes.
    pub(crate) fn query(&self) -> String {
        format!("fieldManager={}", self.field_manager)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_of(&self, target: &Target) -> Option<&CacheView> {
        self.caches_of(target).next()
    }

    /// Finds every cache that shows a target: a kind may be watched in several forms.
    fn caches_of(&self, target: &Target) -> impl Iterator<Item = &CacheView> {
        self.caches.iter().filter(|cache| cache.covers(target))
    }

    // --- what the controller tells the memory

    pub(crate) fn begin(&self, key: &ObjectKey) {
        let mut memory = self.memory();
        memory.answers.run_began(key);
        memory.own.begin(key);
    }

    pub(crate) fn end(&self, key: &ObjectKey) -> RunEnd {
        let mut memory = self.memory();
        memory.answers.run_ended(key);
        memory.sent.remove(key);
        memory.own.end(key)
    }

    /// Whether the run of the key that is in flight has sent a write.
    pub(crate) fn sent(&self, key: &ObjectKey) -> bool {
        self.memory().sent.contains(key)
    }

    pub(crate) fn event(&self, source: SourceId, version: Option<Version>, key: &ObjectKey) -> Verdict {
        self.memory().own.event(source, version, key)
    }

    pub(crate) fn stranger(&self, key: &ObjectKey) -> Verdict {
        self.memory().own.stranger(key)
    }

    /// Takes note of a cache's progress, and wakes whom it concerns.
    pub(crate) fn progressed(&self, source: SourceId, progress: Progress) {
        let mut woken = {
            let mut memory = self.memory();
            match progress.via {
                ProgressVia::NewEpoch => memory.answers.new_epoch(source),
                _ => memory.answers.delivered(source, progress.version),
            }
            memory.own.progressed(source, progress)
        };
        // The order in which keys wake is nobody's accident.
        woken.sort();
        woken.into_iter().for_each(|key| (self.wake)(key));
    }

    // --- what writes ask and tell

    /// Returns the key's last answer about a target, unless a cache has caught up with it.
    pub(crate) fn last_answer(&self, key: &ObjectKey, target: &Target) -> Option<LastAnswer> {
        self.memory().answers.get(key, &target.kind, &target.key).cloned()
    }

    pub(crate) fn forget_answer(&self, key: &ObjectKey, target: &Target) {
        self.memory().answers.forget(key, &target.kind, &target.key);
    }

    /// Returns what is known of a target without asking the server; `None`: nothing.
    pub(crate) fn known(&self, key: &ObjectKey, target: &Target) -> Option<Known> {
        let answer = self.last_answer(key, target);
        let seen = answer.as_ref().map_or(Seen::NotYet, |answer| answer.seen);
        let answer = answer.map(|LastAnswer { uid, resource_version, owners, .. }| CachedMeta {
            uid,
            resource_version,
            owners,
        });
        let Some(cache) = self.cache_of(target) else { return answer.map(Known::Present) };
        match ((cache.look_up)(&target.key), answer) {
            (Cached::Present(cached), Some(answer)) => Some(Known::Present(newer(cached, answer))),
            (Cached::Present(cached), None) => Some(Known::Present(cached)),
            (Cached::Absent, Some(_)) if seen == Seen::InCache => Some(Known::Absent),
            (_, Some(answer)) => Some(Known::Present(answer)),
            (Cached::Absent, None) => Some(Known::Absent),
            (Cached::Unknown, None) => None,
        }
    }

    /// Asks the server for a target's metadata.
    pub(crate) async fn fetch(&self, target: &Target) -> Result<Option<Value>, WriteError> {
        let request = Request {
            verb: "get",
            method: http::Method::GET,
            target,
            subresource: "",
            query: String::new(),
            content: Content::None,
        };
        match request.send::<Value>(&self.client).await {
            Ok(answer) => Ok(Some(answer.object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Learns from an answer: its version is the key's own where that is proved.
    pub(crate) fn learn(
        &self,
        key: &ObjectKey,
        target: &Target,
        answer: &Answer<Value>,
        proof: &Proof,
        status: Option<Value>,
    ) {
        let meta = &answer.object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        let own = match proof {
            _ if answer.code == StatusCode::CREATED => true,
            // An empty version is none: the server took the write whatever was there.
            Proof::Carried(carried) => !carried.is_empty() && *carried != resource_version,
            Proof::None => false,
        };
        let owners = serde_json::from_value(meta["ownerReferences"].clone()).unwrap_or_default();
        let mut sources: Vec<_> = self.caches_of(target).map(|cache| cache.source).collect();
        sources.dedup();
        let source = sources.first().copied();
        let version = resource_version.parse::<Version>().ok();
        let mut memory = self.memory();
        memory.sent.insert(key.clone());
        memory.answers.keep(
            key,
            &target.kind,
            &target.key,
            LastAnswer { uid, resource_version, owners, status, source, seen: Seen::NotYet },
        );
        let mut wakes = false;
        if let Some(version) = version.filter(|_| own) {
            for source in sources {
                wakes |= memory.own.wrote(key, source, version) == Verdict::Wake;
            }
        }
        drop(memory);
        if wakes {
            (self.wake)(key.clone());
        }
    }
}

/// Picks the newer of two states; the answer where they can't be compared.
fn newer(cached: CachedMeta, answer: CachedMeta) -> CachedMeta {
    let version = |meta: &CachedMeta| meta.resource_version.parse::<Version>();
    match (version(&cached), version(&answer)) {
        (Ok(in_cache), Ok(answered)) if in_cache >= answered => cached,
        _ => answer,
    }
}

//! Rewrites what older versions stored, so that these versions can go.
//!
//! An API server stores an object in the storage version when it is written. The server's own controller does that, where
//! there is one: `storagemigration.k8s.io` (KEP-4192). Otherwise each object is written here as it was read. An object that
//! somebody else writes meanwhile needs nothing more. After all are written, the older versions leave
//! `status.storedVersions`.
//!
//! A run that fails goes on from the page where it was. After a change of leader it begins again: what was written before
//! costs the server a comparison. Objects that the server refuses are tried again by themselves.

use std::{collections::BTreeMap, time::Duration};

use kube::core::Status;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::objects::RawObjects;
use crate::{manager::Stopping, metrics::MigrationMeter, plain::plain, writes::is_of_webhook};

/// Objects of one page.
const PAGE: usize = 200;
/// The time between two writes.
const PACE: Duration = Duration::from_millis(20);
/// How long API servers may take to see which version is the storage version. One that has not seen it would store the old one.
const SEEN_BY_ALL: Duration = Duration::from_secs(15);
/// How often an object is read again that others write at the same time.
const TRIES: usize = 10;
/// How long to wait after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// How long to wait if the server refuses single objects.
const AFTER_REFUSALS: Duration = Duration::from_secs(600);
/// Most refused objects that are remembered, to be tried again. Any others take another run.
const MOST_REFUSED: usize = 1_000;
/// How often it is looked whether anything is to be migrated.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often it is looked how far the server is.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How long a controller of the cluster may take to begin.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(60);
/// How often the log says that the server has not finished.
const TELL_EVERY: Duration = Duration::from_secs(120);
/// The versions of `storagemigration.k8s.io` whose objects read the same, the latest first.
const MIGRATION_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Migrates the objects of one kind.
#[derive(Clone)]
pub(super) struct Migration {
    pub(super) objects: RawObjects,
    /// The name of the definition.
    pub(super) name: String,
    pub(super) meter: MigrationMeter,
}

/// How far a migration has come.
#[derive(Default)]
struct MigrationProgress {
    /// The generation of the definition that says what the storage version is.
    generation: i64,
    /// Since when it is known.
    since: Option<Instant>,
    /// The path of what asks the server to do it.
    asked: Option<String>,
    /// The server can't do it, or has failed.
    is_ours: bool,
    /// Where the next page begins.
    token: String,
    /// All pages were read.
    is_listed: bool,
    /// Objects that were written.
    written: usize,
    /// Objects that the server refuses to write, by the end of their paths, and why.
    refused: BTreeMap<String, String>,
    /// Objects that it refuses as well, and that are not remembered.
    others_refused: usize,
}

impl MigrationProgress {
    fn note_refused(&mut self, name: String, why: String) {
        if self.refused.len() < MOST_REFUSED || self.refused.contains_key(&name) {
            self.refused.insert(name, why);
        } else {
            self.others_refused += 1;
        }
    }

    fn refused(&self) -> usize {
        self.refused.len() + self.others_refused
    }
}

/// What a definition says about the objects of its kind.
struct MigratedKind {
    group: String,
    plural: String,
    kind: String,
    storage: String,
    is_namespaced: bool,
}

impl Migration {
    /// Migrates whenever something is stored in an older version.
    pub(super) async fn run(self, stopping: Stopping) -> Result<(), kube::Error> {
        tokio::select! {
            () = stopping.wait() => {}
            () = self.repeat() => {}
        }
        // The next leader says it.
        self.meter.pending.set(0);
        Ok(())
    }

    async fn repeat(&self) {
        let mut progress = MigrationProgress::default();
        loop {
            let outcome = self.once(&mut progress).await;
            let (crd, refused) = (&self.name, progress.refused());
            let wait = match outcome {
                Ok(()) if refused == 0 => LOOK_EVERY,
                Ok(()) => AFTER_REFUSALS,
                Err(_) => AFTER_FAILURE,
            };
            if let Err(error) = outcome {
                self.meter.failures.inc();
                tracing::warn!(%crd, %error, "objects can't be migrated; trying again in {wait:?}");
            } else if refused > 0 {
                self.meter.failures.inc();
                let first = progress.refused.iter().take(3);
                let first: Vec<_> =
                    first.map(|(name, why)| format!("{}: {}", plain(name), plain(why))).collect();
                let first = first.join("; ");
                tracing::warn!(
                    %crd, refused, %first,
                    "objects can't be written as they are, and stay in an older version; put them right, or delete them; \
                     trying again in {wait:?}"
                );
            }
            sleep(wait).await;
        }
    }

    /// Migrates all objects, if the definition says that some are stored in an older version.
    async fn once(&self, progress: &mut MigrationProgress) -> Result<(), kube::Error> {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", self.name);
        let definition = self.objects.read(&path).await?;
        let kind = definition.as_ref().and_then(MigratedKind::of);
        let wanted = json!([kind.as_ref().map(|kind| &kind.storage)]);
        let todo = definition.zip(kind).filter(|(of, _)| of["status"]["storedVersions"] != wanted);
        self.meter.pending.set(i64::from(todo.is_some()));
        let Some((mut definition, kind)) = todo else {
            // Somebody else may have finished it.
            *progress = MigrationProgress::default();
            return Ok(());
        };
        let generation = definition["metadata"]["generation"].as_i64().unwrap_or_default();
        if progress.generation != generation {
            if let Some(asked) = &progress.asked {
                self.objects.delete(asked).await?;
            }
            let since = Some(Instant::now());
            *progress = MigrationProgress { generation, since, ..MigrationProgress::default() };
        }
        let begun = Instant::now();
        if progress.token.is_empty() && !progress.is_listed {
            tracing::info!(crd = %self.name, to = %plain(&kind.storage), "migrating what older versions stored");
        }
        sleep_until(*progress.since.get_or_insert_with(Instant::now) + SEEN_BY_ALL).await;
        if !progress.is_ours {
            progress.is_ours = !self.migrated_by_server(&kind, progress).await?;
            progress.asked = None;
        }
        if progress.is_ours {
            match progress.is_listed {
                false => self.rewrite(&kind, progress).await?,
                true => self.rewrite_refused(&kind, progress).await?,
            }
            if progress.refused() > 0 {
                return Ok(());
            }
        }
        // If the definition has changed meanwhile, another version may be the storage version: it begins again.
        definition["status"]["storedVersions"] = wanted;
        if self.objects.rewrite(&format!("{path}/status"), &definition).await? {
            let written = progress.written;
            tracing::info!(crd = %self.name, written, took = ?begun.elapsed(), "all objects are migrated");
            self.meter.pending.set(0);
            *progress = MigrationProgress::default();
        }
        Ok(())
    }

    /// Has a controller of the cluster migrate the objects; returns whether one did.
    async fn migrated_by_server(
        &self,
        kind: &MigratedKind,
        progress: &mut MigrationProgress,
    ) -> Result<bool, kube::Error> {
        let group = "storagemigration.k8s.io";
        let found = match self.objects.read(&format!("/apis/{group}")).await {
            Ok(found) => found.unwrap_or_default(),
            Err(error) => return self.declined(error),
        };
        let served: Vec<_> = found["versions"].as_array().into_iter().flatten().collect();
        let is_served = |version: &&&str| served.iter().any(|found| found["version"] == **version);
        let Some(version) = MIGRATION_VERSIONS.iter().find(is_served) else { return Ok(false) };
        let name = format!("{}-{}", self.name, progress.generation);
        let path = format!("/apis/{group}/{version}/storageversionmigrations/{name}");
        let migration = json!({
            "apiVersion": format!("{group}/{version}"), "kind": "StorageVersionMigration",
            "metadata": {"name": name},
            "spec": {"resource": {"group": kind.group, "resource": kind.plural}},
        });
        // One that exists was made by another replica, which does not lead any more.
        if let Err(error) = self.objects.write(&path, &migration).await {
            return self.declined(error);
        }
        progress.asked = Some(path.clone());
        let (begun, mut told) = (Instant::now(), Instant::now());
        let why = loop {
            sleep(ASK_EVERY).await;
            let Some(found) = self.objects.read(&path).await? else { break "somebody deleted it" };
            let conditions: Vec<_> = found["status"]["conditions"].as_array().into_iter().flatten().collect();
            let is_true = |kind: &str| {
                let condition = conditions.iter().find(|condition| condition["type"] == kind);
                condition.filter(|condition| condition["status"] == "True")
            };
            if is_true("Succeeded").is_some() {
                self.objects.delete(&path).await?;
                return Ok(true);
            }
            if let Some(failed) = is_true("Failed") {
                let why = plain(failed["message"].as_str().unwrap_or_default()).to_string();
                tracing::warn!(crd = %self.name, %why, "the server's storage migration failed");
                break "it failed";
            }
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                tracing::info!(crd = %self.name, migration = name, "the cluster is still migrating");
            }
            let is_taken_up = found["status"]["resourceVersion"].is_string();
            if !is_taken_up && begun.elapsed() > TAKEN_UP_WITHIN {
                break "no controller of the cluster took it up";
            }
        };
        tracing::info!(crd = %self.name, migration = name, why, "the program migrates the objects itself");
        self.objects.delete(&path).await?;
        Ok(false)
    }

    /// Returns `false` if the server takes no migrations, or none of this program.
    fn declined(&self, error: kube::Error) -> Result<bool, kube::Error> {
        match error {
            kube::Error::Api(status) if [403, 404, 405, 422].contains(&status.code) => {
                let why = plain(&status.message).to_string();
                tracing::info!(crd = %self.name, %why, "the program migrates the objects itself");
                Ok(false)
            }
            error => Err(error),
        }
    }

    /// Writes each object as it was read, from where an earlier attempt ended.
    async fn rewrite(
        &self,
        kind: &MigratedKind,
        progress: &mut MigrationProgress,
    ) -> Result<(), kube::Error> {
        let MigratedKind { group, plural, storage, .. } = kind;
        let base = kind.base();
        loop {
            let query = format!("limit={PAGE}&continue={}", progress.token);
            let page = match self.objects.read(&format!("{base}/{plural}?{query}")).await {
                Ok(Some(page)) => page,
                // An API server that has not seen the definition yet says so too: nothing is known of the objects.
                Ok(None) => {
                    let message = format!("{plural}.{group} is not served in version {storage}");
                    return Err(kube::Error::Api(
                        Status::failure(&message, "NotFound").with_code(404).boxed(),
                    ));
                }
                // A large kind takes longer than a token lasts. The new one goes on at the present state: what was created
                // since is stored in the new version.
                Err(kube::Error::Api(status)) if status.code == 410 && !progress.token.is_empty() => {
                    let next = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
                    progress.token.clear();
                    progress.token = next.filter(|next| !next.is_empty()).ok_or(kube::Error::Api(status))?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            for object in page["items"].as_array().into_iter().flatten() {
                let name = kind.path_of(object);
                let mut object = object.clone();
                // Items of a list may leave out what the list says.
                object["apiVersion"] = format!("{group}/{storage}").into();
                object["kind"] = kind.kind.clone().into();
                if let Some(why) = self.migrate(&format!("{base}/{name}"), object, progress).await? {
                    progress.note_refused(name, why);
                }
                sleep(PACE).await;
            }
            progress.token = text(&page["metadata"]["continue"]);
            if progress.token.is_empty() {
                progress.is_listed = true;
                return Ok(());
            }
            tracing::info!(crd = %self.name, written = progress.written, "still migrating");
        }
    }

    /// Tries again what the server has refused, and nothing else: all other objects are migrated.
    async fn rewrite_refused(
        &self,
        kind: &MigratedKind,
        progress: &mut MigrationProgress,
    ) -> Result<(), kube::Error> {
        let base = kind.base();
        let names: Vec<_> = progress.refused.keys().cloned().collect();
        for name in names {
            let path = format!("{base}/{name}");
            let refused = match self.objects.read(&path).await? {
                Some(object) => self.migrate(&path, object, progress).await?,
                // Deleted, or unknown to this API server: a list tells.
                None => {
                    progress.others_refused += 1;
                    None
                }
            };
            match refused {
                Some(why) => progress.note_refused(name, why),
                None => drop(progress.refused.remove(&name)),
            }
            sleep(PACE).await;
        }
        if progress.others_refused > 0 {
            (progress.is_listed, progress.others_refused) = (false, 0);
            return self.rewrite(kind, progress).await;
        }
        Ok(())
    }
}

impl Migration {
    /// Writes an object as it is; returns why the server refuses that, if it does.
    async fn migrate(
        &self,
        path: &str,
        object: Value,
        progress: &mut MigrationProgress,
    ) -> Result<Option<String>, kube::Error> {
        match self.store(path, object).await {
            Ok(true) => {
                progress.written += 1;
                self.meter.rewritten.inc();
                Ok(None)
            }
            // Somebody has deleted it.
            Ok(false) => Ok(None),
            Err(kube::Error::Api(status)) if is_of_the_object(status.code) || is_of_webhook(&status) => {
                Ok(Some(status.message.clone()))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes an object as it is; returns whether it is still there.
    ///
    /// Others may write it at the same time, by an API server that does not know the new storage version yet. So it is written here
    /// in any case.
    async fn store(&self, path: &str, mut object: Value) -> Result<bool, kube::Error> {
        for _ in 0..TRIES {
            if self.objects.rewrite(path, &object).await? {
                return Ok(true);
            }
            sleep(PACE).await;
            match self.objects.read(path).await? {
                Some(found) => object = found,
                None => return Ok(false),
            }
        }
        let message = "others write it again and again".to_owned();
        Err(kube::Error::Api(Status::failure(&message, "Conflict").with_code(409).boxed()))
    }
}

impl MigratedKind {
    fn of(definition: &Value) -> Option<Self> {
        let spec = &definition["spec"];
        let storage = spec["versions"].as_array()?.iter().find(|version| version["storage"] == true)?;
        Some(Self {
            group: text(&spec["group"]),
            plural: text(&spec["names"]["plural"]),
            kind: text(&spec["names"]["kind"]),
            storage: text(&storage["name"]),
            is_namespaced: spec["scope"] == "Namespaced",
        })
    }

    /// Returns the path of the version that is stored.
    fn base(&self) -> String {
        format!("/apis/{}/{}", self.group, self.storage)
    }

    /// Returns the path of an object, below that of the version.
    fn path_of(&self, object: &Value) -> String {
        let (name, namespace) = (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
        match self.is_namespaced {
            true => format!("namespaces/{namespace}/{}/{name}", self.plural),
            false => format!("{}/{name}", self.plural),
        }
    }
}

/// Returns whether an answer is about what was sent, so that other objects may do better.
fn is_of_the_object(code: u16) -> bool {
    matches!(code, 400..500) && ![401, 408, 429].contains(&code)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

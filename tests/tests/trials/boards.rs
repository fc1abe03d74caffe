//! Boards on kube's own runtime: an operator that is right, and ten ways in which it is not.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        Controller as KubeController,
        controller::{Action as KubeAction, Config},
        watcher,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use watchkeeper::prelude::*;

/// A board: a note with its text, and an entry in a registry that no owner reference removes.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Board", namespaced, status = "BoardStatus")]
pub(crate) struct BoardSpec {
    pub(crate) text: String,
    pub(crate) size: i32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BoardStatus {
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    pub(crate) conditions: Vec<Value>,
}

fn conditions(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": { "type": "object", "required": ["type"], "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "type": { "type": "string" } } }
    })
}

const FINALIZER: &str = "web.example.dev/registry";
const MANAGER: &str = "boards";

/// What an operator does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// It does nothing wrong.
    None,
    /// Makes a child under a generated name, and looks only at its own status for whether it has one.
    ChildMadeTwice,
    /// Mended: looks for children by their owner, and keeps one.
    ChildMadeOnce,
    /// Removes the finalizer, then cleans up.
    FinalizerBeforeCleanup,
    /// Writes the whole list of conditions that it read at the start of its run.
    StatusFromStaleRead,
    /// Cleans up when it hears of a deletion, and has no finalizer.
    DeletionMissedWhileDown,
    /// Takes over whatever has the name.
    Adoption,
    /// Remembers owners by name.
    OwnerByName,
    /// Replaces the child by what it wants of it, and nothing else.
    UpdateNotPatch,
    /// Mended: replaces the child by what it has just read, changed in its own fields alone.
    UpdateByVersion,
    /// Swallows errors and waits for a change.
    RequeueLost,
    /// Writes the time into the status.
    NeverAtRest,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("{0} belongs to somebody else")]
    Taken(String),
}

struct Operator {
    client: Client,
    bug: Bug,
    /// What it remembers of names: UIDs, texts.
    memory: Mutex<HashMap<String, String>>,
}

impl Operator {
    fn remembered(&self, name: &str) -> Option<String> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn remember(&self, name: &str, what: String) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), what);
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "shop")
    }

    fn boards(&self) -> Api<Board> {
        Api::namespaced(self.client.clone(), "shop")
    }

    async fn reconcile(&self, board: &Board) -> Result<(), Failed> {
        let finalizers = board.metadata.finalizers.clone().unwrap_or_default();
        let ours = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        if board.metadata.deletion_timestamp.is_some() {
            return if ours { self.clean_up(board, finalizers).await } else { Ok(()) };
        }
        if !ours && self.bug != Bug::DeletionMissedWhileDown {
            let more = finalizers.iter().map(String::as_str).chain([FINALIZER]).collect::<Vec<_>>();
            self.set_finalizers(board, &more).await?;
        }
        self.register(board).await?;
        let child = self.note(board).await?;
        self.status(board, child).await
    }

    async fn set_finalizers(&self, board: &Board, finalizers: &[&str]) -> Result<(), Failed> {
        let patch = json!({ "metadata": { "finalizers": finalizers, "uid": board.metadata.uid,
            "resourceVersion": board.metadata.resource_version } });
        self.boards().patch(&board.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn clean_up(&self, board: &Board, finalizers: Vec<String>) -> Result<(), Failed> {
        let left: Vec<&str> = finalizers.iter().map(String::as_str).filter(|it| *it != FINALIZER).collect();
        if self.bug == Bug::FinalizerBeforeCleanup {
            self.set_finalizers(board, &left).await?;
            return self.unregister(&board.name_any()).await;
        }
        self.unregister(&board.name_any()).await?;
        self.set_finalizers(board, &left).await
    }

    /// Keeps an entry that nobody owns.
    async fn register(&self, board: &Board) -> Result<(), Failed> {
        let name = format!("entry-{}", board.name_any());
        if let Some(there) = self.maps().get_opt(&name).await? {
            let ours = there.labels().get("registry").is_some_and(|of| *of == board.name_any());
            return if ours { Ok(()) } else { Err(Failed::Taken(name)) };
        }
        let entry = json!({ "metadata": { "name": name, "labels": { "registry": board.name_any() } } });
        let entry: ConfigMap = serde_json::from_value(entry).expect("it is a map");
        match self.maps().create(&PostParams::default(), &entry).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(|_| ()).map_err(Failed::Kube),
        }
    }

    async fn unregister(&self, name: &str) -> Result<(), Failed> {
        self.delete(&format!("entry-{name}")).await
    }

    async fn delete(&self, map: &str) -> Result<(), Failed> {
        match self.maps().delete(map, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            gone => gone.map(|_| ()).map_err(Failed::Kube),
        }
    }

    fn owner(&self, board: &Board) -> Value {
        let name = board.name_any();
        let uid = board.uid().unwrap_or_default();
        let uid = match self.bug {
            Bug::OwnerByName => {
                let known = self.remembered(&name).unwrap_or(uid);
                self.remember(&name, known.clone());
                known
            }
            _ => uid,
        };
        json!({ "apiVersion": "web.example.dev/v1", "kind": "Board", "name": name, "uid": uid, "controller": true })
    }

    /// Keeps the note; gives its name.
    async fn note(&self, board: &Board) -> Result<String, Failed> {
        match self.bug {
            Bug::ChildMadeTwice | Bug::ChildMadeOnce => self.generated(board).await,
            _ => self.named(board).await,
        }
    }

    /// Keeps a note under a name that the server chose.
    async fn generated(&self, board: &Board) -> Result<String, Failed> {
        if let Some(there) = self.made_before(board).await? {
            let name = there.name_any();
            if there.data != text_of(board) {
                let patch = json!({ "data": { "text": board.spec.text } });
                self.maps().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            return Ok(name);
        }
        let note = json!({ "metadata": { "generateName": format!("{}-", board.name_any()),
            "ownerReferences": [self.owner(board)], "labels": { "note-of": board.name_any() } },
            "data": { "text": board.spec.text } });
        let note: ConfigMap = serde_json::from_value(note).expect("it is a map");
        Ok(self.maps().create(&PostParams::default(), &note).await?.name_any())
    }

    async fn made_before(&self, board: &Board) -> Result<Option<ConfigMap>, Failed> {
        if self.bug == Bug::ChildMadeTwice {
            let known = board.status.iter().flat_map(|status| &status.conditions);
            let known = known.filter_map(|one| one["note"].as_str()).next().map(str::to_owned);
            return match known {
                Some(known) => Ok(self.maps().get_opt(&known).await?),
                None => Ok(None),
            };
        }
        let of = ListParams::default().labels(&format!("note-of={}", board.name_any()));
        let mut notes = self.maps().list(&of).await?.items;
        notes.retain(|note| note.metadata.deletion_timestamp.is_none());
        let kept = notes.iter().position(|note| is_owned(note, board)).map(|at| notes.remove(at));
        // What nobody owns was its own before somebody took the reference off.
        for surplus in notes.iter().filter(|note| is_owned(note, board) || note.owner_references().is_empty())
        {
            self.delete(&surplus.name_any()).await?;
        }
        Ok(kept)
    }

    /// Keeps a note under the board's name.
    async fn named(&self, board: &Board) -> Result<String, Failed> {
        let name = board.name_any();
        let there = self.maps().get_opt(&name).await?;
        let mut version = "1".to_owned();
        if let Some(there) = &there {
            // What it wrote itself it knows by its field manager, whatever became of the owner references.
            let mut managers = there.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
            let ours = is_owned(there, board) || managers.any(|manager| manager == MANAGER);
            if there.metadata.deletion_timestamp.is_some() || !ours && self.bug != Bug::Adoption {
                return Err(Failed::Taken(name));
            }
            version = there.resource_version().unwrap_or_default();
        }
        let wanted = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "ownerReferences": [self.owner(board)], "resourceVersion": version },
            "data": { "text": board.spec.text },
        });
        if matches!(self.bug, Bug::UpdateNotPatch | Bug::UpdateByVersion)
            && let Some(there) = there
        {
            self.update(board, there, wanted).await?;
            return Ok(name);
        }
        self.maps().patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(wanted)).await?;
        Ok(name)
    }

    async fn update(&self, board: &Board, there: ConfigMap, wanted: Value) -> Result<(), Failed> {
        if is_owned(&there, board) && there.data == text_of(board) {
            return Ok(());
        }
        let mut wanted: ConfigMap = serde_json::from_value(wanted).expect("it is a map");
        if self.bug == Bug::UpdateByVersion {
            let owners = wanted.metadata.owner_references;
            wanted = there;
            wanted.metadata.owner_references = owners;
            wanted.data = text_of(board);
        }
        let by = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        self.maps().replace(&board.name_any(), &by, &wanted).await?;
        Ok(())
    }

    async fn status(&self, board: &Board, note: String) -> Result<(), Failed> {
        let mut ready = json!({ "type": "Ready", "status": "True", "note": note, "text": board.spec.text });
        if self.bug == Bug::NeverAtRest {
            ready["at"] = format!("{:?}", Instant::now()).into();
        }
        let mut conditions = board.status.clone().unwrap_or_default().conditions;
        match conditions.iter_mut().find(|one| one["type"] == "Ready") {
            Some(there) if *there == ready => return Ok(()),
            Some(there) => *there = ready,
            None => conditions.push(ready),
        }
        let mut patch = json!({ "status": { "conditions": conditions } });
        if self.bug != Bug::StatusFromStaleRead {
            patch["metadata"] = json!({ "uid": board.metadata.uid });
            let now = self.boards().get_opt(&board.name_any()).await?;
            let Some(now) = now.filter(|now| now.metadata.uid == board.metadata.uid) else { return Ok(()) };
            let mut conditions = now.status.clone().unwrap_or_default().conditions;
            let ready = patch["status"]["conditions"].as_array().into_iter().flatten();
            let ready = ready.into_iter().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
            conditions.retain(|one| one["type"] != "Ready");
            conditions.push(ready);
            patch["status"]["conditions"] = conditions.into();
            patch["metadata"]["resourceVersion"] = json!(now.metadata.resource_version);
        }
        let patch = Patch::Merge(patch);
        self.boards().patch_status(&board.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

async fn reconcile(board: Arc<Board>, operator: Arc<Operator>) -> Result<KubeAction, Failed> {
    match operator.reconcile(&board).await {
        Ok(()) => Ok(KubeAction::requeue(Duration::from_secs(300))),
        Err(_) if operator.bug == Bug::RequeueLost => Ok(KubeAction::await_change()),
        Err(error) => Err(error),
    }
}

fn is_owned(map: &ConfigMap, board: &Board) -> bool {
    map.owner_references().iter().any(|owner| Some(&owner.uid) == board.metadata.uid.as_ref())
}

fn text_of(board: &Board) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("text".to_owned(), board.spec.text.clone())]))
}

/// Runs the operator for ever.
pub(crate) async fn run(client: Client, bug: Bug) {
    let operator = Arc::new(Operator { client, bug, memory: Mutex::default() });
    let (boards, maps) = (operator.boards(), operator.maps());
    let config = watcher::Config::default();
    let controller = KubeController::new(boards.clone(), config.clone())
        .owns(maps.clone(), config.clone())
        .with_config(Config::default().concurrency(1));
    let running =
        controller.run(reconcile, |_, _, _| KubeAction::requeue(Duration::from_secs(2)), operator.clone());
    if bug != Bug::DeletionMissedWhileDown {
        return running.for_each(|_| std::future::ready(())).await;
    }
    let deleted = watcher(boards, config).for_each(|event| {
        let operator = operator.clone();
        async move {
            if let Ok(watcher::Event::Delete(board)) = event {
                while operator.unregister(&board.name_any()).await.is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    });
    tokio::join!(running.for_each(|_| std::future::ready(())), deleted);
}

/// Makes a board.
pub(crate) fn board(name: &str) -> Board {
    Board::new(name, BoardSpec { text: "one".into(), size: 1 })
}

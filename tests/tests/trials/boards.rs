//! Boards on watchkeeper: an operator that is right, and the ways past the runtime's verbs by which it is not.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::{Lister, prelude::*, reflector::ReflectorConfig};

/// A board: a note with its text, and an entry in a registry that no owner reference removes.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Board", namespaced, status = "BoardStatus")]
pub(crate) struct BoardSpec {
    pub(crate) text: String,
    pub(crate) size: i32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BoardStatus {
    /// The name of the note.
    #[serde(default)]
    note: String,
    /// How many seconds after the operator's start it was last looked at.
    #[serde(default)]
    looked_after: Option<u64>,
    #[serde(default)]
    conditions: Conditions,
}

const FINALIZER: &str = "web.example.dev/registry";

/// What an operator does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// It does nothing wrong.
    None,
    /// Makes a child under a generated name, and looks only at its own status for whether it has one.
    ChildMadeTwice,
    /// Mended: looks for children by their owner in the cache, and keeps one.
    ChildMadeOnce,
    /// Removes the finalizer by a request of its own, then cleans up.
    FinalizerBeforeCleanup,
    /// Writes the whole list of conditions that it was shown at the start of its run, by a request of its own.
    StatusFromStaleRead,
    /// Cleans up when it hears of a deletion, and has no finalizer.
    DeletionMissedWhileDown,
    /// Takes over whatever has the name.
    Adoption,
    /// Remembers owners by name, and writes their references itself.
    OwnerByName,
    /// Replaces the child by what it wants of it, by a request of its own.
    UpdateNotPatch,
    /// Swallows errors and waits for a change.
    RequeueLost,
    /// Writes the time into the status at every look, and looks every minute.
    NeverAtRest,
    /// Writes the time into the status at every look, and looks when something changes: its own write wakes it not.
    TimeInStatus,
}

struct Boards {
    bug: Bug,
    began: Instant,
    notes: Lister<ConfigMap>,
    /// The UIDs that it remembers, by name.
    owners: Mutex<HashMap<String, String>>,
}

impl Reconciler<Board> for Boards {
    type Error = anyhow::Error;

    async fn reconcile(&self, board: Arc<Board>, cx: &Context<Board>) -> Result<Action, Self::Error> {
        match self.keep(&board, cx).await {
            Err(_) if self.bug == Bug::RequeueLost => Ok(Action::await_change()),
            kept => kept.map(|()| match self.bug {
                Bug::NeverAtRest => Action::requeue_after(Duration::from_secs(60)),
                Bug::TimeInStatus => Action::await_change(),
                _ => Action::requeue_after(Duration::from_secs(300)),
            }),
        }
    }

    async fn cleanup(&self, board: Arc<Board>, cx: &Context<Board>) -> Result<Cleanup, Self::Error> {
        if self.bug == Bug::FinalizerBeforeCleanup {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let boards = Api::<Board>::namespaced(cx.client().clone(), "shop");
            boards.patch(&board.name_any(), &PatchParams::default(), &patch).await?;
        }
        unregister(cx.client(), &board.name_any()).await?;
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, last: Deleted<Board>, cx: &Context<Board>) -> Result<(), Self::Error> {
        match self.bug {
            Bug::DeletionMissedWhileDown => unregister(cx.client(), last.key().name()).await,
            _ => Ok(()),
        }
    }
}

impl Boards {
    async fn keep(&self, board: &Board, cx: &Context<Board>) -> anyhow::Result<()> {
        register(&board.name_any(), cx).await?;
        let note = match self.bug {
            Bug::ChildMadeTwice | Bug::ChildMadeOnce => self.generated(board, cx).await?,
            Bug::UpdateNotPatch => updated(board, cx).await?,
            _ => self.applied(board, cx).await?,
        };
        self.status(board, note, cx).await
    }

    /// Keeps a note under the board's name.
    async fn applied(&self, board: &Board, cx: &Context<Board>) -> anyhow::Result<String> {
        let mut note = note(board, Some(board.name_any()));
        let made = match self.bug {
            Bug::Adoption => cx.apply(note).adopt().await?,
            Bug::OwnerByName => {
                note.metadata.owner_references = Some(vec![self.remembered_owner(board)]);
                cx.apply(note).unowned().await?
            }
            _ => cx.apply(note).await?,
        };
        Ok(made.name_any())
    }

    fn remembered_owner(&self, board: &Board) -> OwnerReference {
        let uid = board.uid().unwrap_or_default();
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = owners.entry(board.name_any()).or_insert(uid).clone();
        OwnerReference { uid, ..board.controller_owner_ref(&()).unwrap_or_default() }
    }

    /// Keeps a note under a name that the server chose.
    async fn generated(&self, board: &Board, cx: &Context<Board>) -> anyhow::Result<String> {
        let made = match self.bug {
            Bug::ChildMadeTwice => noted(board, cx).await?,
            _ => self.found(board, cx).await?,
        };
        let Some(there) = made else {
            return Ok(cx.create(note(board, None)).await?.name_any());
        };
        if there.data != text_of(board) {
            cx.apply(note(board, Some(there.name_any()))).await?;
        }
        Ok(there.name_any())
    }

    /// Finds the note in the cache, which shows what this key has written; deletes what is too many.
    async fn found(&self, board: &Board, cx: &Context<Board>) -> anyhow::Result<Option<Arc<ConfigMap>>> {
        let all = self.notes.list();
        let owned = |map: &&Arc<ConfigMap>| {
            let mut owners = map.owner_references().iter();
            map.metadata.deletion_timestamp.is_none()
                && owners.any(|owner| Some(&owner.uid) == board.metadata.uid.as_ref())
        };
        let mut owned = all.iter().filter(owned);
        let kept = owned.next().cloned();
        for surplus in owned {
            cx.delete(surplus).await?;
        }
        Ok(kept)
    }

    async fn status(&self, board: &Board, note: String, cx: &Context<Board>) -> anyhow::Result<()> {
        let mut status = board.status.clone().unwrap_or_default();
        if matches!(self.bug, Bug::NeverAtRest | Bug::TimeInStatus) {
            status.looked_after = Some(self.began.elapsed().as_secs());
        }
        status.note = note;
        status.conditions.set(Condition::ready("Noted", board.spec.text.clone()).of(board));
        if self.bug == Bug::StatusFromStaleRead {
            let patch = Patch::Merge(json!({ "status": status }));
            let boards = Api::<Board>::namespaced(cx.client().clone(), "shop");
            boards.patch_status(&board.name_any(), &PatchParams::default(), &patch).await?;
            return Ok(());
        }
        Ok(cx.patch_status(board, status).await?)
    }
}

/// Keeps an entry that nobody owns.
async fn register(board: &str, cx: &Context<Board>) -> anyhow::Result<()> {
    let name = format!("entry-{board}");
    if let Some(there) = cx.get_opt::<ConfigMap>(&ObjectKey::new("shop", &*name)).await? {
        let ours = there.labels().get("registry").is_some_and(|of| of == board);
        anyhow::ensure!(ours, "{name} belongs to somebody else");
        return Ok(());
    }
    let labels = Some(BTreeMap::from([("registry".to_owned(), board.to_owned())]));
    let metadata = ObjectMeta { name: Some(name), labels, ..ObjectMeta::default() };
    cx.create(ConfigMap { metadata, ..ConfigMap::default() }).unowned().await?;
    Ok(())
}

async fn unregister(client: &Client, board: &str) -> anyhow::Result<()> {
    let entries = Api::<ConfigMap>::namespaced(client.clone(), "shop");
    match entries.delete(&format!("entry-{board}"), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        gone => Ok(gone.map(drop)?),
    }
}

/// Says which note a board wants; without a name the server is to choose one.
fn note(board: &Board, name: Option<String>) -> ConfigMap {
    let generate_name = name.is_none().then(|| format!("{}-", board.name_any()));
    let metadata = ObjectMeta { name, generate_name, ..ObjectMeta::default() };
    ConfigMap { metadata, data: text_of(board), ..ConfigMap::default() }
}

fn text_of(board: &Board) -> Option<BTreeMap<String, String>> {
    Some(BTreeMap::from([("text".to_owned(), board.spec.text.clone())]))
}

/// Reads the note that the status names.
async fn noted(board: &Board, cx: &Context<Board>) -> anyhow::Result<Option<Arc<ConfigMap>>> {
    let known = board.status.iter().map(|status| &status.note).find(|note| !note.is_empty());
    let Some(known) = known else { return Ok(None) };
    Ok(cx.get_opt(&ObjectKey::new("shop", known.as_str())).await?.map(Arc::new))
}

/// Writes the whole note, whatever others have put there.
async fn updated(board: &Board, cx: &Context<Board>) -> anyhow::Result<String> {
    let name = board.name_any();
    let notes = Api::<ConfigMap>::namespaced(cx.client().clone(), "shop");
    let mut wanted = note(board, Some(name.clone()));
    let owner = board.controller_owner_ref(&()).unwrap_or_default();
    wanted.metadata.owner_references = Some(vec![owner.clone()]);
    match notes.get_opt(&name).await? {
        None => drop(notes.create(&PostParams::default(), &wanted).await?),
        Some(there) => {
            let mut controllers =
                there.owner_references().iter().filter(|owner| owner.controller == Some(true));
            let ours = controllers.all(|controller| controller.uid == owner.uid)
                && !there.owner_references().is_empty();
            anyhow::ensure!(ours, "{name} belongs to somebody else");
            if there.data != wanted.data {
                notes.replace(&name, &PostParams::default(), &wanted).await?;
            }
        }
    }
    Ok(name)
}

/// Runs the operator for ever.
pub(crate) async fn run(client: Client, bug: Bug) -> Result<(), watchkeeper::Error> {
    let manager = manager(client, 1);
    let boards =
        Boards { bug, began: Instant::now(), notes: manager.lister::<ConfigMap>(), owners: Mutex::default() };
    let controller = Controller::new(boards).owns::<ConfigMap>().workers(1);
    let controller = match bug {
        Bug::DeletionMissedWhileDown => controller,
        _ => controller.finalizer(FINALIZER),
    };
    manager.controller(controller).run().await
}

/// A manager that draws what is random from a seed, so that a trial is the same each time.
pub(crate) fn manager(client: Client, seed: u64) -> Manager {
    Manager::with_config(client, ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() })
}

/// Makes a board.
pub(crate) fn board(name: &str) -> Board {
    Board::new(name, BoardSpec { text: "one".into(), size: 1 })
}

//! Ten operators with one classical bug each, on kube's own runtime: each is found; the operator without holds.

#![expect(clippy::print_stdout, reason = "the table of what was found is the point")]

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{
        Controller as KubeController,
        controller::{Action as KubeAction, Config},
        watcher,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::trials::{Event, Fault, Trials, Trouble, Visit};

/// A board: a note with its text, and an entry in a registry that no owner reference removes.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Board", namespaced, status = "BoardStatus")]
struct BoardSpec {
    text: String,
    size: i32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct BoardStatus {
    #[serde(default)]
    #[schemars(schema_with = "conditions")]
    conditions: Vec<Value>,
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
enum Bug {
    None,
    /// Makes a child under a generated name, and looks only at its own status for whether it has one.
    ChildMadeTwice,
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
    /// Replaces the object by what it made of it when it last looked.
    UpdateNotPatch,
    /// Swallows errors and waits for a change.
    RequeueLost,
    /// Believes its memory of what it applied.
    StaleMemory,
    /// Writes the time into the status.
    NeverAtRest,
}

const BUGS: [Bug; 10] = [
    Bug::ChildMadeTwice,
    Bug::FinalizerBeforeCleanup,
    Bug::StatusFromStaleRead,
    Bug::DeletionMissedWhileDown,
    Bug::Adoption,
    Bug::OwnerByName,
    Bug::UpdateNotPatch,
    Bug::RequeueLost,
    Bug::StaleMemory,
    Bug::NeverAtRest,
];

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
    notes: Mutex<HashMap<String, ConfigMap>>,
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
        match self.maps().delete(&format!("entry-{name}"), &DeleteParams::default()).await {
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
        let name = board.name_any();
        let owned = |map: &ConfigMap| {
            map.owner_references().iter().any(|owner| Some(&owner.uid) == board.metadata.uid.as_ref())
        };
        if self.bug == Bug::ChildMadeTwice {
            let known = board.status.iter().flat_map(|status| &status.conditions);
            let known = known.filter_map(|one| one["note"].as_str()).next().map(str::to_owned);
            if let Some(known) = known
                && let Some(there) = self.maps().get_opt(&known).await?
            {
                let patch = json!({ "data": { "text": board.spec.text } });
                self.maps().patch(&there.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
                return Ok(known);
            }
            let note = json!({ "metadata": { "generateName": format!("{name}-"),
                "ownerReferences": [self.owner(board)] }, "data": { "text": board.spec.text } });
            let note: ConfigMap = serde_json::from_value(note).expect("it is a map");
            return Ok(self.maps().create(&PostParams::default(), &note).await?.name_any());
        }
        if self.bug == Bug::StaleMemory && self.remembered(&name).as_ref() == Some(&board.spec.text) {
            return Ok(name);
        }
        let there = self.maps().get_opt(&name).await?;
        if self.bug == Bug::UpdateNotPatch
            && let Some(there) = &there
        {
            let kept = self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
            let mut kept = kept.unwrap_or_else(|| there.clone());
            kept.data.get_or_insert_default().insert("text".into(), board.spec.text.clone());
            kept.metadata.resource_version = None;
            kept.metadata.uid = None;
            kept.metadata.owner_references = serde_json::from_value(json!([self.owner(board)])).ok();
            let now = self.maps().replace(&name, &PostParams::default(), &kept).await?;
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), now);
            return Ok(name);
        }
        let mut version = "1".to_owned();
        if let Some(there) = &there {
            // What it wrote itself it knows by its field manager, whatever became of the owner references.
            let mut managers = there.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
            if !owned(there) && !managers.any(|manager| manager == MANAGER) {
                if self.bug != Bug::Adoption {
                    return Err(Failed::Taken(name));
                }
            } else if there.metadata.deletion_timestamp.is_some() {
                return Err(Failed::Taken(name));
            }
            version = there.resource_version().unwrap_or_default();
        }
        let note = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "ownerReferences": [self.owner(board)], "resourceVersion": version },
            "data": { "text": board.spec.text },
        });
        let made =
            self.maps().patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(note)).await?;
        match self.bug {
            Bug::StaleMemory => self.remember(&name, board.spec.text.clone()),
            Bug::UpdateNotPatch => {
                self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), made);
            }
            _ => {}
        }
        Ok(name)
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

async fn run(client: Client, bug: Bug) {
    let operator = Arc::new(Operator { client, bug, memory: Mutex::default(), notes: Mutex::default() });
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

fn board(name: &str) -> Board {
    Board::new(name, BoardSpec { text: "one".into(), size: 1 })
}

fn trials(bug: Bug) -> Trials {
    // kube's runtime does not notice that a server went back to an older state.
    let noticed = |trouble| trouble != Trouble::Server(Event::Restored);
    Trials::of(move |client| run(client, bug)).crd::<Board>().namespace("shop").only(noticed).visitor(
        async |visit: Visit| {
            visit.create(&board("a")).await;
            visit.edit::<Board>("a", |board| board.spec.text = "two".into()).await;
            visit.create(&board("b")).await;
            visit.delete::<Board>("a").await;
        },
    )
}

#[test]
fn each_of_ten_classical_bugs_is_found() {
    println!("{:<26} {:>7} {:>8} {:>6}  trial", "bug", "trials", "seconds", "steps");
    let mut missed = Vec::new();
    for bug in BUGS {
        let began = Instant::now();
        let report = trials(bug).run();
        match report.failures.first() {
            Some(found) => println!(
                "{:<26} {:>7} {:>8.2} {:>6}  {}",
                format!("{bug:?}"),
                found.tried,
                began.elapsed().as_secs_f64(),
                found.steps,
                found.trial
            ),
            None => missed.push(bug),
        }
        if std::env::var("STORY").is_ok_and(|wanted| wanted == format!("{bug:?}")) {
            println!("{}", report.failures[0]);
        }
    }
    assert_eq!(missed, [], "not found");
}

#[test]
fn the_operator_without_a_bug_holds() {
    trials(Bug::None).check();
}

#[test]
fn a_child_made_twice_shows_as_such() {
    let report = trials(Bug::ChildMadeTwice).run();
    assert!(matches!(report.failures[0].faults[0], Fault::AnotherEnd(_)), "{}", report.failures[0]);
}

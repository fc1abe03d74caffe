//! Two replicas of one operator, one of them the leader: the knowledge of the new leader decides.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Client;
use tokio::sync::Notify;
use watchkeeper::{LeaderElection, Lister, prelude::*};

use crate::boards::{Board, manager};

/// Which children a leader takes for made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Those that its process saw first, and those that it has made: wrong after another has led.
    OfItsOwn,
    /// Those that the manager's cache shows: a new leader's is fresh before anything runs.
    OfTheManager,
}

/// Makes one note for each board, under a name that the server chooses.
struct Notes {
    cache: Cache,
    notes: Lister<ConfigMap>,
    /// The boards that had their note when the process began, and since.
    served: Mutex<Option<BTreeSet<String>>>,
}

impl Notes {
    fn owners(&self) -> BTreeSet<String> {
        let all = self.notes.list();
        let kept = all.iter().filter(|map| map.metadata.deletion_timestamp.is_none());
        kept.flat_map(|map| map.owner_references().iter().map(|owner| owner.uid.clone())).collect()
    }

    /// Fills its own memory, once.
    fn warm_up(&self) {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| self.owners());
    }

    fn is_served(&self, uid: &str) -> bool {
        match self.cache {
            Cache::OfTheManager => self.owners().contains(uid),
            Cache::OfItsOwn => {
                self.warm_up();
                let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
                served.as_ref().is_some_and(|served| served.contains(uid))
            }
        }
    }

    /// Takes note of what came of a creation; after a failure all is in doubt.
    fn made(&self, uid: String, made: bool) {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            true => drop(served.get_or_insert_default().insert(uid)),
            false => *served = None,
        }
    }
}

impl Notes {
    /// Lists the notes of a board beyond the first: a creation that came late makes one too many.
    fn surplus(&self, uid: &str) -> Vec<Arc<ConfigMap>> {
        let mut all = self.notes.list().iter().cloned().collect::<Vec<_>>();
        all.retain(|map| {
            let mut owners = map.owner_references().iter();
            map.metadata.deletion_timestamp.is_none() && owners.any(|owner| owner.uid == uid)
        });
        all.split_off(all.len().min(1))
    }
}

impl Reconciler<Board> for Notes {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, board: Arc<Board>, cx: &Context<Board>) -> Result<Action, Self::Error> {
        let uid = board.uid().unwrap_or_default();
        if !self.is_served(&uid) {
            let generate_name = Some(format!("{}-", board.name_any()));
            let metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
            let made = cx.create(ConfigMap { metadata, ..ConfigMap::default() }).await;
            self.made(uid, made.is_ok());
            made?;
        }
        if self.cache == Cache::OfTheManager {
            for surplus in self.surplus(&board.uid().unwrap_or_default()) {
                cx.delete(&surplus).await?;
            }
        }
        Ok(Action::await_change())
    }
}

async fn replica(client: Client, (name, seed): (&str, u64), cache: Cache) {
    loop {
        let election = LeaderElection::new("boards").namespace("shop").identity(name);
        let manager = manager(client.clone(), seed).leader_election(election);
        let notes = Notes { cache, notes: manager.lister::<ConfigMap>(), served: Mutex::default() };
        let notes = Arc::new(notes);
        let early = notes.clone();
        // Also a replica that waits fills its memory, to be quick when it leads.
        let manager = manager.task("warm-up", move |_| {
            let early = early.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(500)).await;
                early.warm_up();
                Ok::<_, watchkeeper::Error>(())
            }
        });
        // A process that lost leadership never leads again: it ends, and a new one starts some time later.
        let over = Arc::new(Notify::new());
        let told = over.clone();
        let manager = manager.leader_task("term", move |stopping| {
            let told = told.clone();
            async move {
                stopping.wait().await;
                told.notify_one();
                Ok::<_, watchkeeper::Error>(())
            }
        });
        let controller = Controller::new(notes).owns::<ConfigMap>().workers(1);
        tokio::select! {
            _ended = manager.controller(controller).run() => {}
            () = over.notified() => {}
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

/// Runs two replicas for ever.
pub(crate) async fn run(client: Client, cache: Cache) {
    futures::join!(replica(client.clone(), ("one", 1), cache), replica(client, ("two", 2), cache));
}

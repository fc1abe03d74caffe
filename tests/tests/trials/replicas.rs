//! Two replicas of one operator, of which one leads: what the new leader knows decides.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    coordination::v1::{Lease, LeaseSpec},
    core::v1::ConfigMap,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::prelude::*;

use crate::boards::Board;

/// How often a replica looks.
const ROUND: Duration = Duration::from_secs(2);
/// How long a lease holds that nobody renews.
const TERM: Duration = Duration::from_secs(7);

/// Which children a leader takes for made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Those that were there when it started, and those that it has made: wrong after another has led.
    OfTheStart,
    /// Those that are there.
    OfEachRound,
}

struct Replica {
    client: Client,
    name: &'static str,
    cache: Cache,
    /// The boards that have their child.
    served: BTreeSet<String>,
    /// Whether that must be read again.
    in_doubt: bool,
    /// The version of the lease, and since when.
    lease: Option<(String, Instant)>,
}

impl Replica {
    fn new(client: &Client, name: &'static str, cache: Cache) -> Self {
        Self { client: client.clone(), name, cache, served: BTreeSet::new(), in_doubt: true, lease: None }
    }

    async fn run(mut self) {
        loop {
            // Also a replica that waits fills its cache, to be quick when it leads.
            if self.in_doubt && self.read().await.is_err() {
                sleep(ROUND).await;
                continue;
            }
            if self.leads().await && self.keep().await.is_err() {
                self.in_doubt = true;
            }
            sleep(ROUND).await;
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "shop")
    }

    /// Reads which boards have a child, and removes surplus ones.
    async fn read(&mut self) -> Result<(), kube::Error> {
        let mut served = BTreeSet::new();
        for map in self.maps().list(&ListParams::default().labels("note=yes")).await?.items {
            let owner = map.owner_references().first().map(|owner| owner.uid.clone());
            if owner.is_none_or(|owner| !served.insert(owner)) {
                self.maps().delete(&map.name_any(), &DeleteParams::default()).await?;
            }
        }
        self.served = served;
        self.in_doubt = false;
        Ok(())
    }

    /// Makes what is missing.
    async fn keep(&mut self) -> Result<(), kube::Error> {
        if self.cache == Cache::OfEachRound {
            self.read().await?;
        }
        let boards = Api::<Board>::namespaced(self.client.clone(), "shop");
        for board in boards.list(&ListParams::default()).await?.items {
            let uid = board.uid().unwrap_or_default();
            if board.metadata.deletion_timestamp.is_some() || self.served.contains(&uid) {
                continue;
            }
            let owner = json!({ "apiVersion": "web.example.dev/v1", "kind": "Board", "name": board.name_any(),
                "uid": uid, "controller": true });
            let note = json!({ "metadata": { "generateName": format!("{}-", board.name_any()),
                "labels": { "note": "yes" }, "ownerReferences": [owner] } });
            let note: ConfigMap = serde_json::from_value(note).expect("it is a map");
            self.maps().create(&PostParams::default(), &note).await?;
            self.served.insert(uid);
        }
        Ok(())
    }

    /// Takes or renews the lease; one that fails lets the other go first.
    async fn leads(&mut self) -> bool {
        match self.take().await {
            Ok(leads) => leads,
            Err(_) => {
                sleep(TERM * 2).await;
                false
            }
        }
    }

    async fn take(&mut self) -> Result<bool, kube::Error> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "shop");
        let spec = LeaseSpec { holder_identity: Some(self.name.to_owned()), ..LeaseSpec::default() };
        let Some(mut lease) = leases.get_opt("boards").await? else {
            let mut lease = Lease { spec: Some(spec), ..Lease::default() };
            lease.metadata.name = Some("boards".to_owned());
            return leases.create(&PostParams::default(), &lease).await.map(|_| true);
        };
        let version = lease.resource_version().unwrap_or_default();
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
        let since = match &self.lease {
            Some((known, since)) if *known == version => *since,
            _ => Instant::now(),
        };
        self.lease = Some((version, since));
        if holder.as_deref() != Some(self.name) && since.elapsed() < TERM {
            return Ok(false);
        }
        // A renewal must change something.
        let renewals = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        lease.spec = Some(LeaseSpec { lease_transitions: Some(renewals + 1), ..spec });
        leases.replace("boards", &PostParams::default(), &lease).await?;
        Ok(true)
    }
}

/// Runs two replicas for ever.
pub(crate) async fn run(client: Client, cache: Cache) {
    tokio::join!(Replica::new(&client, "one", cache).run(), Replica::new(&client, "two", cache).run());
}

//! The place of this process among its replicas: the one that leads, or one of those that share the work.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::WallClock,
    controller::CachePart,
    leader_election::{
        Candidate, ElectionError, LeaderElection, Leadership, LeaseNote, NotedLeases, TermGate,
    },
    list_watch::Keeps,
    metrics::ElectionMetrics,
    object::ObjectKey,
    shards::{Member, Sharding, Slots},
};

/// A process that campaigns: alone, or with others for a part of the work.
pub(super) struct Replica {
    pub(super) candidate: Result<Candidate, ElectionError>,
    /// What its terms open.
    pub(super) gate: Arc<TermGate>,
    pub(super) leadership: Leadership,
    /// The Lease of the whole program.
    #[cfg_attr(not(feature = "webhooks"), expect(dead_code, reason = "webhooks leave it out"))]
    pub(super) lease: ObjectKey,
    pub(super) share: Option<Share>,
}

/// A replica's part of the work.
pub(super) struct Share {
    pub(super) member: Result<Member, ElectionError>,
    pub(super) slots: Slots,
    /// Set if caches hold no more than this part.
    pub(super) part: Option<CachePart>,
    /// How long a replica that starts looks on before it takes part.
    #[cfg_attr(not(feature = "webhooks"), expect(dead_code, reason = "manifests say it"))]
    pub(super) looks_on: Duration,
}

/// What a replica is made with: a client that is not gated, clocks, and what decides everything random.
pub(super) struct ReplicaEnv<'a> {
    pub(super) client: &'a kube::Client,
    pub(super) clock: WallClock,
    pub(super) metrics: &'a ElectionMetrics,
    pub(super) seed: u64,
}

impl Replica {
    /// Makes a replica that works while it leads.
    pub(super) fn leading(election: LeaderElection, env: ReplicaEnv<'_>) -> Self {
        let meter = env.metrics.of(election.name());
        let (candidate, gate, leadership) = Candidate::new(election, env.client, env.clock, meter, env.seed);
        let lease = leadership.lease().clone();
        Self { candidate, gate, leadership, lease, share: None }
    }

    /// Makes one that works on its slots.
    pub(super) fn sharing(sharding: Sharding, env: ReplicaEnv<'_>) -> Self {
        let ReplicaEnv { client, clock, metrics, seed } = env;
        let checked = sharding.check();
        let Sharding { election, of, splits_caches } = sharding;
        let group: Arc<str> = election.name().into();
        let namespace = election.namespace_or(client.default_namespace());
        let lease = ObjectKey::new(namespace.as_str(), &*group);
        let leases = NotedLeases { client: client.clone(), namespace, group: group.clone() };
        let note = Arc::new(LeaseNote::new(group.clone()));
        // No other process had this name, or will have it.
        let own: Arc<str> = format!("{group}-{seed:016x}").into();
        let meter = metrics.of(&group);
        let slots = Slots::new(of, own.clone(), election.lease(), seed, note.clone(), meter.slots.clone());
        let (guard, ..) =
            Candidate::new(election.clone().shared(), client, clock.clone(), Default::default(), !seed);
        let noting = election.clone().noting(&own, note.clone());
        let (candidate, gate, leadership) = Candidate::new(noting, client, clock, meter, seed);
        let member = checked.and(guard);
        let member = member.map(|guard| Member::new(&election, slots.clone(), note, leases, guard));
        let keeps = || CachePart { keeps: Keeps::new(slots.keeps()), of_owned: !of.by_name };
        let (part, looks_on) = (splits_caches.then(keeps), election.lease());
        Self { candidate, gate, leadership, lease, share: Some(Share { member, slots, part, looks_on }) }
    }
}

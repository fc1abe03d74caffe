//! Claims, rule by rule.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, advance};

use super::{
    claims::{Claims, Handover, MemberLease, MemberLeases, SlotRecord},
    slot::SlotOf,
};

const LEASE: Duration = Duration::from_secs(15);

/// One replica, and what the server holds of all.
struct Bench {
    claims: Claims,
    leases: MemberLeases,
    version: u64,
}

impl Bench {
    /// A replica that may work.
    fn new() -> Self {
        let of = SlotOf { by_name: false, slots: 4 };
        let mut claims = Claims::new("me".into(), of, LEASE, 1);
        claims.guarded(true, Instant::now());
        Self { claims, leases: BTreeMap::new(), version: 0 }
    }

    /// A replica that has watched all others for long enough.
    async fn calm() -> Self {
        let mut bench = Self::new();
        bench.watch(LEASE).await;
        bench
    }

    fn put(&mut self, name: &str, record: SlotRecord) {
        self.version += 1;
        let renewed = self.version.cast_signed();
        let lease = MemberLease {
            record,
            version: self.version.to_string(),
            renewed,
            lasts: LEASE,
            is_broken: false,
            has_left: false,
        };
        self.leases.insert(name.into(), lease);
    }

    /// Another replica renews its Lease.
    fn renew(&mut self, name: &str) {
        self.version += 1;
        let lease = self.leases.get_mut(name).unwrap();
        (lease.version, lease.renewed) = (self.version.to_string(), self.version.cast_signed());
    }

    /// The server takes what the replica says.
    fn write(&mut self) {
        let record = self.claims.record().clone();
        self.put("me", record.clone());
        self.claims.confirmed(record, Instant::now());
    }

    fn list(&mut self) {
        self.list_sent(Instant::now());
    }

    fn list_sent(&mut self, sent: Instant) {
        self.claims.listed(sent, Instant::now(), self.leases.clone());
    }

    /// Lists every second, and writes what there is to write.
    async fn watch(&mut self, time: Duration) {
        for _ in 0..=time.as_secs() {
            self.write();
            self.list();
            advance(Duration::from_secs(1)).await;
        }
    }

    fn works(&self) -> usize {
        self.claims.works().count()
    }
}

fn other(number: u64, claims: impl IntoIterator<Item = u16>) -> SlotRecord {
    let claims = claims.into_iter().collect();
    SlotRecord { number, slots: 4, claims, takes_part: true, ..SlotRecord::default() }
}

// H2
#[tokio::test(start_paused = true)]
async fn a_slot_is_worked_on_once_a_list_after_its_claim_shows_no_other_one() {
    let mut bench = Bench::calm().await;
    bench.list();
    let sent = Instant::now();
    advance(Duration::from_millis(10)).await;
    bench.write();
    assert_eq!((bench.claims.record().claims.len(), bench.works()), (4, 0));
    bench.list_sent(sent);
    assert_eq!(bench.works(), 0, "the list was asked for before the claim was confirmed");
    bench.put("other", SlotRecord { takes_part: false, ..other(1, [2]) });
    bench.list();
    assert_eq!(bench.claims.works().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!(bench.claims.record().claims.len(), 3, "one withdraws");
}

// H3
#[test]
fn who_puts_keys_into_slots_in_another_way_claims_all_once_it_claims_any() {
    let of = SlotOf { by_name: false, slots: 4 };
    let read = |claims: &[u16]| {
        let said = SlotRecord { slots: 8, ..other(1, claims.iter().copied()) }.sealed("other");
        SlotRecord::read(Some(said), "other", of).0
    };
    assert_eq!(read(&[7]).claims.len(), 4);
    // It waits for the others, and must not keep them from the slots of those that stop.
    assert!(read(&[]).claims.is_empty() && !read(&[]).takes_part);
}

// H2
#[tokio::test(start_paused = true)]
async fn only_who_has_watched_for_a_lease_duration_takes_what_nobody_hands_over() {
    let mut bench = Bench::new();
    bench.watch(LEASE - Duration::from_secs(2)).await;
    assert_eq!(bench.works(), 0);
    // After a gap, or once a Lease vanishes, it has to wait again.
    advance(LEASE).await;
    bench.watch(LEASE - Duration::from_secs(2)).await;
    bench.put("other", other(1, []));
    bench.list();
    bench.leases.remove("other");
    bench.watch(LEASE - Duration::from_secs(2)).await;
    assert_eq!(bench.works(), 0);
    bench.watch(Duration::from_secs(4)).await;
    assert_eq!(bench.works(), 4);
}

// H2 H5
#[tokio::test(start_paused = true)]
async fn the_claims_of_one_that_is_gone_last_for_a_lease_duration() {
    for edit in [None, Some(SlotRecord::default()), Some(other(3, []))] {
        let mut bench = Bench::new();
        bench.put("other", other(3, 0..4));
        for _ in 0..20 {
            bench.renew("other");
            bench.watch(Duration::ZERO).await;
        }
        // Somebody deletes it, or edits its claims away; then it is silent.
        match edit {
            None => drop(bench.leases.remove("other")),
            Some(edit) => bench.put("other", edit),
        }
        bench.watch(LEASE - Duration::from_secs(3)).await;
        assert_eq!(bench.works(), 0);
        bench.watch(LEASE + Duration::from_secs(3)).await;
        assert_eq!(bench.works(), 4);
    }
}

// H2 H5
#[tokio::test(start_paused = true)]
async fn a_handover_counts_if_it_was_seen_to_happen_just_now() {
    let given = |number| {
        let gives = [(0, Handover { to: "me".into(), number })].into();
        SlotRecord { gives, ..other(number, [1, 2, 3]) }
    };
    let claimed = |bench: &mut Bench| bench.claims.record().claims.contains(&0);
    let mut bench = Bench::new();
    // It may have happened long before this replica looked for the first time.
    bench.put("other", given(5));
    bench.list();
    assert!(!claimed(&mut bench));
    bench.write();
    bench.list();
    bench.put("other", given(6));
    bench.list();
    assert!(claimed(&mut bench));

    // An older copy of the Lease hands over nothing.
    let mut bench = Bench::new();
    bench.put("other", given(5));
    bench.list();
    bench.put("other", other(6, 0..4));
    bench.list();
    bench.put("other", given(5));
    bench.list();
    assert!(!claimed(&mut bench), "its claim was edited away, and counts");
}

// H4 H5
#[tokio::test(start_paused = true)]
async fn a_slot_drains_before_it_is_handed_over() {
    let mut bench = Bench::calm().await;
    bench.watch(Duration::from_secs(2)).await;
    assert_eq!(bench.works(), 4);
    bench.put("other", other(1, []));
    bench.list();
    let drains: Vec<_> = bench.claims.drains().collect();
    assert_eq!((drains.len(), bench.works()), (2, 2));
    assert_eq!(bench.claims.record().claims.len(), 4, "it is still this replica's");
    bench.claims.drained(drains[0], Instant::now());
    let record = bench.claims.record().clone();
    assert!(!record.claims.contains(&drains[0]) && record.claims.contains(&drains[1]));
    let to: Arc<str> = "other".into();
    assert_eq!(record.gives, [(drains[0], Handover { to, number: record.number })].into());
    bench.claims.leave(Instant::now());
    assert_eq!((bench.works(), bench.claims.drains().count()), (0, 3));
    bench.claims.end(Instant::now());
    let record = bench.claims.record();
    assert_eq!((record.claims.len(), record.gives.len(), record.takes_part), (0, 4, false));
}

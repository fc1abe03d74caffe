//! What a candidate does with what it sees, case by case.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use tokio::time::Instant;

use crate::{
    clock::ClockReading,
    leader_election::{
        elector::{Do, Elector, LeaseAnswer, Loss},
        record::{LeaseRecord, StoredLease, micro_time},
        settings::{LeaderElection, Timing},
    },
};

const SECOND: u64 = 1;

fn timing() -> Timing {
    LeaderElection::new("a").timing
}

/// A candidate with clocks that a test sets.
struct Case {
    elector: Elector,
    start: ClockReading,
    version: u64,
    last: Option<StoredLease>,
}

impl Case {
    fn new() -> Self {
        let wall = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let start = ClockReading { monotonic: Instant::now(), wall };
        let elector = Elector::new(Arc::from("me"), timing(), 7, start.monotonic);
        Self { elector, start, version: 0, last: None }
    }

    fn at(&self, seconds: f64) -> ClockReading {
        let passed = Duration::from_secs_f64(seconds);
        ClockReading { monotonic: self.start.monotonic + passed, wall: self.start.wall + passed }
    }

    fn stored(&mut self, record: LeaseRecord) -> StoredLease {
        self.version += 1;
        let version = self.version.to_string();
        StoredLease { record, object: json!({"metadata": {"uid": "u", "resourceVersion": version}}) }
    }

    fn held_by(&mut self, holder: &str, seconds: u64) -> StoredLease {
        let record = LeaseRecord {
            holder: holder.to_owned(),
            duration: Some(Duration::from_secs(seconds)),
            // Remote clocks are nobody's business.
            acquired: micro_time(1),
            renewed: micro_time(i64::from(u32::MAX)),
            transitions: 4,
            note: None,
        };
        self.stored(record)
    }

    /// Shows an answer to a read at a moment.
    fn sees(&mut self, seconds: f64, answer: LeaseAnswer) {
        let now = self.at(seconds);
        self.elector.answered(now, now, answer);
    }

    fn next(&mut self, seconds: f64) -> Do {
        let now = self.at(seconds);
        self.elector.next(now)
    }

    /// Expects a write at a moment, and has the server take it.
    fn writes(&mut self, seconds: f64) -> StoredLease {
        let now = self.at(seconds);
        let record = match self.elector.next(now) {
            Do::Write { record, .. } => record,
            other => panic!("no write at {seconds} s: {other:?}"),
        };
        let stored = self.stored(*record);
        self.elector.answered(now, now, LeaseAnswer::Written(stored.clone()));
        self.last = Some(stored.clone());
        stored
    }

    /// When it first writes, looking at the same Lease every second from now on.
    fn takes_after(&mut self, from: f64, lease: Option<&StoredLease>) -> Option<u64> {
        for second in 0..120 {
            let at = from + second as f64;
            match self.next(at) {
                Do::Write { .. } => return Some(second),
                Do::Wait(_) => {}
                Do::Read => {
                    self.sees(at, lease.cloned().map_or(LeaseAnswer::Absent, LeaseAnswer::Found));
                    if matches!(self.next(at), Do::Write { .. }) {
                        return Some(second);
                    }
                }
                Do::Nothing => return None,
            }
        }
        None
    }
}

// L1 L2
#[test]
fn a_lease_is_taken_once_it_has_not_changed_for_as_long_as_anybody_said() {
    let record = |change: fn(&mut LeaseRecord)| {
        let mut case = Case::new();
        let mut lease = case.held_by("other", 15);
        change(&mut lease.record);
        lease
    };
    let cases: [(&str, Option<StoredLease>, u64); 9] = [
        ("absent", None, 0),
        ("held", Some(record(|_| {})), 15),
        (
            "held for longer than ours",
            Some(record(|lease| lease.duration = Some(Duration::from_secs(40)))),
            40,
        ),
        (
            "said to be short by an edit",
            Some(record(|lease| lease.duration = Some(Duration::from_secs(1)))),
            15,
        ),
        ("released by its holder", Some(record(|lease| *lease = lease.released(0))), 0),
        ("struck out by a stranger", Some(record(|lease| lease.holder.clear())), 15),
        ("never held", Some(record(|lease| *lease = LeaseRecord::default())), 15),
        ("renewed long ago, as it says", Some(record(|lease| lease.renewed = micro_time(1))), 15),
        ("held by another process of our name", Some(record(|lease| lease.holder = "me".into())), 15),
    ];
    for (what, lease, seconds) in cases {
        assert_eq!(Case::new().takes_after(0.0, lease.as_ref()), Some(seconds), "{what}");
    }
}

// L2
#[test]
fn any_change_starts_the_wait_anew() {
    let mut case = Case::new();
    let first = case.held_by("other", 15);
    let changes: [fn(&mut StoredLease); 4] = [
        |lease| lease.object["metadata"]["resourceVersion"] = json!("77"),
        |lease| lease.record.renewed = micro_time(2),
        |lease| lease.record.transitions += 1,
        |lease| lease.object["metadata"]["uid"] = json!("another"),
    ];
    let mut seen = first;
    let mut from = 0.0;
    for change in changes {
        assert_eq!(case.next(from), Do::Read);
        case.sees(from, LeaseAnswer::Found(seen.clone()));
        assert!(matches!(case.next(from + 10.0), Do::Read), "it looks every now and then");
        change(&mut seen);
        case.sees(from + 10.0, LeaseAnswer::Found(seen.clone()));
        assert_eq!(case.next(from + 16.0), Do::Read);
        case.sees(from + 16.0, LeaseAnswer::Found(seen.clone()));
        assert!(matches!(case.next(from + 16.0), Do::Wait(_)), "six seconds after a change");
        from += 24.0;
        change(&mut seen);
    }
    // A Lease that goes away does not end the hold that was seen, nor does an edit that strikes its holder out.
    case.elector.stand_by(case.at(from).monotonic);
    let long = case.held_by("other", 60);
    assert_eq!(case.next(from), Do::Read);
    case.sees(from, LeaseAnswer::Found(long.clone()));
    let mut struck_out = long;
    (struck_out.record.holder, struck_out.record.duration) = (String::new(), Some(Duration::from_secs(15)));
    assert_eq!(case.next(from + 5.0), Do::Read);
    case.sees(from + 5.0, LeaseAnswer::Found(struck_out));
    assert_eq!(case.takes_after(from + 10.0, None), Some(15), "a leader may create it again");
}

// L1 L3
#[test]
fn a_take_over_counts_and_a_renewal_keeps_what_it_found() {
    let mut case = Case::new();
    let other = case.held_by("other", 15);
    assert_eq!(case.takes_after(0.0, Some(&other)), Some(15));
    // The write of 15 s was never answered: it is tried again.
    let first = case.writes(16.5);
    assert_eq!((first.record.holder.as_str(), first.record.transitions), ("me", 5));
    assert_eq!(first.record.acquired, first.record.renewed);
    assert!(matches!(case.next(18.0), Do::Wait(_)));
    let renewed = case.writes(18.5);
    assert_eq!(
        renewed.record,
        LeaseRecord { renewed: renewed.record.renewed.clone(), ..first.record.clone() }
    );
    assert_ne!(renewed.record.renewed, first.record.renewed);
}

// L1 L6
#[test]
fn who_makes_a_lease_holds_it_for_a_whole_one_before_it_leads() {
    let made = |seconds: f64| {
        let mut case = Case::new();
        assert_eq!(case.next(0.0), Do::Read);
        case.sees(0.0, LeaseAnswer::Absent);
        let made = case.writes(0.0);
        assert_eq!(made.record.transitions, 0);
        let mut at = 0.0;
        while at + 2.0 <= seconds {
            at += 2.0;
            case.writes(at);
        }
        case
    };
    let mut case = made(14.0);
    assert!(!case.elector.leads());
    assert!(matches!(case.next(14.9), Do::Wait(_)));
    case.writes(15.0);
    assert!(case.elector.leads());

    // It was deleted meanwhile, so the election starts over.
    let mut case = made(10.0);
    assert!(matches!(case.next(12.0), Do::Write { .. }));
    case.sees(12.0, LeaseAnswer::Refused);
    let again = case.next(14.0);
    assert_eq!(again, Do::Read);
    case.sees(14.0, LeaseAnswer::Absent);
    for at in 7..15 {
        case.writes(2.0 * f64::from(at));
        assert!(!case.elector.leads(), "{at}");
    }
    assert!(matches!(case.next(28.9), Do::Wait(_)));
    case.writes(29.0);
    assert!(case.elector.leads());

    // One that stops before it led leaves the Lease to run out.
    let mut case = made(4.0);
    case.elector.release(case.at(5.0).monotonic);
    assert_eq!(case.next(5.0), Do::Read);
    let last = case.last.clone().unwrap();
    case.sees(5.0, LeaseAnswer::Found(last));
    assert_eq!(case.next(5.0), Do::Nothing);
}

fn leads() -> (Case, StoredLease) {
    let mut case = Case::new();
    let free = case.held_by("other", 15);
    let free = case.stored(free.record.released(0));
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(free));
    let lease = case.writes(0.0);
    assert!(case.elector.leads());
    (case, lease)
}

// L5
#[test]
fn a_term_is_counted_from_when_its_last_renewal_was_sent() {
    let (mut case, lease) = leads();
    let (sent, now) = (case.at(2.0), case.at(6.0));
    let Do::Write { record, .. } = case.elector.next(sent) else { panic!("it renews") };
    let renewed = StoredLease { record: *record, ..lease };
    case.elector.answered(sent, now, LeaseAnswer::Written(renewed));
    let (almost, over) = (case.at(11.9), case.at(12.0));
    assert_eq!(case.elector.loss(almost), None);
    assert_eq!(case.elector.loss(over), Some(Loss::NotRenewed));
    let later = case.at(6.0);
    assert_eq!(case.elector.loss(later), Some(Loss::NotRenewed), "a term that is lost stays so");
}

// L5
#[test]
fn a_machine_that_slept_has_no_term_left() {
    let (mut case, _) = leads();
    let slept = ClockReading { monotonic: case.at(1.0).monotonic, wall: case.at(3_600.0).wall };
    assert_eq!(case.elector.loss(slept), Some(Loss::NotRenewed));
    let (mut case, _) = leads();
    let set_back = ClockReading {
        monotonic: case.at(9.0).monotonic,
        wall: case.at(0.0).wall - Duration::from_secs(600),
    };
    assert_eq!(case.elector.loss(set_back), None);
    let over = ClockReading { monotonic: case.at(10.0).monotonic, ..set_back };
    assert_eq!(case.elector.loss(over), Some(Loss::NotRenewed));
}

// L6
#[test]
fn a_leader_puts_an_edit_right_and_stops_where_another_holds() {
    let edited = |change: fn(&mut StoredLease)| {
        let (mut case, mut lease) = leads();
        assert!(matches!(case.next(2.0), Do::Write { .. }));
        case.sees(2.0, LeaseAnswer::Refused);
        assert_eq!(case.next(2.0), Do::Read);
        change(&mut lease);
        lease.object["metadata"]["resourceVersion"] = json!("99");
        case.sees(2.1, LeaseAnswer::Found(lease));
        let now = case.at(2.1);
        (case.elector.loss(now), case.elector.next(now))
    };
    let (kept, put_right) = edited(|lease| lease.record.duration = Some(Duration::from_secs(1)));
    assert_eq!(kept, None);
    assert!(
        matches!(put_right, Do::Write { record, .. } if record.duration == Some(Duration::from_secs(15)))
    );
    let (taken, _) = edited(|lease| lease.record.holder = "other".into());
    assert_eq!(taken, Some(Loss::TakenBy("other".into())));
    let (renamed, _) = edited(|lease| {
        let LeaseRecord { acquired, renewed, transitions, .. } = &mut lease.record;
        (*acquired, *renewed, *transitions) = (micro_time(3), micro_time(3), *transitions + 1);
    });
    assert_eq!(renamed, Some(Loss::TakenBy("me".into())), "another process of our name");
    let (struck_out, put_right) = edited(|lease| lease.record.holder.clear());
    assert_eq!(struck_out, None);
    assert!(matches!(put_right, Do::Write { record, .. } if record.holder == "me"));

    let (mut case, _) = leads();
    assert!(matches!(case.next(2.0), Do::Write { .. }));
    case.sees(2.0, LeaseAnswer::Refused);
    assert_eq!(case.next(2.0), Do::Read);
    case.sees(2.1, LeaseAnswer::Absent);
    let now = case.at(2.1);
    assert!(matches!(case.elector.next(now), Do::Write { base: None, .. }), "deleted: it creates it again");
    assert_eq!(case.elector.loss(now), None);
}

// L6
#[test]
fn a_lost_reply_costs_no_term_and_proves_none() {
    let (mut case, lease) = leads();
    let Do::Write { record, .. } = case.next(2.0) else { panic!("it renews") };
    case.sees(2.1, LeaseAnswer::Unknown);
    // The same is tried again, and refused: one attempt got through, or somebody else wrote.
    assert!(matches!(case.next(2.2), Do::Wait(_)));
    assert!(matches!(case.next(2.5), Do::Write { record: again, .. } if again == record));
    case.sees(3.0, LeaseAnswer::Refused);
    assert_eq!(case.next(3.0), Do::Read);
    case.sees(4.0, LeaseAnswer::Found(StoredLease { record: *record, ..lease }));
    let (almost, over) = (case.at(11.9), case.at(12.0));
    assert_eq!(case.elector.loss(almost), None, "the renewal of 2 s got through");
    assert_eq!(case.elector.loss(over), Some(Loss::NotRenewed), "it counts from when it was sent");
}

// L13
#[test]
fn a_renewal_that_fails_is_tried_again_soon_and_later_less_often() {
    let (mut case, _) = leads();
    let (mut at, mut tried, mut pauses) = (2.0, 0, Vec::new());
    while at < 9.9 {
        assert!(matches!(case.next(at), Do::Write { .. }), "no read comes between");
        case.sees(at, LeaseAnswer::Unknown);
        tried += 1;
        let Do::Wait(due) = case.next(at) else { panic!("it pauses") };
        let pause = due.saturating_duration_since(case.at(at).monotonic).as_secs_f64();
        pauses.push(pause);
        at += pause;
    }
    assert!((0.16..=0.24).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 1.2), "{pauses:?}");
    assert!(pauses[4..].iter().all(|pause| *pause > pauses[0]), "{pauses:?}");
    assert!(tried >= 9, "{tried} attempts: {pauses:?}");
}

// L13
#[test]
fn a_request_that_hangs_leaves_time_for_others() {
    let (mut case, _) = leads();
    let first = case.elector.patience;
    assert_eq!(first, Duration::from_millis(2_500));
    assert!(matches!(case.next(2.0), Do::Write { .. }));
    let (sent, now) = (case.at(2.0), case.at(4.5));
    case.elector.answered(sent, now, LeaseAnswer::Unknown);
    assert!(case.elector.patience > first, "where the server is slow, the next one may take longer");
    assert!(case.elector.patience <= timing().renew / 2);
    assert!(matches!(case.next(4.8), Do::Write { .. }));
    // A quick answer says that it is not.
    case.writes(4.8);
    assert_eq!(case.elector.patience, first);
}

// L14
#[test]
fn no_edit_ends_a_term_nor_do_conflicts_however_many() {
    type Edit = fn(&mut LeaseRecord);
    let edits: [(&str, Edit); 5] = [
        ("renewTime", |record| record.renewed = micro_time(3)),
        ("acquireTime", |record| record.acquired = micro_time(3)),
        ("leaseTransitions", |record| record.transitions += 9),
        ("both times", |record| (record.acquired, record.renewed) = (micro_time(3), micro_time(4))),
        ("renewTime and leaseTransitions", |record| {
            (record.renewed, record.transitions) = (serde_json::Value::Null, 0)
        }),
    ];
    for (what, edit) in edits {
        let (mut case, mut lease) = leads();
        let acquired = lease.record.acquired.clone();
        edit(&mut lease.record);
        let mut at = 2.0;
        // Each attempt is refused: somebody writes all the time.
        for version in 100..300 {
            while !matches!(case.next(at), Do::Write { .. }) {
                at += 0.01;
            }
            case.sees(at, LeaseAnswer::Refused);
            while case.next(at) != Do::Read {
                at += 0.01;
            }
            lease.object["metadata"]["resourceVersion"] = json!(version.to_string());
            case.sees(at, LeaseAnswer::Found(lease.clone()));
            let now = case.at(at);
            assert_eq!(case.elector.loss(now), None, "{what}, after {version} conflicts");
            if at > 8.0 {
                break;
            }
        }
        let repaired = case.writes(at);
        assert_eq!(repaired.record.acquired, acquired, "{what} is put right");
        assert!(repaired.record.transitions >= 5);
    }
    let (mut case, mut lease) = leads();
    for version in 100..300 {
        assert!(matches!(case.elector.next(case.at(9.0)), Do::Write { .. }));
        let now = case.at(2.0);
        case.elector.answered(now, now, LeaseAnswer::Refused);
        assert_eq!(case.elector.next(case.at(9.0)), Do::Read);
        lease.object["metadata"]["resourceVersion"] = json!(version.to_string());
        case.elector.answered(now, now, LeaseAnswer::Found(lease.clone()));
        assert_eq!(case.elector.loss(now), None, "after {version} conflicts");
    }
    // Somebody deletes it and makes it again all the time, and restores it as it was in the end.
    let (mut case, mut lease) = leads();
    let now = case.at(2.0);
    for _ in 0..100 {
        assert!(matches!(case.elector.next(case.at(9.0)), Do::Write { .. }));
        case.elector.answered(now, now, LeaseAnswer::Refused);
        assert_eq!(case.elector.next(case.at(9.0)), Do::Read);
        case.elector.answered(now, now, LeaseAnswer::Absent);
    }
    assert!(matches!(case.elector.next(case.at(9.0)), Do::Write { base: None, .. }));
    case.elector.answered(now, now, LeaseAnswer::Refused);
    assert_eq!(case.elector.next(case.at(9.0)), Do::Read);
    lease.object["metadata"]["resourceVersion"] = json!("999");
    case.elector.answered(now, now, LeaseAnswer::Found(lease));
    assert_eq!(case.elector.loss(now), None, "after 100 attempts to make it again");
}

// L14
#[test]
fn transitions_stay_at_the_most_that_a_server_takes() {
    let mut case = Case::new();
    let mut full = case.held_by("other", 15);
    full.record.transitions = i64::from(i32::MAX);
    assert_eq!(case.takes_after(0.0, Some(&full)), Some(15));
    let taken = case.writes(15.0);
    assert_eq!(taken.record.transitions, i64::from(i32::MAX));
    assert!(case.elector.leads());
    // At the most transitions, an edit of them ends no term, and other processes are still recognised.
    assert!(matches!(case.next(17.0), Do::Write { .. }));
    case.sees(17.0, LeaseAnswer::Refused);
    assert_eq!(case.next(17.0), Do::Read);
    let mut other = case.held_by("me", 15);
    other.record.transitions = i64::from(i32::MAX);
    case.sees(17.0, LeaseAnswer::Found(other));
    let now = case.at(17.0);
    assert_eq!(case.elector.loss(now), Some(Loss::TakenBy("me".into())));
}

// L15
#[test]
fn an_edit_that_its_holder_has_put_right_lengthens_no_hold() {
    let renewed = |lease: &StoredLease, at: i64, seconds: u64, version: u64| {
        let mut lease = lease.clone();
        lease.record.renewed = micro_time(i64::from(u32::MAX) + at);
        lease.record.duration = Some(Duration::from_secs(seconds));
        lease.object["metadata"]["resourceVersion"] = json!(version.to_string());
        lease
    };
    // What is seen of a holder, at 0, 1, 2, .. s: when it renewed, the duration, and how long the hold lasts in the end.
    type SeenLease = (i64, u64);
    let cases: [(&str, &[SeenLease], u64); 7] = [
        ("edited up for a moment", &[(0, 15), (0, 3_600), (2, 15)], 15),
        ("edited up, and it died", &[(0, 15), (0, 3_600)], 3_600),
        ("renewTime is edited as well", &[(0, 15), (1, 3_600), (2, 15), (4, 15)], 15),
        ("renewTime is set to the far future", &[(0, 15), (1 << 40, 3_600), (2, 15), (4, 15), (6, 15)], 15),
        ("edited down", &[(0, 60), (0, 1)], 60),
        ("edited down, with renewTime", &[(0, 60), (1, 1)], 60),
        ("it has a shorter lease from now on", &[(0, 60), (2, 15), (4, 15)], 15),
    ];
    for (what, seen, lasts) in cases {
        let mut case = Case::new();
        let holder = case.held_by("other", 15);
        let mut last = holder.clone();
        for (at, (renewed_at, seconds)) in seen.iter().enumerate() {
            last = renewed(&holder, *renewed_at, *seconds, 100 + at as u64);
            let now = case.at(at as f64 * 1.3);
            case.elector.stand_by(now.monotonic);
            assert_eq!(case.elector.next(now), Do::Read);
            case.elector.answered(now, now, LeaseAnswer::Found(last.clone()));
        }
        let since = (seen.len() - 1) as f64 * 1.3;
        let at = |seconds: f64, case: &mut Case| {
            let now = case.at(since + seconds);
            case.elector.stand_by(now.monotonic);
            assert_eq!(case.elector.next(now), Do::Read);
            case.elector.answered(now, now, LeaseAnswer::Found(last.clone()));
            matches!(case.elector.next(now), Do::Write { .. })
        };
        assert!(!at(lasts as f64 - 0.1, &mut case), "{what}: it is taken too soon");
        assert!(at(lasts as f64 + 0.1, &mut case), "{what}: it is not taken after {lasts} s");
    }
}

// L16
#[test]
fn a_lease_that_somebody_restored_as_released_is_not_free_at_once() {
    let mut case = Case::new();
    let mut held = case.held_by("other", 15);
    let old = case.stored(held.record.released(7));
    held.record.transitions += 1;
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(held.clone()));
    // The copy is of before the hold that was seen.
    assert_eq!(case.takes_after(1.0, Some(&old)), Some(15));

    let mut case = Case::new();
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(held.clone()));
    let released = case.stored(held.record.released(7));
    assert_eq!(case.takes_after(1.0, Some(&released)), Some(0), "its holder released it");

    // Somebody applied a manifest that says the same: the times stay.
    let mut case = Case::new();
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(held.clone()));
    let applied =
        LeaseRecord { holder: String::new(), duration: released.record.duration, ..held.record.clone() };
    let applied = case.stored(applied);
    assert_eq!(case.takes_after(1.0, Some(&applied)), Some(15));

    // The same soon after the hold began, before it was renewed.
    let mut case = Case::new();
    held.record.renewed = held.record.acquired.clone();
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(held.clone()));
    let mut applied = applied;
    applied.record.renewed = held.record.renewed.clone();
    assert_eq!(case.takes_after(1.0, Some(&applied)), Some(15));

    // It was released, and somebody else was quicker, which nobody saw; then the copy was restored.
    let mut case = Case::new();
    assert_eq!(case.next(0.0), Do::Read);
    case.sees(0.0, LeaseAnswer::Found(released.clone()));
    assert!(matches!(case.next(0.0), Do::Write { .. }));
    case.sees(0.1, LeaseAnswer::Refused);
    let mut again = released.clone();
    again.object["metadata"]["resourceVersion"] = json!("99");
    assert_eq!(case.takes_after(2.0, Some(&again)), Some(15));

    // One's own hold is not what somebody restored of it.
    let (mut case, lease) = leads();
    case.elector.stand_by(case.at(12.5).monotonic);
    let mut restored = lease.clone();
    restored.object["metadata"]["resourceVersion"] = json!("99");
    assert_eq!(case.takes_after(13.0, Some(&restored)), Some(15));
    let (mut case, lease) = leads();
    case.elector.stand_by(case.at(12.5).monotonic);
    assert_eq!(case.takes_after(13.0, Some(&lease)), Some(0), "nobody has written since");
}

// L18
#[test]
fn a_term_goes_on_from_ones_own_only_if_nobody_held_the_lease_in_between() {
    let (mut case, lease) = leads();
    assert!(!case.elector.continues, "somebody else led before");
    let over = case.at(11.0);
    assert_eq!(case.elector.loss(over), Some(Loss::NotRenewed));
    let mut taken = case.held_by("other", 15);
    taken.record.transitions = 6;
    case.elector.stand_by(over.monotonic);
    assert_eq!(case.next(11.0), Do::Read);
    case.sees(11.0, LeaseAnswer::Found(lease));
    case.writes(11.0);
    assert!(case.elector.leads() && case.elector.continues);

    assert!(case.elector.loss(case.at(22.0)).is_some());
    case.elector.stand_by(case.at(22.0).monotonic);
    assert_eq!(case.next(22.0), Do::Read);
    case.sees(22.0, LeaseAnswer::Found(taken.clone()));
    let released = case.stored(taken.record.released(7));
    assert_eq!(case.takes_after(23.0, Some(&released)), Some(0));
    case.writes(23.0);
    assert!(case.elector.leads() && !case.elector.continues);
}

// L4
#[test]
fn a_release_is_tried_again_until_the_lease_is_released_or_anothers() {
    let (mut case, lease) = leads();
    case.elector.release(case.at(1.0).monotonic);
    let Do::Write { base, record } = case.next(1.0) else { panic!("it releases") };
    assert!(record.is_released() && base.as_deref() == Some(&lease));
    case.sees(1.0, LeaseAnswer::Refused);
    assert_eq!(case.next(1.0), Do::Read);
    let mut labelled = lease.clone();
    labelled.object["metadata"]["labels"] = json!({"a": "b"});
    case.sees(1.1, LeaseAnswer::Found(labelled.clone()));
    assert!(matches!(case.next(1.1), Do::Write { base, .. } if base.as_deref() == Some(&labelled)));
    case.sees(1.2, LeaseAnswer::Unknown);
    assert!(matches!(case.next(2.0), Do::Write { .. }), "it is tried again");
    case.sees(2.0, LeaseAnswer::Refused);
    assert_eq!(case.next(3.0), Do::Read);
    let anothers = case.held_by("other", 15);
    case.sees(3.0, LeaseAnswer::Found(anothers));
    assert_eq!(case.next(3.0), Do::Nothing);

    let mut never_led = Case::new();
    never_led.elector.release(never_led.at(0.0).monotonic);
    assert_eq!(never_led.next(0.0), Do::Nothing);
}

// L6
#[test]
fn every_renewal_is_seen_as_a_change_though_the_clock_stands_still() {
    let (mut case, first) = leads();
    let frozen = case.start.wall;
    let mut seen = vec![first.record.renewed];
    for second in 1..5 {
        let now = ClockReading { wall: frozen, ..case.at(2.0 * f64::from(second) * SECOND as f64) };
        let Do::Write { record, .. } = case.elector.next(now) else { panic!("it renews") };
        assert!(!seen.contains(&record.renewed));
        seen.push(record.renewed.clone());
        let stored = case.stored(*record);
        case.elector.answered(now, now, LeaseAnswer::Written(stored));
    }
}

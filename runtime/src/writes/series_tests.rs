//! What is sent of a series, and when.

use super::*;
use crate::object::{Kind, ObjectKey, Scope};

fn site(name: &str) -> Arc<UniqueObject> {
    let kind = Kind {
        group: "web.example.dev".into(),
        version: "v1".into(),
        kind: "Website".into(),
        plural: "websites".into(),
        scope: Scope::Namespaced,
    };
    Arc::new(UniqueObject { kind, key: ObjectKey::new("shop", name), uid: "u".to_owned() })
}

fn refused(name: &str) -> EventKey {
    key(name, "quota")
}

fn key(name: &str, note: &str) -> EventKey {
    EventKey { regarding: site(name), event: Event::warning("Refused", note) }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Notes an event every second of a time, sends what is due at once; returns when which counts were sent.
fn sent_of(cache: &mut SeriesCache, start: Instant, every: u64, for_seconds: u64) -> Vec<(u64, u32)> {
    let mut sent = Vec::new();
    for second in 0..for_seconds {
        let now = start + seconds(second);
        if second % every == 0 {
            cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None);
        }
        while let Some((key, series)) = cache.take(Some(now)) {
            cache.sent(&key, series.count, now);
            sent.push((second, series.count));
        }
    }
    sent
}

// W8
#[tokio::test(start_paused = true)]
async fn a_series_is_told_at_once_then_ever_more_seldom() {
    let (mut cache, start) = (SeriesCache::new(7), Instant::now());
    let sent = sent_of(&mut cache, start, 1, 4 * 3_600);
    let times: Vec<_> = sent.iter().map(|(second, _)| *second).collect();
    assert_eq!(&times[..8], [0, 10, 30, 70, 150, 310, 630, 1_270]);
    assert!(times[9..].windows(2).all(|pair| pair[1] - pair[0] == 1_800), "{times:?}");
    assert_eq!(sent[1], (10, 11), "each says how many there were by then");
    assert_eq!(cache.series.len(), 1);
}

// W8
#[tokio::test(start_paused = true)]
async fn a_series_ends_after_its_last_event_and_leaves_nothing() {
    let (mut cache, start) = (SeriesCache::new(7), Instant::now());
    sent_of(&mut cache, start, 1_000, 3_000);
    assert_eq!(cache.series.values().next().unwrap().count, 3, "the longest back-off is within a series");
    let now = start + seconds(2_000) + IDLE;
    assert!(cache.take(Some(now)).is_none());
    assert!(cache.series.is_empty() && cache.whole_at.is_empty(), "idle objects hold no state");
    assert_eq!(cache.next_due(), None);
    assert_eq!(cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None), Recorded::ToSend);
}

// W8
#[tokio::test(start_paused = true)]
async fn whatever_differs_is_another_series() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    let mut note = |key| cache.note(key, now, Timestamp::UNIX_EPOCH, None);
    assert_eq!([note(refused("a")), note(refused("a"))], [Recorded::ToSend, Recorded::Folded]);
    let others = [
        refused("b"),
        key("a", "another quota"),
        EventKey { regarding: site("a"), event: Event::normal("Refused", "quota") },
        EventKey { regarding: site("a"), event: Event::warning("Denied", "quota") },
        EventKey { regarding: site("a"), event: Event::warning("Refused", "quota").action("Create") },
    ];
    assert!(others.into_iter().all(|key| note(key) == Recorded::ToSend));
}

// W8
#[tokio::test(start_paused = true)]
async fn one_object_has_a_bounded_share_and_gets_it_back() {
    let (mut cache, start) = (SeriesCache::new(7), Instant::now());
    let mut is_taken = |name: &str, number: u32, now| {
        let key = key(name, &format!("attempt {number}"));
        cache.note(key, now, Timestamp::UNIX_EPOCH, None) == Recorded::ToSend
    };
    let new = (0..100).filter(|number| is_taken("a", *number, start)).count();
    assert_eq!(new, BURST as usize);
    assert!(is_taken("b", 0, start), "another object has its own");
    let later = start + REFILL;
    assert_eq!([is_taken("a", 200, later), is_taken("a", 201, later)], [true, false]);
}

// W8
#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded_and_what_is_to_be_sent_stays() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    let is_taken = |cache: &mut SeriesCache, number: usize| {
        let key = refused(&format!("site-{number}"));
        cache.note(key, now, Timestamp::UNIX_EPOCH, None) == Recorded::ToSend
    };
    assert!((0..MOST).all(|number| is_taken(&mut cache, number)));
    assert!(!is_taken(&mut cache, MOST), "all are yet to be sent");
    let (first, _) = cache.take(Some(now)).unwrap();
    assert!(first.regarding.key.name() == "site-0", "they are sent in order");
    cache.sent(&first, 1, now);
    assert!(is_taken(&mut cache, MOST), "the one that was sent makes room");
    assert_eq!(cache.series.len(), MOST);
}

// W8
#[tokio::test(start_paused = true)]
async fn what_is_put_back_lost_or_refused_is_sent_again_renamed_or_never() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    let note = |cache: &mut SeriesCache| cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None);
    note(&mut cache);
    let (key, sent) = cache.take(Some(now)).unwrap();
    assert_eq!(sent.on_server, OnServer::No);
    note(&mut cache);
    // Nobody says what became of it.
    let (_, again) = cache.take(Some(now)).unwrap();
    assert_eq!(
        (&again.name, again.on_server, again.count),
        (&sent.name, OnServer::Maybe, 2),
        "under one name"
    );
    cache.sent(&key, 2, now);
    assert!(cache.take(None).is_none(), "the server knows all of it");
    note(&mut cache);
    assert!(cache.take(Some(now)).is_none(), "it is brought up to date later");
    let (_, update) = cache.take(None).unwrap();
    assert_eq!((&update.name, update.on_server), (&sent.name, OnServer::Yes));
    cache.put_back(&key, OnServer::No);
    let (_, renewed) = cache.take(None).unwrap();
    assert_eq!((renewed.on_server, renewed.count), (OnServer::No, 3));
    cache.rename(&key);
    let (_, renamed) = cache.take(None).unwrap();
    assert_eq!(renamed.on_server, OnServer::No);
    assert_ne!(renamed.name, sent.name);
    cache.refused(&key);
    assert!(cache.series.is_empty() && cache.next_due().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_event_is_named_after_its_object_within_what_names_may_be() {
    let mut cache = SeriesCache::new(7);
    let mut name = |name: &str| cache.name_for(&refused(name));
    let (one, other) = (name("web-0"), name("web-0"));
    assert!(one.starts_with("web-0.") && one.len() == 22 && one != other, "{one} {other}");
    let long = name(&format!("{}-.{}", "a".repeat(234), "b".repeat(17)));
    assert!(long.len() <= 253 && long.starts_with("aaa") && !long.contains("-."), "{long}");
    for role in ["system:node-reader", "Admin", "a..b"] {
        let name = name(role);
        assert!(is_domain(&name), "{name}");
    }
}

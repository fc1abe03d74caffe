//! What is sent of a series, and when.

use super::*;
use crate::object::{Kind, ObjectKey, Scope};

fn site(name: &str) -> Arc<Referred> {
    let kind = Kind {
        group: "web.example.dev".into(),
        version: "v1".into(),
        kind: "Website".into(),
        plural: "websites".into(),
        scope: Scope::Namespaced,
    };
    Arc::new(Referred::new(&kind, &ObjectKey::new("shop", name), "u".to_owned()))
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
        while let Some(send) = cache.take_due(now) {
            cache.sent(&send.key, send.count, now);
            sent.push((second, send.count));
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
    assert!(cache.take_due(now).is_none());
    assert!(cache.series.is_empty() && cache.complete.is_empty() && cache.to_send.is_empty());
    assert_eq!(cache.next_due(), None);
    assert!(cache.spam_filter.whole_at.is_empty(), "idle objects hold no state");
    assert_eq!(cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None), Recorded::New);
}

// W8
#[tokio::test(start_paused = true)]
async fn whatever_differs_is_another_series() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    let mut note = |key| cache.note(key, now, Timestamp::UNIX_EPOCH, None);
    assert_eq!([note(refused("a")), note(refused("a"))], [Recorded::New, Recorded::Folded]);
    let others = [
        refused("b"),
        key("a", "another quota"),
        EventKey { regarding: site("a"), event: Event::normal("Refused", "quota") },
        EventKey { regarding: site("a"), event: Event::warning("Denied", "quota") },
        EventKey { regarding: site("a"), event: Event::warning("Refused", "quota").action("Create") },
    ];
    assert!(others.into_iter().all(|key| note(key) == Recorded::New));
}

// W8
#[tokio::test(start_paused = true)]
async fn one_object_has_a_bounded_share_and_gets_it_back() {
    let (mut cache, start) = (SeriesCache::new(7), Instant::now());
    let mut note = |name: &str, number: u32, now| {
        cache.note(key(name, &format!("attempt {number}")), now, Timestamp::UNIX_EPOCH, None)
    };
    let new = (0..100).filter(|number| note("a", *number, start) == Recorded::New).count();
    assert_eq!(new, BURST as usize);
    assert_eq!(note("b", 0, start), Recorded::New, "another object has its own");
    let later = start + REFILL;
    assert_eq!([note("a", 200, later), note("a", 201, later)], [Recorded::New, Recorded::Dropped]);
}

// W8
#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded_and_what_is_to_be_sent_stays() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    let note = |cache: &mut SeriesCache, number: usize| {
        cache.note(refused(&format!("site-{number}")), now, Timestamp::UNIX_EPOCH, None)
    };
    for number in 0..MOST {
        assert_eq!(note(&mut cache, number), Recorded::New);
    }
    assert_eq!(note(&mut cache, MOST), Recorded::Dropped, "all are yet to be sent");
    let first = cache.take_due(now).unwrap();
    cache.sent(&first.key, 1, now);
    assert_eq!(note(&mut cache, MOST), Recorded::New, "the one that was sent makes room");
    assert_eq!(cache.series.len(), MOST);
}

// W8
#[tokio::test(start_paused = true)]
async fn what_is_put_back_lost_or_refused_is_sent_again_anew_or_never() {
    let (mut cache, now) = (SeriesCache::new(7), Instant::now());
    cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None);
    let send = cache.take_due(now).unwrap();
    assert!(cache.take_due(now).is_none(), "it is under way");
    cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None);
    cache.put_back(&send.key, OnServer::Maybe, now);
    let again = cache.take_due(now).unwrap();
    assert_eq!(
        (&again.name, again.on_server, again.count),
        (&send.name, OnServer::Maybe, 2),
        "under one name"
    );
    cache.sent(&again.key, 2, now);
    cache.note(refused("a"), now, Timestamp::UNIX_EPOCH, None);
    let update = cache.take_unsent().unwrap();
    assert_eq!((&update.name, update.on_server), (&send.name, OnServer::Yes));
    cache.put_back(&update.key, OnServer::No, now);
    let anew = cache.take_due(now).unwrap();
    assert_eq!((anew.on_server, anew.count), (OnServer::No, 3));
    cache.rename(&anew.key, now);
    let anew = cache.take_due(now).unwrap();
    assert_ne!(anew.name, send.name);
    cache.refused(&anew.key);
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
}

//! Claims about distorted, slow and stepped streams.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

/// Reads for some time; returns type, name and version of each line.
async fn told(stream: &mut Open, time: Duration) -> Vec<String> {
    let mut text = String::new();
    let end = Instant::now() + time;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout_at(end, stream.body.frame()).await {
        text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
    }
    let read = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(event) => {
            let metadata = &event["object"]["metadata"];
            format!("{} {} {}", event["type"], metadata["name"], metadata["resourceVersion"]).replace('"', "")
        }
        Err(_) => line.to_owned(),
    };
    text.lines().map(read).collect()
}

async fn told_under(fault: impl Into<Action>, events: &[(EventType, &str, u64)]) -> Vec<String> {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "configmaps").then(fault);
    for (event, name, version) in events {
        stream.tell(*event, name, *version);
    }
    let seen = told(&mut stream, Duration::from_secs(60)).await;
    assert!(faults.log().len() <= 1, "one firing a stream: {:?}", faults.log());
    seen
}

use EventType::{Added, Bookmark, Deleted, Modified};

#[tokio::test(start_paused = true)]
async fn events_come_twice_again_and_out_of_order() {
    let events = [(Added, "a", 1), (Modified, "a", 2), (Added, "b", 3)];
    assert_eq!(
        told_under(Fault::Duplicate.at_event(2), &events).await,
        ["ADDED a 1", "MODIFIED a 2", "MODIFIED a 2", "ADDED b 3"]
    );
    assert_eq!(
        told_under(Fault::Replay(3).at_event(3), &events).await,
        ["ADDED a 1", "MODIFIED a 2", "ADDED b 3", "ADDED a 1", "MODIFIED a 2", "ADDED b 3"]
    );
    assert_eq!(
        told_under(Fault::Reorder.events(1), &events).await,
        ["MODIFIED a 2", "ADDED a 1", "ADDED b 3"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_lets_go_what_was_to_be_reordered() {
    let events = [(Added, "a", 1), (Bookmark, "", 2), (Added, "b", 3)];
    assert_eq!(
        told_under(Fault::Reorder.events(1), &events).await,
        ["ADDED a 1", "BOOKMARK  2", "ADDED b 3"],
        "a client that resumes from the bookmark would lose it"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_left_out_is_chosen_by_type() {
    let events = [(Added, "a", 1), (Deleted, "a", 2), (Bookmark, "", 3), (Deleted, "b", 4)];
    assert_eq!(
        told_under(Fault::Skip(Events::Deleted).at_event(1), &events).await,
        ["ADDED a 1", "BOOKMARK  3", "DELETED b 4"]
    );
    assert_eq!(
        told_under(Fault::Skip(Events::Bookmarks), &events).await,
        ["ADDED a 1", "DELETED a 2", "DELETED b 4"]
    );
}

#[tokio::test(start_paused = true)]
async fn of_the_steps_of_an_object_only_the_last_is_told() {
    let events = [
        (Added, "a", 1),
        (Modified, "a", 2),
        (Modified, "b", 3),
        (Modified, "a", 4),
        (Modified, "a", 5),
        (Deleted, "b", 6),
    ];
    assert_eq!(
        told_under(Fault::Coalesce(Duration::from_secs(1)), &events).await,
        ["ADDED a 1", "MODIFIED a 5", "DELETED b 6"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_an_edit_holds_is_let_go_with_its_rule_and_at_the_end() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    let armed = faults.on(Verb::Watch, "configmaps").then(Fault::Reorder);
    stream.tell(Added, "a", 1);
    assert_eq!(told(&mut stream, Duration::from_secs(1)).await, [""; 0]);
    armed.disarm();
    assert_eq!(told(&mut stream, Duration::from_secs(1)).await, ["ADDED a 1"]);
    faults.on(Verb::Watch, "configmaps").then(Fault::Reorder);
    stream.tell(Added, "b", 2);
    stream.sender.close_channel();
    assert_eq!(told(&mut stream, Duration::from_secs(1)).await, ["ADDED b 2"]);
    assert_eq!(faults.open_streams(), 0);
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_distort_alike_and_streams_differ() {
    let run = async |seed: u64| {
        let faults = Faults::default();
        faults.on(Verb::Watch, "*").then(Fault::Skip(Events::Changes).chance(0.5, seed));
        let mut both = Vec::new();
        for _ in 0..2 {
            let mut stream = open(&faults);
            (1..40).for_each(|version| stream.tell(Added, "a", version));
            both.push(told(&mut stream, Duration::from_secs(1)).await);
        }
        both
    };
    let seen = run(7).await;
    assert_eq!(run(7).await, seen);
    assert_ne!(run(8).await, seen);
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn an_event_becomes_unreadable_in_the_way_chosen() {
    for (how, wanted) in [
        (Garble::Json, r#"{{"object""#),
        (Garble::Type, r#""type":"RENAMED""#),
        (Garble::Kind, r#""kind":"Impostor""#),
        (Garble::Object, r#""labels":"no map""#),
        (Garble::Identity, r#""metadata":7"#),
    ] {
        let faults = Faults::default();
        let mut stream = open(&faults);
        faults.on(Verb::Watch, "configmaps").then(Fault::Garble(how).at_event(2));
        stream.tell(Added, "a", 1);
        stream.tell(Added, "b", 2);
        stream.tell(Added, "c", 3);
        let (text, _) = stream.read().await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].contains(wanted), "{}", lines[1]);
        assert!(lines[0].contains("\"a\"") && lines[2].contains("\"c\""));
        assert_eq!(faults.log()[0].version, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_comes_at_once_and_ends_the_stream_or_not() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    let gone = Fault::Status(410).reason("Gone").as_event();
    faults.on(Verb::Watch, "*").once().then(gone.clone().and_go_on());
    stream.tell(Added, "a", 1);
    let (text, end) = stream.read().await;
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["type"], &lines[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(lines[0]["object"]["reason"], "Gone");
    assert_eq!((&lines[1]["type"], end), (&json!("ADDED"), End::Quiet));
    faults.on(Verb::Watch, "*").once().then(Fault::Status(500).as_line().after_events(1));
    stream.tell(Added, "b", 2);
    stream.tell(Added, "c", 3);
    let (text, end) = stream.read().await;
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), end), (2, End::Clean), "{text}");
    assert_eq!((&lines[1]["kind"], &lines[1]["reason"]), (&json!("Status"), &json!("InternalError")));
}

#[tokio::test(start_paused = true)]
async fn a_slow_drip_lets_so_many_bytes_pass_in_each_period() {
    let faults = Faults::default();
    let mut stream = open(&faults);
    faults.on(Verb::Watch, "*").then(Fault::Drip(4, Duration::from_secs(1)));
    stream.added([2]);
    let start = Instant::now();
    let mut seen = Vec::new();
    let mut text = String::new();
    while text.len() < 11 {
        let bytes = stream.body.frame().await.unwrap().unwrap().into_data().unwrap();
        text += std::str::from_utf8(&bytes).unwrap();
        seen.push((bytes.len(), start.elapsed().as_secs()));
    }
    assert_eq!((text.as_str(), seen), ("Added-0002\n", vec![(4, 0), (4, 1), (3, 2)]));
    faults.clear();
    stream.added([3]);
    assert_eq!(stream.read().await.0, "Added-0003\n");
}

#[tokio::test]
async fn cuts_come_after_so_many_bytes_past_the_list_and_inside_a_line() {
    let faults = Faults::default();
    faults.on(Verb::Watch, "*").then(Fault::Cut.at_byte(11).after_list().mid_line());
    for _ in 0..3 {
        let mut stream = open(&faults);
        let initial = Frame { phase: Phase::Initial, ..frame(EventType::Added, 1) };
        stream.sender.unbounded_send(initial).unwrap();
        stream.added([2, 3]);
        // 11 bytes are a whole line: the cut moves into the next one.
        assert_eq!(stream.read().await, ("Added-0001\nAdded-0002\nA".to_owned(), End::Broken));
    }
    assert_eq!(faults.log().len(), 3);
}

#[tokio::test]
async fn held_watches_pass_what_is_released() {
    let faults = Faults::default();
    let watches = faults.watches("configmaps");
    let mut first = open(&faults);
    watches.hold();
    let mut second = open(&faults);
    for stream in [&first, &second] {
        stream.added([2, 3, 4]);
    }
    assert_eq!((first.read().await.0.as_str(), second.read().await.0.as_str()), ("", ""));
    watches.release(2);
    assert_eq!(first.read().await, ("Added-0002\nAdded-0003\n".to_owned(), End::Quiet));
    assert_eq!((watches.open(), watches.passed()), (2, 2));
    watches.resume();
    assert_eq!(first.read().await.0, "Added-0004\n");
    assert_eq!(second.read().await.0.len(), 33);
    watches.wait_for(2).await;
    watches.wait_passed(6).await;
}

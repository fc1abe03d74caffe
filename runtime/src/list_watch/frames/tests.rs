//! Frames: the same events however a body is cut, and each sort of line for what it is.

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::{
    list_watch::{ManagedFields, ObjectType, Representation},
    object::{Kind, Scope},
};

fn decoder(largest: usize) -> EventDecoder {
    let kind = Kind {
        group: "".into(),
        version: "v1".into(),
        kind: "ConfigMap".into(),
        plural: "configmaps".into(),
        scope: Scope::Namespaced,
    };
    EventDecoder {
        decoder: Decoder::new(
            ObjectType::of::<ConfigMap>(),
            &kind,
            Representation::Whole,
            ManagedFields::Drop,
        ),
        largest,
    }
}

/// Reads a body to its end or to an error, each event in a few words.
fn read(chunks: &[&[u8]]) -> Vec<String> {
    let (decoder, spare, mut events) = (decoder(1_000), SpareBuffer::default(), Vec::new());
    let mut lines = Lines::new(1_000, spare.clone());
    for chunk in chunks {
        lines.add(chunk);
        events.extend(decoder.clone().events(lines.take(), spare.clone(), None));
    }
    let end = lines.finish();
    events.extend(decoder.events(lines.take(), spare, None));
    events.extend(end.err().map(Err));
    let whole = events.iter().position(Result::is_err).map_or(events.len(), |error| error + 1);
    events[..whole].iter().map(spelled).collect()
}

fn spelled(event: &DecodedEvent) -> String {
    let item = |item: &AnyItem| {
        let key = item.key().map_or("?".to_owned(), |key| key.to_string());
        let unreadable = if let AnyItem::Unreadable(_) = item { " unreadable" } else { "" };
        format!("{key}@{}{unreadable}", item.resource_version().unwrap_or_default())
    };
    match event {
        Ok(WatchEvent::Added(added)) => format!("+{}", item(added)),
        Ok(WatchEvent::Modified(modified)) => format!("={}", item(modified)),
        Ok(WatchEvent::Deleted(deleted)) => format!("-{}", item(deleted)),
        Ok(WatchEvent::Bookmark { resource_version, initial_events: InitialEventsMark::End }) => {
            format!("!{resource_version}")
        }
        Ok(WatchEvent::Bookmark { resource_version, .. }) => format!("~{resource_version}"),
        Ok(WatchEvent::Dropped(version)) => format!("/{version}"),
        Ok(WatchEvent::Unexpected(what)) => what.clone(),
        Ok(WatchEvent::Error(status)) => format!("error {}", status.code),
        Err(error) => error.to_string(),
    }
}

const BODY: &str = concat!(
    r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"},"data":{"k":"\"}{\n"}}}"#,
    "\n\r\n\n",
    r#"{"object":{"kind":"ConfigMap","metadata":{"name":"b","resourceVersion":"2"},"data":5},"type":"MODIFIED"}"#,
    "\r\n",
    r#" {"type":"DELETED","object":{"metadata":{"name":"ä","namespace":"n","resourceVersion":"3"}}} "#,
    "\n",
    r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"4"},"spec":{"x":null},"data":7}}"#,
    "\n",
    r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#,
);
const READ: [&str; 5] = ["+a@1", "=b@2 unreadable", "-n/ä@3", "~4", "error 410"];

// R34
#[test]
fn line_breaks_of_any_sort_and_a_last_line_without_one_make_no_difference() {
    assert_eq!(read(&[BODY.as_bytes()]), READ);
    assert_eq!(read(&[BODY.as_bytes(), b"\r\n\r\n"]), READ);
    assert!(read(&[b"\n\n  \r\n"]).is_empty());
    assert!(read(&[]).is_empty());
}

proptest! {
    // R34
    #[test]
    fn frames_split_at_any_byte_give_the_same_events(cuts in prop::collection::vec(0..BODY.len(), 0..12)) {
        let mut cuts = cuts;
        cuts.extend([0, BODY.len()]);
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|cut| &BODY.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&chunks), READ);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&[&bytes]);
    }
}

// R35
#[test]
fn an_end_inside_a_frame_is_not_an_event_and_loses_none() {
    let last = BODY.rfind('\n').unwrap();
    for end in last + 2..BODY.len() {
        let events = read(&[&BODY.as_bytes()[..end]]);
        assert_eq!(events[..4], READ[..4]);
        assert_eq!(events[4], "the answer ended in the middle", "cut at {end}");
    }
}

// R22
#[test]
fn only_the_right_annotation_closes_the_initial_events() {
    for (annotations, expected) in [
        (r#"{"k8s.io/initial-events-end":"true"}"#, "!4"),
        (r#"{"k8s.io/initial-events-end":"false"}"#, "~4"),
        (r#"{"k8s.io/initial-events-end":"True"}"#, "~4"),
        (r#"{"k8s.io/initial-events-end":true}"#, "~4"),
        (r#"{"other":"true"}"#, "~4"),
        ("null", "~4"),
    ] {
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"4","annotations":{annotations}}}}}}}"#
        );
        assert_eq!(read(&[line.as_bytes()]), [expected]);
    }
}

// R37
#[test]
fn a_bare_status_line_is_an_error_event() {
    let line = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}"#;
    assert_eq!(read(&[line.as_bytes()]), ["error 410"]);
}

// R5
#[test]
fn events_of_the_wrong_type_or_kind_are_reported_and_the_stream_goes_on() {
    let body = concat!(
        r#"{"type":"PATCHED","object":{}}"#,
        "\n",
        r#"{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{}}"#,
        "\n",
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#,
    );
    assert_eq!(
        read(&[body.as_bytes()]),
        [
            "an event of an unknown type",
            "an event with an object of another kind: Secret of v1",
            "a bookmark without a resource version",
            "+a@1",
        ]
    );
}

// R48
#[test]
fn garbage_ends_the_stream_and_shows_nothing_of_itself() {
    for (line, what) in [
        ("hunter2", "JSON"),
        (r#"{"hunter2"}"#, "JSON"),
        (r#"["hunter2"]"#, "an event"),
        (r#"{"type":5,"object":{}}"#, "an event"),
        (r#"{"type":"ADDED"}"#, "an event"),
        // Broken within the object: never that object's fault, since nobody knows whose it is.
        (r#"{"type":"ADDED","object":{"metadata":{"name":"a""namespace":"hunter2"}}}"#, "JSON"),
        (r#"{"type":"DELETED","object":{"metadata":{"name":"a"}}"#, "JSON"),
        (r#"{"type":"ADDED","object":{"metadata":{"name":"a"},}}"#, "JSON"),
        (r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4"} "x":1}}"#, "JSON"),
        (r#"{"type":"HUNTER","object":{"a"}}"#, "JSON"),
    ] {
        let body = format!("{line}\n{BODY}");
        assert_eq!(
            read(&[body.as_bytes()]),
            [format!("the answer can't be read: a line of the stream is not {what}")]
        );
    }
}

#[test]
fn a_line_past_the_bound_ends_the_stream_and_is_not_held() {
    let line =
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#.to_owned() + "\n";
    let fits = line.len() - 1;
    for (largest, chunk) in [(fits, 7), (fits, 1_000), (fits - 1, 7), (fits - 1, 1_000)] {
        let (decoder, mut lines, mut events) =
            (decoder(largest), Lines::new(largest, SpareBuffer::default()), Vec::new());
        for chunk in line.as_bytes().chunks(chunk) {
            lines.add(chunk);
            assert!(lines.text.len() - lines.whole <= largest);
            events.extend(decoder.clone().events(lines.take(), SpareBuffer::default(), None));
        }
        let expected = if largest == fits {
            "+a@1".to_owned()
        } else {
            format!("an event is larger than {largest} bytes")
        };
        assert_eq!(spelled(&events[0]), expected, "{largest} {chunk}");
    }
}

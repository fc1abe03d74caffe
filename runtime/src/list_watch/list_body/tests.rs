//! Lists in chunks: the same items however a body is cut, and nothing else taken for a list.

use proptest::prelude::*;

use super::*;

fn read(chunks: &[&[u8]]) -> Result<(Vec<String>, ListHead), ListWatchError> {
    let (mut body, mut items) = (ListBody::new(1_000), Vec::new());
    for chunk in chunks {
        body.feed(chunk, |item| {
            items.push(item.to_owned());
            json::check(item)
        })?;
    }
    Ok((items, body.finish()?))
}

fn head(resource_version: &str, continue_token: Option<&str>) -> ListHead {
    ListHead { resource_version: resource_version.into(), continue_token: continue_token.map(Into::into) }
}

const LIST: &str = r#" {"apiVersion" : "v1","extra":[{"a":"]}"}, 12],"items": [ {"a":1}, {"b":"\"}]"} ,5,"x"
    ], "kind":"PodList","more":12,"metadata":{"resourceVersion":"7","continue":"c"}}
    "#;

#[test]
fn the_members_of_a_list_may_stand_in_any_order() {
    let (items, found) = read(&[LIST.as_bytes()]).unwrap();
    assert_eq!(items, [r#"{"a":1}"#, r#"{"b":"\"}]"}"#, "5", r#""x""#]);
    assert_eq!(found, head("7", Some("c")));
    let first = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":""},"items":[]}"#;
    assert_eq!(read(&[first.as_bytes()]).unwrap(), (vec![], head("7", None)));
    let null = r#"{"metadata":{},"items":null,"kind":"PodList"}"#;
    assert_eq!(read(&[null.as_bytes()]).unwrap(), (vec![], head("", None)));
}

#[test]
fn items_come_out_as_they_are_complete_and_nothing_piles_up() {
    let mut body = ListBody::new(1_000);
    let count = std::cell::Cell::new(0);
    let mut one_more = |_: &str| {
        count.set(count.get() + 1);
        Ok(())
    };
    body.feed(br#"{"kind":"PodList","items":["#, &mut one_more).unwrap();
    for n in 1..=1_000 {
        body.feed(br#"{"metadata":{"name":"a"}"#, &mut one_more).unwrap();
        body.feed(b"},", &mut one_more).unwrap();
        assert_eq!(count.get(), n);
        assert!(body.buffer.len() < 64 && body.buffer.capacity() < 1_024);
    }
}

#[test]
fn a_status_in_place_of_a_list_is_an_error() {
    let text = r#"{"kind":"Status","metadata":{},"status":"Failure","reason":"Expired","code":410}"#;
    let error = read(&[text.as_bytes()]).unwrap_err();
    assert_eq!(error.status().unwrap().code, 410);
}

#[test]
fn what_is_not_a_list_is_refused() {
    for text in [
        "",
        "  ",
        "garbage",
        "[]",
        r#"{"kind":"Pod","metadata":{"name":"a"}}"#,
        r#"{"kind":"PodList","metadata":{},"items":{}}"#,
        r#"{"kind":"PodList","metadata":{},"items":[]} x"#,
        r#"{"kind":"PodList","metadata":{},"items":[],"items":[]}"#,
        r#"{"kind":"PodList","metadata":[],"items":[]}"#,
        r#"{"kind":"PodList","metadata":["7","c"],"items":[]}"#,
        r#"{"kind":"PodList","metadata":{"resourceVersion":7},"items":[]}"#,
        r#"{"kind":7,"metadata":{},"items":[]}"#,
        r#"{"kind":"PodList","metadata":{},"items":[,]}"#,
        r#"{"kind":"PodList","metadata":{},"items":[{},]}"#,
        r#"{"kind":"PodList","metadata":{},"items":[],}"#,
        r#"{"kind":"PodList","metadata":{},"items":[{}{}]}"#,
        r#"{"kind":"PodList","metadata":{},"items":nil}"#,
        r#"{"kind" "PodList"}"#,
        r#"{"kind":"PodList","items":[]}"#,
        r#"{"kind":"Table","metadata":{},"items":[]}"#,
    ] {
        let error = read(&[text.as_bytes()]).unwrap_err();
        assert!(matches!(error, ListWatchError::Unreadable(_)), "{text}: {error:?}");
    }
}

// R48
#[test]
fn a_list_with_an_item_that_is_not_json_is_refused() {
    for item in [r#"{"a":1]"#, r#"{"a" 1}"#, r#"{"a":[}]}"#, r#"["a\x"]"#, "tru", "01", r#""\ud8""#] {
        let text =
            format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{{}},{item}],"kind":"PodList"}}"#);
        let error = read(&[text.as_bytes()]).unwrap_err();
        assert!(
            matches!(error, ListWatchError::Unreadable(_) | ListWatchError::CutShort),
            "{text}: {error:?}"
        );
    }
}

#[test]
fn a_list_that_breaks_off_is_not_a_list() {
    for end in 2..LIST.trim_end().len() {
        let error = read(&[&LIST.as_bytes()[..end]]).unwrap_err();
        assert!(matches!(error, ListWatchError::CutShort), "cut at {end}: {error:?}");
    }
}

proptest! {
    // R34
    #[test]
    fn a_list_reads_the_same_however_it_is_cut(cuts in prop::collection::vec(0..LIST.len(), 0..12)) {
        let mut cuts = cuts;
        cuts.extend([0, LIST.len()]);
        cuts.sort_unstable();
        let chunks: Vec<_> = cuts.windows(2).map(|cut| &LIST.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&chunks).unwrap(), read(&[LIST.as_bytes()]).unwrap());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
        let at = cut.min(bytes.len());
        let _ = read(&[&bytes[..at], &bytes[at..]]);
    }

    #[test]
    fn no_json_like_text_makes_it_panic(text in "[{}\\[\\]:,\"\\\\a1 n]{0,60}", cut in 0..60_usize) {
        let at = cut.min(text.len());
        let _ = read(&[&text.as_bytes()[..at], &text.as_bytes()[at..]]);
    }
}

// R34
#[test]
fn what_is_not_a_list_is_refused_alike_however_it_is_cut() {
    let text = r#"{ "items" : numetadata":{"res null , "data":{},  "#.as_bytes();
    let whole = read(&[text]).unwrap_err().to_string();
    for size in 1..text.len() {
        let chunks: Vec<_> = text.chunks(size).collect();
        assert_eq!(read(&chunks).unwrap_err().to_string(), whole, "in pieces of {size}");
    }
}

#[test]
fn an_item_past_the_bound_is_refused_before_it_is_whole() {
    let item = r#"{"metadata":{"name":"a"},"data":{"k":"0123456789"}}"#;
    let list = format!(r#"{{"items":[{{}},{item}],"metadata":{{"resourceVersion":"1"}}}}"#);
    for chunk in [5, 1_000] {
        let read = |largest| {
            let mut body = ListBody::new(largest);
            list.as_bytes().chunks(chunk).try_for_each(|chunk| body.feed(chunk, json::check))?;
            body.finish()
        };
        assert_eq!(read(item.len()).unwrap(), head("1", None));
        let refused = read(item.len() - 1).unwrap_err();
        assert!(
            matches!(refused, ListWatchError::TooLarge { limit, .. } if limit == item.len() - 1),
            "{refused:?}"
        );
    }
    // The rest of the list is bounded as well, even before it is complete, whether it is kept or not.
    for member in ["message", "more"] {
        let mut body = ListBody::new(10);
        let mut feed = |text: &str| body.feed(text.as_bytes(), json::check);
        feed(&format!(r#"{{"{member}":""#)).unwrap();
        let refused = (0..100).find_map(|_| feed(&"x".repeat(100_000)).err()).unwrap();
        assert!(matches!(refused, ListWatchError::TooLarge { limit: LARGEST_ENVELOPE, .. }), "{refused:?}");
    }
}

#[test]
fn reading_a_long_list_holds_no_more_than_an_item_and_a_chunk() {
    let item = format!(r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{}"}}}}"#, "x".repeat(5_000));
    let list =
        format!(r#"{{"items":[{}],"metadata":{{"resourceVersion":"1"}}}}"#, vec![item; 4_000].join(","));
    let (mut body, mut items, mut most) = (ListBody::new(1 << 20), 0, 0);
    for chunk in list.as_bytes().chunks(16 << 10) {
        body.feed(chunk, |_| {
            items += 1;
            Ok(())
        })
        .unwrap();
        most = most.max(body.buffer.capacity());
    }
    assert_eq!((items, body.finish().unwrap()), (4_000, head("1", None)));
    assert!(most < 100_000, "{most} bytes were held of {}", list.len());
}

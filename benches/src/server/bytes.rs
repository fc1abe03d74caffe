//! What a kind's lists and watches send, prepared once.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, OnceLock},
};

use crate::{
    gadget::{self, LISTED},
    pod,
};

/// What is served.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Gadgets,
    Pods,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Gadgets => gadget::PATH,
            Self::Pods => pod::PATH,
        }
    }

    fn object(self, at: usize, version: u64, sent: u64) -> String {
        match self {
            Self::Gadgets => gadget::json(at, version, sent),
            Self::Pods => pod::json(at, version),
        }
    }

    fn list_head(self) -> &'static str {
        match self {
            Self::Gadgets => r#""kind":"GadgetList","apiVersion":"bench.example.dev/v1""#,
            Self::Pods => r#""kind":"PodList","apiVersion":"v1""#,
        }
    }

    fn bookmark(self) -> String {
        let of = match self {
            Self::Gadgets => r#""kind":"Gadget","apiVersion":"bench.example.dev/v1""#,
            Self::Pods => r#""kind":"Pod","apiVersion":"v1""#,
        };
        format!(
            r#"{{"type":"BOOKMARK","object":{{{of},"metadata":{{"resourceVersion":"{LISTED}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
        )
    }
}

/// The bytes of one kind; each sort is made when it is first asked for.
pub(super) struct Prepared {
    kind: Kind,
    objects: usize,
    list: OnceLock<Items>,
    initial: OnceLock<String>,
    /// By how many changes they are.
    floods: Mutex<BTreeMap<usize, Arc<str>>>,
}

/// All items, with commas between them, and where each begins.
struct Items {
    text: String,
    starts: Vec<usize>,
}

impl Prepared {
    pub(super) fn new(kind: Kind, objects: usize) -> Self {
        let (list, initial, floods) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        Self { kind, objects, list, initial, floods }
    }

    /// Returns whether a path asks for this kind.
    pub(super) fn serves(&self, path: &str) -> bool {
        path == self.kind.path()
    }

    /// Cuts a page out of the list: its head, its items, and its end.
    pub(super) fn page(&self, from: usize, limit: usize) -> (String, &[u8], &'static [u8]) {
        let items = self.list.get_or_init(|| self.items());
        let to = from.saturating_add(limit).min(self.objects);
        let rest = self.objects - to;
        let more = match rest {
            0 => String::new(),
            _ => format!(r#","continue":"{to}","remainingItemCount":{rest}"#),
        };
        let head = format!(
            r#"{{{},"metadata":{{"resourceVersion":"{LISTED}"{more}}},"items":["#,
            self.kind.list_head()
        );
        let page = &items.text[items.starts[from]..items.starts[to]];
        (head, page.strip_suffix(',').unwrap_or(page).as_bytes(), b"]}\n")
    }

    fn items(&self) -> Items {
        let (mut text, mut starts) = (String::new(), vec![0]);
        for at in 0..self.objects {
            text.push_str(&self.kind.object(at, at as u64 + 1, 0));
            text.push(',');
            starts.push(text.len());
        }
        Items { text, starts }
    }

    /// The initial events of a streaming list, its closing bookmark included, one chunk each.
    pub(super) fn initial_events(&self) -> &[u8] {
        let made = self.initial.get_or_init(|| {
            let mut text = String::new();
            (0..self.objects)
                .for_each(|at| chunk(&mut text, &event("ADDED", &self.kind.object(at, at as u64 + 1, 0))));
            chunk(&mut text, &self.kind.bookmark());
            text
        });
        made.as_bytes()
    }

    /// So many changes, each object in its turn, one chunk each; the last is of the last object, and the only one.
    pub(super) fn flood(&self, events: usize) -> Arc<str> {
        let mut floods = self.floods.lock().expect("making bytes does not panic");
        let made = floods.entry(events).or_insert_with(|| {
            let mut text = String::new();
            (1..events).for_each(|number| text.push_str(&self.change(number, 0)));
            text.push_str(&self.last_change(events, 0));
            text.into()
        });
        made.clone()
    }

    /// The chunk of the n-th change: each object but the last in its turn.
    pub(super) fn change(&self, number: usize, sent: u64) -> String {
        self.modified((number * 7_919) % (self.objects - 1), number, sent)
    }

    /// The chunk of a change to the last object, which ends what is measured.
    pub(super) fn last_change(&self, number: usize, sent: u64) -> String {
        self.modified(self.objects - 1, number, sent)
    }

    fn modified(&self, at: usize, number: usize, sent: u64) -> String {
        let mut text = String::new();
        chunk(&mut text, &event("MODIFIED", &self.kind.object(at, LISTED + number as u64, sent)));
        text
    }
}

/// The chunk that ends a watch whose version is too old.
pub(super) fn expired() -> String {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;
    let mut text = String::new();
    chunk(&mut text, &event("ERROR", status));
    text
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

/// Appends an HTTP chunk with a line in it.
fn chunk(text: &mut String, line: &str) {
    let _ = write!(text, "{:x}\r\n{line}\n\r\n", line.len() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up_to_the_list() {
        let prepared = Prepared::new(Kind::Gadgets, 5);
        let names = |from, limit| {
            let (head, items, tail) = prepared.page(from, limit);
            let text = [head.as_bytes(), items, tail].concat();
            let list: serde_json::Value = serde_json::from_slice(&text).expect("a page is JSON");
            let items = list["items"].as_array().expect("a page has items").clone();
            (items.len(), list["metadata"]["continue"].as_str().map(str::to_owned))
        };
        assert_eq!(names(0, usize::MAX), (5, None));
        assert_eq!(names(0, 3), (3, Some("3".to_owned())));
        assert_eq!(names(3, 3), (2, None));
    }

    #[test]
    fn a_flood_is_one_chunk_an_event_and_ends_with_the_last_object() {
        let prepared = Prepared::new(Kind::Gadgets, 10);
        let text = prepared.flood(20);
        let events: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
        let of_last: Vec<usize> = (0..20).filter(|at| events[*at].contains("gadget-0000009")).collect();
        assert_eq!((events.len(), of_last), (20, vec![19]));
        let (size, rest) = text.split_once("\r\n").expect("a chunk has a size");
        assert_eq!(usize::from_str_radix(size, 16).ok(), rest.find("\r\n"));
        let fewer = prepared.flood(5);
        assert_eq!(
            (fewer.lines().filter(|line| line.starts_with('{')).count(), prepared.flood(20).len()),
            (5, text.len())
        );
    }
}

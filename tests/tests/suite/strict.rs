//! Lists and watches compared with `serde_json`, on mutated answers of a real API server.

#![expect(clippy::print_stdout, reason = "the counts are the point")]

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::DynamicObject;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::value::RawValue;
use watchkeeper::{
    list_watch::ItemForm,
    object::{Kind, Object},
};

use self::{
    answer::{Manner, Reader, kind},
    oracle::{Judged, Verdict},
};

#[expect(unreachable_pub, reason = "the fuzz targets share it")]
#[path = "../../../fuzz/src/answer.rs"]
mod answer;
#[expect(unreachable_pub, reason = "the fuzz targets share it")]
#[path = "../../../fuzz/src/oracle.rs"]
mod oracle;

/// Documents of each sort, and most bytes of an object in them.
const DOCUMENTS: usize = 10_000;
const LARGEST: usize = 1_500;

/// The objects of the recorded answers by kind, as they were written, without blanks.
fn recorded() -> BTreeMap<String, Vec<String>> {
    let mut objects = BTreeMap::<String, Vec<String>>::new();
    let wire = concat!(env!("CARGO_MANIFEST_DIR"), "/wire");
    let mut files: Vec<_> = std::fs::read_dir(wire).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "json")) {
        let text = std::fs::read_to_string(file).unwrap();
        collect(serde_json::from_str(&text).unwrap(), &mut objects);
    }
    objects
}

fn collect(value: &RawValue, objects: &mut BTreeMap<String, Vec<String>>) {
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get()) {
        let is_object = members.get("metadata").is_some_and(|metadata| metadata.get().contains("\"uid\""));
        match members.get("kind").filter(|_| is_object) {
            Some(kind) if value.get().len() < 4 * LARGEST => {
                let kind: String = serde_json::from_str(kind.get()).unwrap_or_default();
                objects.entry(kind).or_default().push(without_blanks(value.get()));
            }
            _ => members.values().for_each(|member| collect(member, objects)),
        }
    } else if let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(value.get()) {
        elements.into_iter().for_each(|element| collect(element, objects));
    }
}

fn without_blanks(json: &str) -> String {
    let (mut text, mut escaped) = (false, false);
    let kept = json.chars().filter(|char| {
        match (text, *char) {
            (true, '\\') => escaped = !escaped,
            (_, '"') if !escaped => text = !text,
            _ => escaped = false,
        }
        text || !char.is_whitespace()
    });
    kept.collect()
}

/// Changes a document in one to three places, or leaves it alone.
fn mutate(document: &mut Vec<u8>, random: &mut StdRng) {
    const BYTES: &[u8] = b"\"\"\"\\{}[],,::0-1.eEtfn au\t\n\x00\x1f\x7f\xc3\xa4\xff";
    const PARTS: &[&[u8]] = &[
        b"\\u00",
        b"\\ud83d",
        b"\\ude00",
        b"\\n",
        b"\xed\xa0\x80",
        b"null",
        b"true",
        b"tru",
        b"01",
        b"1e999",
        b"-",
        b"{}",
        b"[]",
        b",",
        b"\"name\":\"x\"",
        b",\"uid\":\"y\"",
        b"\"metadata\":{}",
        b"\"managedFields\":[],",
        b" ",
        b"\r\n",
        b"\"\"",
        b"\xef\xbb\xbf",
    ];
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..document.len());
        let end = (at + random.random_range(0..12)).min(document.len());
        match random.random_range(0..8) {
            0 => document[at] = *BYTES.choose(random).unwrap(),
            1 => document[at] ^= 1 << random.random_range(0..8),
            2 => drop(document.remove(at)),
            3 => document.insert(at, *BYTES.choose(random).unwrap()),
            4 => drop(document.splice(at..at, PARTS.choose(random).unwrap().iter().copied())),
            5 => drop(document.splice(at..end, PARTS.choose(random).unwrap().iter().copied())),
            6 => drop(document.drain(at..end)),
            _ => {
                let copy = document[at..end].to_vec();
                let to = random.random_range(0..document.len());
                document.splice(to..to, copy);
            }
        }
        if document.is_empty() {
            document.push(b' ');
        }
    }
}

/// One to three objects of a kind; some do not say what they are, as in lists of built-in kinds.
fn objects<'a>(of: &'a [String], random: &mut StdRng) -> Vec<Cow<'a, str>> {
    let count = random.random_range(1..4);
    let chosen = (0..count).filter_map(|_| of.choose(random)).map(|object| object.as_str().into());
    let chosen: Vec<Cow<'_, str>> = chosen.collect();
    chosen.into_iter().map(|object| without_type(object, random)).collect()
}

fn without_type<'a>(object: Cow<'a, str>, random: &mut impl Rng) -> Cow<'a, str> {
    match object.find("\"metadata\"") {
        Some(at) if object.starts_with("{\"kind\"") && random.random_bool(0.3) => {
            format!("{{{}", &object[at..]).into()
        }
        _ => object,
    }
}

fn list(of: &[String], random: &mut StdRng) -> Vec<u8> {
    let items = objects(of, random).join(",");
    format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#)
        .into()
}

fn watch(of: &[String], random: &mut StdRng) -> Vec<u8> {
    let mut lines = String::new();
    for object in objects(of, random) {
        let sort = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"].choose(random).unwrap();
        lines += &format!("{{\"type\":\"{sort}\",\"object\":{object}}}\n");
    }
    lines.into()
}

/// Counts of a run.
#[derive(Default)]
struct Counts {
    accepted: usize,
    rejected: usize,
    not_judged: usize,
    different: Vec<String>,
}

impl Counts {
    fn count(&mut self, judged: Judged, document: &[u8]) {
        match judged {
            Ok(Verdict::Accepted) => self.accepted += 1,
            Ok(Verdict::Rejected) => self.rejected += 1,
            Ok(Verdict::NotJudged) => self.not_judged += 1,
            Err(difference) => {
                self.different.push(format!("{difference} in {:?}", String::from_utf8_lossy(document)));
            }
        }
    }

    fn tell(&self, what: &str) {
        let Self { accepted, rejected, not_judged, different } = self;
        let documents = accepted + rejected + not_judged + different.len();
        println!(
            "{what}: {documents} readings, {accepted} accepted by both, {rejected} rejected by both, \
             {not_judged} not judged, {} differences",
            different.len()
        );
        assert!(different.is_empty(), "{:#?}", &different[..different.len().min(5)]);
        assert!(*accepted > documents / 10 && *rejected > documents / 10, "one side is hardly tested");
    }
}

/// Reads mutated documents of one kind, each in one form, whole or in pieces.
fn run<K: Object + PartialEq>(
    reader: &Reader,
    kind: &Kind,
    of: &[String],
    random: &mut StdRng,
    (lists, watches): (&mut Counts, &mut Counts),
) {
    let form = if random.random_bool(0.5) { ItemForm::Typed } else { ItemForm::Bytes };
    let chunk = if random.random_bool(0.5) { usize::MAX } else { random.random_range(1..400) };
    let manner = Manner { chunk, form };
    let mut body = list(of, random);
    mutate(&mut body, random);
    let found = reader.listed::<K>(kind, (200, &body), manner);
    lists.count(oracle::list(kind, form, &body, &found), &body);
    let mut body = watch(of, random);
    mutate(&mut body, random);
    let found = reader.watched::<K>(kind, (200, &body), manner).unwrap();
    watches.count(oracle::watch(kind, form, &body, &found), &body);
}

// R48
#[test]
fn lists_and_watches_read_as_serde_json_reads_them() {
    let (reader, mut random) = (Reader::start(), StdRng::seed_from_u64(48));
    let recorded = recorded();
    let of = |name: &str| {
        let short = recorded[name].iter().filter(|object| object.len() < LARGEST);
        short.cloned().collect::<Vec<_>>()
    };
    let (maps, pods, widgets) = (of("ConfigMap"), of("Pod"), of("Widget"));
    let widget: serde_json::Value = serde_json::from_str(&widgets[0]).unwrap();
    let (group, version) = widget["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let kinds = [kind("", "v1", "ConfigMap"), kind("", "v1", "Pod"), kind(group, version, "Widget")];
    let (mut lists, mut watches) = (Counts::default(), Counts::default());
    for at in 0..DOCUMENTS {
        let counts = (&mut lists, &mut watches);
        match at % 4 {
            0 => run::<ConfigMap>(&reader, &kinds[0], &maps, &mut random, counts),
            1 => run::<Pod>(&reader, &kinds[1], &pods, &mut random, counts),
            2 => run::<DynamicObject>(&reader, &kinds[0], &maps, &mut random, counts),
            _ => run::<DynamicObject>(&reader, &kinds[2], &widgets, &mut random, counts),
        }
    }
    lists.tell("lists");
    watches.tell("watches");
}

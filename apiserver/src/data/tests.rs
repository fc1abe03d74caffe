//! Claims about data files: written entries are read, a crash loses nothing, damage is refused.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A folder of its own, deleted at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("data-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// The state as a map: what a reader of the file should come to.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    version: u64,
    objects: BTreeMap<String, Value>,
    facts: Vec<Value>,
    compacted: u64,
}

impl Model {
    fn apply(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Put { key, object, .. } => {
                self.version = load::version_of(object).expect("a version");
                self.objects.insert(key.to_string(), object.clone().into_owned());
            }
            Entry::Delete { key, version, .. } => {
                self.version = *version;
                self.objects.remove(&**key);
            }
            Entry::Compacted(version) => self.compacted = *version,
            Entry::Fact(fact) => self.facts.push(fact.clone().into_owned()),
            Entry::Started(_) | Entry::End { .. } => {}
        }
    }

    fn of(loaded: &Loaded) -> Self {
        let mut model = Self::default();
        for line in &loaded.snapshot {
            model.apply(&line.entry);
        }
        model.version = loaded.version;
        for line in &loaded.log {
            model.apply(&line.entry);
        }
        model
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, String),
    Delete(u8),
    Fact(u16),
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        4 => (0..6_u8, ".{0,40}").prop_map(|(key, text)| Step::Put(key, text)),
        2 => (0..6_u8).prop_map(Step::Delete),
        1 => any::<u16>().prop_map(Step::Fact),
        1 => Just(Step::Compact),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..5), 1..8)
}

fn entry(step: &Step, model: &Model) -> Option<Entry<'static>> {
    let version = model.version + 1;
    let (group, plural) = (Cow::Borrowed("example.com"), Cow::Borrowed("widgets"));
    match step {
        Step::Put(key, text) => {
            let key = format!("n/{key}");
            let object =
                json!({"metadata": {"name": key, "resourceVersion": version.to_string()}, "text": text});
            Some(Entry::Put { group, plural, key: key.into(), object: Cow::Owned(object) })
        }
        Step::Delete(key) => {
            let key = format!("n/{key}");
            let there = model.objects.contains_key(&key);
            there.then(|| Entry::Delete { group, plural, key: key.into(), version })
        }
        Step::Fact(number) => Some(Entry::Fact(Cow::Owned(json!({ "number": number })))),
        Step::Compact => Some(Entry::Compacted(model.version)),
    }
}

/// Writes batches; gives the file's bytes, and each length after which a state is whole.
fn written(path: &Path, batches: &[Vec<Step>]) -> (Vec<u8>, Vec<(usize, Model)>) {
    let Opened::New(mut file) = DataFile::open(path).expect("a new file") else { panic!("not new") };
    file.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    let mut model = Model { version: 7, ..Model::default() };
    let length = || fs::read(path).expect("the file").len();
    let mut states = vec![(length(), model.clone())];
    for batch in batches {
        let mut entries = Vec::new();
        for step in batch {
            if let Some(entry) = entry(step, &model) {
                model.apply(&entry);
                entries.push(entry);
            }
        }
        file.append(entries).expect("appended");
        states.push((length(), model.clone()));
    }
    (fs::read(path).expect("the file"), states)
}

fn open(path: &Path) -> Result<Loaded, DataError> {
    match DataFile::open(path)? {
        Opened::Old(_, loaded) => Ok(loaded),
        Opened::New(_) => panic!("the file has something in it"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    // A3
    #[test]
    fn any_prefix_opens_to_the_state_of_the_last_whole_record(batches in steps()) {
        let folder = Folder::new();
        let (bytes, states) = written(&folder.file(), &batches);
        let first = states[0].0;
        for length in 1..=bytes.len() {
            let loaded = load::load(&folder.file(), &bytes[..length]);
            if length < first {
                // A snapshot is put in place as a whole, so a part of one can't come from a crash.
                prop_assert!(matches!(loaded, Err(DataError::Damaged { .. } | DataError::NotData { .. })), "{length}");
                continue;
            }
            let loaded = loaded.expect("a prefix is what a crash leaves");
            let (end, model) = states.iter().rfind(|(end, _)| *end <= length).expect("the snapshot at least");
            prop_assert_eq!(&Model::of(&loaded), model, "{} of {} bytes", length, bytes.len());
            prop_assert_eq!((loaded.end, loaded.unfinished), (*end as u64, (length - end) as u64));
        }
    }

    // A3
    #[test]
    fn a_flipped_bit_is_refused_with_its_place(batches in steps(), bit in 0..8_u32) {
        let folder = Folder::new();
        let (mut bytes, states) = written(&folder.file(), &batches);
        let title = load::title().len();
        for at in 0..bytes.len() {
            bytes[at] ^= 1 << bit;
            match load::load(&folder.file(), &bytes) {
                Err(DataError::Damaged { path, offset, record, .. }) if at >= title => {
                    let begins = states.iter().map(|(end, _)| *end).rfind(|end| *end <= at).unwrap_or(title);
                    prop_assert_eq!((path, offset), (folder.file(), begins as u64), "byte {}", at);
                    prop_assert!(record > 0);
                }
                Err(DataError::NotData { .. } | DataError::Format { .. }) if at < title => {}
                other => prop_assert!(false, "byte {}: {:?}", at, other),
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

// A3
#[test]
fn an_unfinished_record_is_cut_off_and_a_damaged_file_is_left_alone() {
    let folder = Folder::new();
    let batches = vec![vec![Step::Put(1, "x".to_owned())], vec![Step::Put(2, "y".to_owned())]];
    let (bytes, states) = written(&folder.file(), &batches);
    fs::write(folder.file(), &bytes[..bytes.len() - 5]).expect("cut short");
    assert_eq!(Model::of(&open(&folder.file()).expect("as a crash leaves it")), states[1].1);
    assert_eq!(fs::read(folder.file()).expect("there"), bytes[..states[1].0], "the rest is gone");
    let mut damaged = bytes;
    damaged[states[0].0 + 20] ^= 1;
    fs::write(folder.file(), &damaged).expect("damaged");
    let error = open(&folder.file()).expect_err("damaged").to_string();
    assert!(error.contains(&format!("damaged at byte {}, in record 2", states[0].0)), "{error}");
    assert_eq!(fs::read(folder.file()).expect("there"), damaged);
}

fn put(version: u64) -> Entry<'static> {
    entry(&Step::Put(1, "x".to_owned()), &Model { version: version - 1, ..Model::default() })
        .expect("an entry")
}

// A3
#[test]
fn a_record_that_is_missing_in_the_middle_is_damage() {
    let folder = Folder::new();
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    file.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    file.append([put(8)]).expect("appended");
    file.append([put(10)]).expect("appended");
    drop(file);
    let error = open(&folder.file()).expect_err("9 is missing").to_string();
    assert!(error.contains("in record 3: version 9 is due, and 10 is there; nothing was loaded"), "{error}");
    assert!(error.contains(&folder.file().display().to_string()), "{error}");
}

#[test]
fn other_files_and_other_formats_are_refused() {
    let folder = Folder::new();
    for (text, says) in [
        ("apiVersion: v1\n", "is not a data file of this server"),
        ("x", "is not a data file of this server"),
        ("watchkeeper-apiserver data 2\n", "has format 2, and this server reads format 1"),
    ] {
        fs::write(folder.file(), text).expect("written");
        let error = open(&folder.file()).expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(fs::read_to_string(folder.file()).expect("there"), text, "it is left alone");
    }
    fs::write(folder.file(), "").expect("written");
    assert!(matches!(DataFile::open(&folder.file()), Ok(Opened::New(_))), "an empty file is a new one");
}

#[test]
fn two_servers_cannot_use_one_file() {
    let folder = Folder::new();
    let first = DataFile::open(&folder.file()).expect("free");
    let error = DataFile::open(&folder.file()).expect_err("in use").to_string();
    assert!(error.contains("another server has it open"), "{error}");
    drop(first);
    DataFile::open(&folder.file()).expect("free again");
}

// A35
#[cfg(unix)]
#[test]
fn two_servers_cannot_use_one_file_by_two_names() {
    let folder = Folder::new();
    let (symbolic, hard) = (folder.0.join("symbolic"), folder.0.join("hard"));
    std::os::unix::fs::symlink(folder.file(), &symbolic).expect("a link");
    let Opened::New(mut first) = DataFile::open(&symbolic).expect("free") else { panic!("not new") };
    first.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    fs::hard_link(folder.file(), &hard).expect("a link");
    for name in [&symbolic, &hard, &folder.file()] {
        let error = DataFile::open(name).expect_err("in use").to_string();
        assert!(error.contains("another server has it open"), "{error}");
    }
    first.append([put(8)]).expect("appended");
    drop(first);
    let Opened::Old(_second, loaded) = DataFile::open(&hard).expect("free again") else { panic!("new") };
    assert_eq!(loaded.log.len(), 1);
    assert!(DataFile::open(&folder.file()).is_err(), "it is in use by its other name");
}

// A35
#[cfg(unix)]
#[test]
fn a_snapshot_replaces_what_a_link_leads_to_and_not_the_link() {
    let folder = Folder::new();
    let elsewhere = folder.0.join("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let (link, real) = (folder.0.join("link"), elsewhere.join("real"));
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    let Opened::New(mut file) = DataFile::open(&link).expect("free") else { panic!("not new") };
    file.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    file.replace(&Image { version: 8, ..Image::default() }).expect("another one");
    drop(file);
    assert!(link.is_symlink(), "the link is still one");
    assert_eq!(open(&real).expect("whole").version, 8);
    assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 1, "no other file is left");
}

// A33
#[test]
fn the_deepest_object_is_read_again() {
    let folder = Folder::new();
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    file.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    let mut object = json!({"metadata": {"resourceVersion": "8"}, "text": "\u{1}\"x", "number": 1.5});
    for _ in 0..crate::limits::DEPTH / 2 - 1 {
        object = json!({"metadata": {"resourceVersion": "8"}, "below": [object]});
    }
    assert_eq!(crate::limits::depth_and_values(&object).0, crate::limits::DEPTH);
    let entry = Entry::Put {
        group: "".into(),
        plural: "a".into(),
        key: "b".into(),
        object: Cow::Owned(object.clone()),
    };
    file.append([entry.clone()]).expect("appended");
    drop(file);
    let loaded = open(&folder.file()).expect("it is whole");
    assert_eq!(loaded.log.first().map(|line| &line.entry), Some(&entry));
}

// A33
#[test]
fn damage_is_told_with_a_way_to_keep_what_is_before_it() {
    let folder = Folder::new();
    let batches = [1, 2, 3].map(|key| vec![Step::Put(key, "x".to_owned())]);
    let (mut bytes, states) = written(&folder.file(), &batches);
    let (whole, damaged) = (states[1].0, states[2].0 - 5);
    bytes[damaged] ^= 1;
    fs::write(folder.file(), &bytes).expect("damaged");
    let error = open(&folder.file()).expect_err("damaged").to_string();
    assert!(error.contains(&format!("`truncate --size {whole} '{}'`", folder.file().display())), "{error}");
    fs::write(folder.file(), &bytes[..whole]).expect("cut");
    assert_eq!(Model::of(&open(&folder.file()).expect("whole")), states[1].1);
}

#[test]
fn a_log_is_outgrown_when_a_snapshot_would_be_shorter() {
    let folder = Folder::new();
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    file.replace(&Image { version: 0, ..Image::default() }).expect("a snapshot");
    let big = |version: u64| {
        let object = json!({"metadata": {"resourceVersion": version.to_string()}, "x": "y".repeat(1 << 20)});
        Entry::Put { group: "".into(), plural: "maps".into(), key: "a".into(), object: Cow::Owned(object) }
    };
    let mut versions = 1..;
    for _ in 0..4 {
        assert!(!file.is_outgrown());
        file.append([big(versions.next().expect("endless"))]).expect("appended");
    }
    assert!(file.is_outgrown());
    file.replace(&Image { version: 5, ..Image::default() }).expect("a snapshot");
    assert!(!file.is_outgrown());
    file.append([put(6)]).expect("appended to the new file");
    drop(file);
    assert_eq!(open(&folder.file()).expect("whole").log.len(), 1);
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let path = folder.0.join("missing/state");
    let error = DataFile::open(&path).expect_err("no folder").to_string();
    assert!(error.contains("missing/state"), "{error}");
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    file.replace(&Image::default()).expect("a snapshot");
    file.take_away_writing();
    let error = file.append([put(1)]).expect_err("not writable").to_string();
    assert!(error.starts_with(&format!("cannot write {}", folder.file().display())), "{error}");
}

// A33
#[test]
fn a_damaged_snapshot_is_not_to_be_cut() {
    let folder = Folder::new();
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    let facts = (0..4).map(|_| json!("x".repeat(4 << 20))).collect();
    file.replace(&Image { facts, ..Image::default() }).expect("a snapshot");
    drop(file);
    let mut bytes = fs::read(folder.file()).expect("it is there");
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(folder.file(), &bytes).expect("damaged");
    let error = open(&folder.file()).expect_err("damaged").to_string();
    assert!(error.contains("in record 4") && !error.contains("truncate"), "{error}");
}

// A33
#[test]
fn the_remedy_quotes_the_path() {
    let folder = Folder::new();
    let path = folder.0.join("it's a state");
    let batches = [1, 2, 3].map(|key| vec![Step::Put(key, "x".to_owned())]);
    let (mut bytes, states) = written(&path, &batches);
    bytes[states[2].0 - 5] ^= 1;
    fs::write(&path, &bytes).expect("damaged");
    let error = open(&path).expect_err("damaged").to_string();
    let quoted = path.display().to_string().replace("it's", r"it'\''s");
    assert!(error.contains(&format!("`truncate --size {} '{quoted}'`", states[1].0)), "{error}");
}

// A33
#[test]
fn a_line_that_nests_without_end_is_damage() {
    let folder = Folder::new();
    let Opened::New(mut file) = DataFile::open(&folder.file()).expect("new") else { panic!("not new") };
    file.replace(&Image { version: 7, ..Image::default() }).expect("a snapshot");
    drop(file);
    let mut bytes = fs::read(folder.file()).expect("it is there");
    let line = format!("{{\"fact\":{}{}}}\n", "[".repeat(50_000), "]".repeat(50_000));
    frame::write(&mut bytes, frame::FrameKind::Log, line.as_bytes());
    fs::write(folder.file(), &bytes).expect("written");
    let error = open(&folder.file()).expect_err("damaged").to_string();
    assert!(error.contains("a line is not a valid entry: recursion limit exceeded"), "{error}");
}

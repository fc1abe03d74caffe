//! Files of the repository, and their generated parts.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// One test at a time changes a page.
static WRITES: Mutex<()> = Mutex::new(());

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Reads a file of the repository.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a file with what it should be, or writes it.
pub(crate) fn assert_is(path: &str, wanted: &str) {
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(root().join(path), wanted).unwrap();
        return;
    }
    let kept = fs::read_to_string(root().join(path)).unwrap_or_default();
    let differ = kept.lines().zip(wanted.lines()).find(|(kept, wanted)| kept != wanted);
    assert!(kept == wanted, "{path} is not current: run this test with UPDATE_SNAPSHOTS=1; {differ:#?}");
}

/// Compares what is between two marks of a page with what it should be, or writes it.
pub(crate) fn assert_marked(path: &str, mark: &str, wanted: &str) {
    let _alone = WRITES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let page = read(path);
    let (begin, end) = (format!("<!-- generated: {mark} -->\n"), format!("<!-- end: {mark} -->"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{path} has no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{path} has no {end}"));
    assert_is(path, &format!("{before}{begin}\n{}\n\n{end}{after}", wanted.trim()));
}

/// Lists the files below a folder whose names end so, sorted, as paths from the repository's root.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, ending));
        } else if path.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Lists the pages of the book.
pub(crate) fn pages() -> Vec<String> {
    files("book/src", ".md")
}

/// Leaves the texts of links in a sentence, without where they lead.
pub(crate) fn without_links(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('[') {
        let Some((said, after)) = after.split_once(']') else { break };
        out += before;
        rest = after;
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        match target {
            Some((_, after)) => rest = after,
            // Rustdoc finds a name in backticks by itself; other brackets are not links.
            None if !said.starts_with('`') => {
                out = format!("{out}[{said}]");
                continue;
            }
            None => {}
        }
        out += said;
    }
    out + rest
}

#[test]
fn only_links_lose_their_brackets() {
    let text = "See [a](b.md), [`C`] and [`D`](e::D), not `#[derive(F)]`.";
    assert_eq!(without_links(text), "See a, `C` and `D`, not `#[derive(F)]`.");
}

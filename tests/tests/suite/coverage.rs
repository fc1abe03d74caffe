//! Which behaviours are tested, by the ids in the tests' comments.

#![expect(clippy::print_stdout, reason = "the line is the point")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The behaviours that must be tested by now.
const HELD: &str = "
    R1-R7 R11-R15 R18-R19 R22-R27 R32-R36 R38 R41 R45
    D1-D3 D5 D7-D9 D12
    S1-S4 S7 S9 S11
    I1-I5 I10 I13-I15
    Q1-Q9 Q14 Q16
    C1 C4 C5 C7 C9 C11 C16 C21-C24 C26 C28 C33
    M1 M2";

fn expand(list: &str) -> BTreeSet<String> {
    let ids = |entry: &str| match entry.split_once('-') {
        None => vec![entry.to_owned()],
        Some((first, last)) => {
            let number = |id: &str| id[1..].parse::<u32>().unwrap();
            (number(first)..=number(last)).map(|n| format!("{}{n}", &first[..1])).collect()
        }
    };
    list.split_whitespace().flat_map(ids).collect()
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|first| "RDSIQCWPLM".contains(first))
        && word.len() > 1
        && letters.all(|rest| rest.is_ascii_digit())
}

/// Collects the ids of comments that consist of ids alone, or start with them.
fn ids_in(code: &str) -> impl Iterator<Item = String> {
    let comments = code.lines().filter_map(|line| line.trim_start().strip_prefix("// "));
    comments.flat_map(|comment| {
        let words = comment.split([' ', ',', ':', ';', '·']).filter(|word| !word.is_empty());
        words.take_while(|word| is_id(word)).map(str::to_owned).collect::<Vec<_>>()
    })
}

fn collect(folder: &Path, found: &mut BTreeMap<String, u32>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for id in ids_in(&fs::read_to_string(&path).unwrap()) {
                *found.entry(id).or_default() += 1;
            }
        }
    }
}

#[test]
fn every_behaviour_that_must_hold_has_a_test_with_its_id() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for folder in ["runtime", "macros", "tests"] {
        collect(&root.join(folder), &mut found);
    }
    let held = expand(HELD);
    let missing: Vec<_> = held.iter().filter(|id| !found.contains_key(*id)).collect();
    println!(
        "behaviours tested by id: {} ({} of {} that must be)",
        found.len(),
        held.len() - missing.len(),
        held.len()
    );
    assert!(missing.is_empty(), "no test carries {missing:?}");
}

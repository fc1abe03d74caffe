//! The house rules: imports only point upwards, every file says what it is for, documents are true, English is plain.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod architecture;
mod imports;
mod sizes;
mod wordings;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A source file, and the module of lib.rs that it belongs to.
struct Room {
    path: PathBuf,
    module: String,
    code: String,
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn declared_modules() -> Vec<String> {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    let name = |line: &str| {
        let line = line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        Some(line.strip_prefix("mod ")?.trim_end_matches(';').to_owned())
    };
    lib.lines().filter_map(name).collect()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn rooms() -> Vec<Room> {
    let mut files = Vec::new();
    rust_files(&source(), &mut files);
    files.sort();
    let room = |path: PathBuf| {
        let within = path.strip_prefix(source()).unwrap();
        let first = within.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let code = fs::read_to_string(&path).unwrap();
        Room { module: first.trim_end_matches(".rs").to_owned(), code, path: within.to_owned() }
    };
    files.into_iter().map(room).filter(|room| room.module != "lib").collect()
}

/// The code without comments and tests; tests may import anything.
fn without_tests_and_comments(code: &str) -> String {
    let shipped = code.split("#[cfg(test)]").next().unwrap_or_default();
    shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The modules of this crate that some code names, by `crate::x` or inside `use crate::{..}`.
fn imported(code: &str, modules: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        for name in top_names(rest) {
            if modules.contains(&name) {
                found.insert(name);
            }
        }
    }
    found
}

fn top_names(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let (mut depth, mut names, mut start) = (0, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            _ if start && !c.is_whitespace() => {
                names.push(word(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    names
}

#[test]
fn modules_import_only_what_is_declared_above_them() {
    let modules = declared_modules();
    let place = |name: &str| modules.iter().position(|module| module == name);
    let mut wrong = Vec::new();
    for room in rooms() {
        let own = place(&room.module).unwrap_or_else(|| panic!("{} is not declared in lib.rs", room.module));
        for name in imported(&without_tests_and_comments(&room.code), &modules) {
            let faces = ["prelude", "__private"].contains(&room.module.as_str());
            if !faces && place(&name).is_some_and(|other| other > own) {
                wrong.push(format!("{} imports {name}, which is declared below it", room.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_two_files_import_each_other() {
    let crates = ["runtime", "macros", "apiserver", "trials", "tests"];
    let circles = crates.map(|name| imports::Crate::read(&root().join(name).join("src")).circles());
    let circles = circles.concat();
    assert!(circles.is_empty(), "{} circles:\n\n{}", circles.len(), circles.join("\n\n"));
}

#[test]
fn files_and_functions_are_short() {
    let folders = ["runtime", "macros", "apiserver", "trials", "tests", "benches"]
        .map(|name| root().join(name).join("src"));
    let long: Vec<_> = folders.iter().flat_map(|folder| sizes::too_long(folder)).collect();
    assert!(long.is_empty(), "split by what belongs together:\n{}", long.join("\n"));
}

#[test]
fn the_length_of_a_function_is_that_of_its_code() {
    let code = "trait A {\n    fn declared(&self);\n    fn of(&self)\n    where\n        Self: Sized,\n    {\n        if true {\n        }\n    }\n}\npub(in crate::a) async fn long(\n    a: u8,\n) {\n    a;\n}\nfn short() {}";
    let lines: Vec<_> = code.lines().collect();
    let wanted = [("of", 7), ("long", 5), ("short", 1)].map(|(name, length)| (name.to_owned(), length));
    assert_eq!(sizes::functions(&lines), wanted);
}

#[test]
fn every_file_opens_with_a_line_that_says_what_it_is_for() {
    let mut all = Vec::new();
    for folder in
        ["runtime", "macros", "apiserver", "trials", "examples", "tests", "benches", "book/listings"]
    {
        rust_files(&root().join(folder), &mut all);
    }
    let silent = |path: &&PathBuf| {
        let ui = path.components().any(|part| part.as_os_str() == "ui" || part.as_os_str() == "target");
        !ui && !fs::read_to_string(path).unwrap().starts_with("//! ")
    };
    let silent: Vec<_> = all.iter().filter(silent).collect();
    assert!(silent.is_empty(), "no `//!` line opens {silent:?}");
}

#[test]
fn arrows_that_may_never_exist_do_not() {
    let modules = declared_modules();
    let never = [
        ("reflector", &["delta_fifo", "store", "informer"][..]),
        ("informer", &["workqueue", "controller", "writes", "manager"][..]),
        ("workqueue", &["object", "list_watch", "store", "informer", "controller"][..]),
    ];
    for room in rooms() {
        let code = without_tests_and_comments(&room.code);
        let names = imported(&code, &modules);
        for (from, to) in never {
            let broken: Vec<_> = to.iter().filter(|to| room.module == from && names.contains(**to)).collect();
            assert!(broken.is_empty(), "{} imports {broken:?}", room.path.display());
        }
        if room.module == "workqueue" {
            assert!(!code.contains("kube::") && !code.contains("k8s_openapi"), "{}", room.path.display());
        }
        let clock = code.contains("std::time::Instant") || code.contains("SystemTime");
        assert!(
            !clock || room.module == "clock",
            "{} reads a clock that paused time does not stop",
            room.path.display()
        );
    }
}

#[test]
fn the_client_is_known_to_few() {
    let allowed = [
        "list_watch",
        "informer",
        "writes",
        "controller",
        "leader_election",
        // The test that a policy and a validator agree asks a server.
        "webhook",
        "manager",
        "error",
        "prelude",
        "__private",
    ];
    for room in rooms() {
        let knows = without_tests_and_comments(&room.code).contains("kube::Client");
        assert!(
            !knows || allowed.contains(&room.module.as_str()),
            "{} knows the client",
            room.path.display()
        );
    }
}

#[test]
fn the_runtime_and_the_embedded_server_do_not_know_each_other() {
    let manifest = |name: &str| fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    assert!(!manifest("runtime").contains("watchkeeper-apiserver"));
    for name in ["apiserver", "trials"] {
        let manifest = manifest(name).replace(&format!("name = \"watchkeeper-{name}\""), "");
        assert!(
            !manifest.contains("watchkeeper.workspace") && !manifest.contains("watchkeeper-macros"),
            "{name}"
        );
    }
    let macros = manifest("macros").replace("name = \"watchkeeper-macros\"", "").replace("description", "");
    assert!(!macros.contains("watchkeeper.workspace"));
}

#[test]
fn the_english_is_plain() {
    let found = wordings::find(root());
    let (limit, number) = (wordings::LIMIT, found.len());
    assert!(number <= limit, "{number} wordings, more than {limit}:\n{}", found.join("\n"));
}

#[test]
fn wordings_are_found_as_whole_words() {
    let found = |words: &[&str]| wordings::in_line(&words.join(" "));
    assert_eq!(found(&["/// A name that is", "no namespace"]), ["is no "]);
    assert_eq!(found(&["it is no longer here, and there is no other way"]), [""; 0]);
    assert_eq!(found(&["// It is", "told", "and told,", "and is", "told"]).len(), 2);
    assert_eq!(found(&["besides, the anewly beside_s"]), [""; 0]);
    assert_eq!(found(&["    // Of", "each kind, one. Of", "the rest, one. Office"]), ["Of", "Of"]);
}

#[test]
fn what_the_architecture_names_exists() {
    let dangling = architecture::dangling(root());
    assert!(dangling.is_empty(), "ARCHITECTURE.md names what is not there: {dangling:?}");
}

#[test]
fn a_definition_is_not_a_mention() {
    let code = "pub(crate) fn lines() {\n    // fn noted() {}\n    \"struct Quoted\"\n}\nstruct Frames<T>(T);\nenum A {\n    One,\n}";
    let found: Vec<_> = architecture::definitions(code).into_iter().collect();
    assert_eq!(found, ["A", "Frames", "One", "lines"]);
    assert_eq!(architecture::alternatives("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
}

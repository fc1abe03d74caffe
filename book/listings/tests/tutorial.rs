//! Each chapter of the tutorial, applied to the crate of the chapter before, gives the crate that is built here.
//!
//! The pages come first: `WATCHKEEPER_BLESS=1 cargo test -p watchkeeper-book-listings --test tutorial` writes the crates.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use watchkeeper_book_listings::{Edit, Files, Step, fences, script};

/// The widest line of a listing that a page shows without a scroll bar.
const WIDEST: usize = 84;

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The pages of the tutorial, as the summary orders them: file names and texts.
fn chapters() -> Vec<(String, String)> {
    let summary = fs::read_to_string(book().join("src/SUMMARY.md")).unwrap();
    let names = summary.lines().filter_map(|line| line.split_once("](tutorial/")?.1.strip_suffix(')'));
    names
        .map(|name| {
            let page = fs::read_to_string(book().join("src/tutorial").join(name));
            (name.to_owned(), page.unwrap_or_else(|error| panic!("{name}: {error}")))
        })
        .collect()
}

/// What `cargo new` makes, as far as the pages change it.
fn new_crate() -> Files {
    let manifest = "[package]\nname = \"websites\"\nedition = \"2024\"\n\n[dependencies]\n";
    [("Cargo.toml", manifest), ("src/main.rs", "")]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into()
}

fn edits(name: &str, page: &str) -> Vec<Edit> {
    let steps = script(page).unwrap_or_else(|error| panic!("{name}: {error}"));
    let edits = steps.into_iter().filter_map(|step| match step {
        Step::Edit(edit) => Some(edit),
        _ => None,
    });
    edits.collect()
}

/// The sources of a crate that is stored, by their paths in a crate.
fn stored(folder: &Path, under: &str, found: &mut Files) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = format!("{under}/{}", path.file_name().unwrap().display());
        match path.is_dir() {
            true => stored(&path, &name, found),
            false => drop(found.insert(name, fs::read_to_string(&path).unwrap())),
        }
    }
}

/// Writes the sources of a crate in place of those that are stored.
fn bless(folder: &Path, sources: &Files) {
    let _ = fs::remove_dir_all(folder);
    for (path, text) in sources {
        let path = folder.join(path.strip_prefix("src/").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[test]
fn each_chapter_makes_the_stored_crate_of_the_one_before() {
    let mut files = new_crate();
    for (at, (name, page)) in chapters().iter().enumerate() {
        for edit in edits(name, page) {
            edit.apply(&mut files).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let mut sources = files.clone();
        sources.retain(|path, _| path.starts_with("src/"));
        let folder = format!("tutorial/ch{:02}", at + 1);
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(&folder);
        if env::var_os("WATCHKEEPER_BLESS").is_some() {
            bless(&place, &sources);
        }
        let mut built = Files::new();
        stored(&place, "src", &mut built);
        for (path, text) in &sources {
            let differ = || text.lines().zip(built[path].lines()).find(|(page, built)| page != built);
            assert!(built.contains_key(path), "{name} makes {path}, which {folder} does not have");
            assert!(built[path] == *text, "{name} makes another {path} than {folder} has: {:#?}", differ());
        }
        let more: Vec<_> = built.keys().filter(|path| !sources.contains_key(*path)).collect();
        assert!(more.is_empty(), "{folder} has what {name} does not make: {more:?}");
    }
}

/// Applies a page, with what is tried and taken back; says what can't be applied.
fn follow(page: &str, files: &mut Files) -> Result<(), String> {
    let mut before = None;
    for step in script(page)? {
        match step {
            Step::Edit(edit) => edit.apply(files)?,
            Step::Try(edit) => {
                before.get_or_insert_with(|| files.clone());
                edit.apply(files)?;
            }
            Step::Undo => *files = before.take().ok_or("nothing is tried that could be taken back")?,
            _ => {}
        }
    }
    if before.is_some() { Err("something is tried and not taken back".to_owned()) } else { Ok(()) }
}

// `programs/tutorial.rs` also builds and runs what is tried.
#[test]
fn what_a_chapter_tries_can_be_applied_and_taken_back() {
    let mut files = new_crate();
    for (name, page) in chapters() {
        follow(&page, &mut files).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

// An answer that has code says what it does: it is built, and something is run.
#[test]
fn each_answer_with_code_is_tried_and_run() {
    let mut count = 0;
    for (name, page) in chapters() {
        let (_, exercises) =
            page.split_once("\n## Exercises\n").unwrap_or_else(|| panic!("{name}: no exercises"));
        for answer in exercises.split("<summary>Answer</summary>").skip(1) {
            let answer = answer.split("</details>").next().unwrap_or_default();
            if answer.contains("```rust") {
                count += 1;
                assert!(
                    answer.contains("<!-- run -->") && answer.contains("<!-- undo -->"),
                    "{name}: {answer}"
                );
            }
        }
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn no_listing_is_wider_than_the_page() {
    let mut wide = Vec::new();
    for (name, page) in chapters() {
        let listings =
            fences(&page).into_iter().filter(|fence| !["console", "text", "toml"].contains(&fence.language));
        let lines = listings.flat_map(|fence| fence.block.lines());
        wide.extend(lines.filter(|line| line.chars().count() > WIDEST).map(|line| format!("{name}: {line}")));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn each_chapter_leads_to_its_neighbours_and_to_the_reference() {
    let chapters = chapters();
    for (at, (name, page)) in chapters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| &chapters[at].0);
        for neighbour in before.into_iter().chain(chapters.get(at + 1).map(|(name, _)| name)) {
            assert!(page.contains(&format!("]({neighbour})")), "{name} has no link to {neighbour}");
        }
        assert!(page.contains("https://docs.rs/watchkeeper/"), "{name} has no link to docs.rs");
        assert!(page.contains("<details>"), "{name} has no exercise with an answer");
        assert!(page.starts_with(&format!("# {}. ", at + 1)), "{name} has another number");
    }
}

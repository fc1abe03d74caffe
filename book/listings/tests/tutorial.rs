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
    let mut files = Files::from([
        (
            "Cargo.toml".to_owned(),
            "[package]\nname = \"websites\"\nedition = \"2024\"\n\n[dependencies]\n".to_owned(),
        ),
        ("src/main.rs".to_owned(), String::new()),
    ]);
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

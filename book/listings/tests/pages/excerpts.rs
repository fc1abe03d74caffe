//! Each listing of README and the book is part of a file that is built.

use super::marked::{files, pages, read};

/// The lines of a text that have something in them, without indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The lines of a file that is built, without the modules of tests that are in other files.
fn built(text: &str) -> Vec<&str> {
    let all = lines(text);
    let of_tests = |at: usize| match all[at] {
        "#[cfg(test)]" => {
            all.get(at + 1).is_some_and(|next| next.starts_with("#[path") || next.ends_with(';'))
        }
        line if line.starts_with("#[path") => true,
        line if line.starts_with("mod ") && line.ends_with(';') => {
            at > 0 && (all[at - 1] == "#[cfg(test)]" || all[at - 1].starts_with("#[path"))
        }
        _ => false,
    };
    (0..all.len()).filter(|at| !of_tests(*at)).map(|at| all[at]).collect()
}

/// The Rust blocks of a page.
pub(crate) fn listings(page: &str) -> Vec<String> {
    let text = read(page);
    let after = text.split("```rust\n").skip(1);
    after.map(|after| after.split_once("```").expect("the block ends").0.to_owned()).collect()
}

fn is_part_of(listing: &[&str], file: &[&str]) -> bool {
    file.windows(listing.len().max(1)).any(|part| part == listing)
}

#[test]
fn an_excerpt_is_found_at_any_indentation_and_only_as_a_whole() {
    let file = lines("mod a {\n    fn b() {\n\n        c();\n    }\n}\n");
    assert!(is_part_of(&lines("fn b() {\n    c();\n}"), &file));
    assert!(!is_part_of(&lines("fn b() {\n}"), &file));
}

// The tutorial's pages have a check of their own: each is applied to the crate of the one before.
#[test]
fn each_listing_is_part_of_a_file_that_is_built() {
    let texts: Vec<String> = files("book/listings/src", ".rs").iter().map(|path| read(path)).collect();
    let files: Vec<Vec<&str>> = texts.iter().map(|text| built(text)).collect();
    let mut count = 0;
    let pages = pages().into_iter().filter(|page| !page.starts_with("book/src/tutorial/"));
    for page in pages.chain(["README.md".to_owned()]) {
        for listing in listings(&page) {
            let found = files.iter().any(|file| is_part_of(&lines(&listing), file));
            assert!(found, "{page} has a listing that no file below book/listings/src has:\n{listing}");
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn no_listing_is_wider_than_the_page() {
    for page in pages() {
        for listing in listings(&page) {
            let wide = listing.lines().find(|line| line.chars().count() > 90);
            assert_eq!(wide, None, "{page}");
        }
    }
}

#[test]
fn each_page_says_what_kind_of_page_it_is() {
    for (folder, kind) in [
        ("how-to", "*How-to.*"),
        ("explain", "*Explanation.*"),
        ("reference", "*Reference.*"),
        ("coming-from", "*How-to.*"),
    ] {
        for page in files(&format!("book/src/{folder}"), ".md") {
            let text = read(&page);
            let second = text.lines().nth(2).unwrap_or_default();
            assert!(second.starts_with(kind), "{page} does not begin with {kind}");
        }
    }
}

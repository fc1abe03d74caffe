//! `AGENTS.md` and `llms.txt` are made of the documents that people read.

use super::marked::{assert_is, read, without_links};

const BOOK: &str = "https://github.com/watchkeeper/watchkeeper/blob/main/book/src/";

/// The part of a document below a heading.
fn section(document: &str, heading: &str) -> String {
    let text = read(document);
    let (_, rest) =
        text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{document}: {heading}"));
    rest.split("\n## ").next().unwrap().trim().to_owned()
}

/// The paragraph of a document that begins with a word in bold.
fn paragraph(document: &str, bold: &str) -> String {
    let text = read(document);
    let start = format!("**{bold}.**");
    let found = text.split("\n\n").find(|paragraph| paragraph.trim_start().starts_with(&start));
    found.unwrap_or_else(|| panic!("{document} has no {start}")).trim().to_owned()
}

#[test]
fn the_page_for_programs_that_write_code_is_made_of_the_documents_for_people() {
    let paragraphs = ["Code", "Tests", "English", "Documentation", "Commits"];
    let rules = paragraphs.map(|bold| paragraph("CONTRIBUTING.md", bold)).join("\n\n");
    let text = format!(
        "# Working on this repository\n\n\
         Made of CONTRIBUTING.md and ARCHITECTURE.md by `cargo test -p watchkeeper-book-listings --test pages`: \
         change those.\n\n\
         ## Commands\n\n```sh\n\
         cargo test --workspace               # all tests, without a cluster\n\
         cargo test -p watchkeeper --test house   # rules for files and English\n\
         cargo fmt --all && cargo clippy --workspace --all-targets -- -D warnings\n\
         .ci/run                              # what CI runs on each push; --full adds the slow checks\n```\n\n\
         ## Rules\n\n{rules}\n\n\
         ## Rules that a test checks\n\n{}\n\n\
         ## Where to start\n\n{}\n\n\
         ## Invariants, as absences\n\n{}\n",
        section("ARCHITECTURE.md", "Rules that a test checks"),
        section("ARCHITECTURE.md", "Entry points"),
        section("ARCHITECTURE.md", "Invariants, as absences"),
    );
    assert_is("AGENTS.md", &text);
}

/// What a page is about: its first sentence, without the word that says which kind of page it is.
fn about(page: &str) -> String {
    let text = read(&format!("book/src/{page}"));
    let paragraph = text.split("\n\n").nth(1).unwrap_or_default().replace('\n', " ");
    let said = paragraph.split_once(".* ").map_or(&*paragraph, |(_, said)| said);
    let said = without_links(said);
    said.split_once(". ").map_or(said.clone(), |(first, _)| format!("{first}."))
}

#[test]
fn the_list_of_pages_is_that_of_the_book() {
    let readme = read("README.md");
    let what = readme.split("\n\n").nth(1).unwrap().replace('\n', " ");
    let mut text = format!("# watchkeeper\n\n> {what}\n");
    for line in read("book/src/SUMMARY.md").lines() {
        if let Some(part) = line.strip_prefix("# ").filter(|part| *part != "Summary") {
            text += &format!("\n## {part}\n\n");
        } else if let Some((title, rest)) =
            line.trim_start_matches([' ', '-']).strip_prefix('[').and_then(|line| line.split_once("]("))
        {
            let page = rest.trim_end_matches(')');
            text += &format!("- [{title}]({BOOK}{page}): {}\n", about(page));
        }
    }
    text += "\n## API\n\n- [rustdoc](https://docs.rs/watchkeeper): types and functions, with an example on each central type\n";
    assert_is("llms.txt", &text);
}

//! What README and the book print is what is built here.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks of a page in a language, in their order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = read(page);
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    after.map(|after| after.split_once("```").expect("the block ends").0.to_owned()).collect()
}

/// Leaves out the modules of tests in other files, which no page prints.
fn without_tests_beside(program: &str) -> String {
    let (mut out, mut lines) = (String::new(), program.lines().peekable());
    while let Some(line) = lines.next() {
        let of_tests = line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("#[path") || next.ends_with(';'));
        if !of_tests {
            out += &format!("{line}\n");
            continue;
        }
        while lines.next().is_some_and(|next| next.starts_with("#[")) {}
        // One blank line stood before them, another one after.
        if out.ends_with("\n\n") && lines.peek() == Some(&"") {
            lines.next();
        }
    }
    out
}

#[test]
fn tests_in_other_files_are_not_printed() {
    let program = "//! A.\n\n#[cfg(test)]\nmod one;\n#[cfg(test)]\n#[path = \"b/two.rs\"]\nmod two;\n\nuse a;\n\n#[cfg(test)]\nmod tests {\n}\n";
    assert_eq!(without_tests_beside(program), "//! A.\n\nuse a;\n\n#[cfg(test)]\nmod tests {\n}\n");
}

/// Says where two texts differ first.
fn assert_same(printed: &str, built: &str, page: &str, listing: &str) {
    let differ = printed.lines().zip(built.lines()).find(|(printed, built)| printed != built);
    assert!(
        printed == built,
        "the blocks of {page} are not {listing}; the first lines that differ: {differ:#?}"
    );
}

// `pages/excerpts.rs` looks for the blocks themselves.
#[test]
fn readme_prints_a_whole_reconciler_of_the_program_that_it_links_to() {
    let blocks = blocks("README.md", "rust");
    let reconciler = blocks.iter().find(|block| block.contains("impl Reconciler<Website>")).unwrap();
    assert!(reconciler.lines().count() <= 25, "{reconciler}");
    assert!(reconciler.ends_with("    }\n}\n"), "{reconciler}");
    assert!(read("README.md").contains("](book/listings/src/bin/operator.rs)"));
}

#[test]
fn the_blocks_of_some_pages_are_a_whole_file_that_is_built() {
    let pages = [
        ("how-to/reads", "proxies"),
        ("how-to/replicas", "operator/replicas"),
        ("how-to/health", "operator/health"),
        ("how-to/versions", "markets"),
        ("how-to/program", "program"),
        ("how-to/policies", "piers"),
    ];
    for (page, listing) in pages {
        let (page, listing) = (format!("book/src/{page}.md"), format!("book/listings/src/bin/{listing}.rs"));
        let built = without_tests_beside(&read(&listing));
        assert_same(&blocks(&page, "rust").join("\n"), &built, &page, &listing);
    }
}

/// Lists the pages in a folder and the folders in it.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

// Readers on a code host see what mdBook shows.
#[test]
fn no_page_shows_a_directive_in_place_of_code() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src");
    for page in pages_below(&book) {
        let text = fs::read_to_string(&page).unwrap();
        assert!(!text.contains("{{#"), "{} has a directive of mdBook", page.display());
    }
}

// What is pasted from README compiles with the crates that README names, and with no others.
#[test]
fn the_crates_that_readme_names_are_those_that_its_program_uses() {
    let named = |line: &str| Some(line.split_once(" = ")?.0.replace('-', "_"));
    let block = &blocks("README.md", "toml")[0];
    let dependencies = block.split("[dev-dependencies]").next().unwrap();
    let dependencies: BTreeSet<String> = dependencies.lines().filter_map(named).collect();
    let program = read("book/listings/src/bin/operator.rs");
    // The derives of the prelude name these themselves.
    let of_derives = ["kube", "schemars", "serde", "serde_json"];
    for krate in &dependencies {
        let used = program.contains(&format!("{krate}::")) || of_derives.contains(&krate.as_str());
        assert!(used, "{krate} is named and not used");
    }
    for krate in of_derives.into_iter().chain(["k8s_openapi", "tokio", "tracing_subscriber", "watchkeeper"]) {
        assert!(dependencies.contains(krate), "{krate} is used and not named");
    }
}

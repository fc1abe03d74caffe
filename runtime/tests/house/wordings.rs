//! Wordings that make readers stop: counted in comments, texts and documents.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Most wordings in the whole repository. Lower it when fewer are left.
pub(crate) const LIMIT: usize = 30;

/// Folders and files whose text is written here, below the root of the repository.
const SEARCHED: [&str; 15] = [
    "runtime",
    "macros",
    "apiserver",
    "trials",
    "tests",
    "benches",
    "examples",
    "book",
    "fuzz",
    "template",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
];

/// Names of folders that hold what tools made or what other people wrote.
const LEFT_OUT: [&str; 3] = ["target", "corpus", "results"];

/// Phrases that are counted wherever they are whole words.
const PHRASES: [&str; 8] =
    ["whoever", "anew", "so many", "take note", "takes note", "beside", "of which", "had better"];

/// First and second words that are counted when they follow each other.
const PAIRS: [(&[&str], &[&str]); 3] = [
    (&["is", "are", "was", "gets", "get"], &["told"]),
    (&["nobody", "nothing"], &["who", "that"]),
    (&["stands"], &["before", "above", "below", "for itself", "in", "there"]),
];

/// What may follow "is no": these are common expressions.
const AFTER_NO: [&str; 8] = ["longer", "more", "other", "such", "one", "need", "way", "doubt"];

/// What follows "Of" at the start of a sentence whose subject comes too late.
const AFTER_OF: [&str; 11] =
    ["all", "each", "one", "what", "whatever", "several", "those", "a", "an", "the", "its"];

/// Lists every wording below a root, as `file:line: wording`.
pub(crate) fn find(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for name in SEARCHED {
        collect(&root.join(name), &mut files);
    }
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let is_code = file.extension().is_some_and(|extension| extension == "rs");
        let text = fs::read_to_string(&file).unwrap();
        for (at, line) in text.lines().enumerate() {
            if !is_code || line.contains("//") || line.contains('"') {
                let place = file.strip_prefix(root).unwrap().display();
                found.extend(in_line(line).iter().map(|wording| format!("{place}:{}: {wording}", at + 1)));
            }
        }
    }
    found
}

/// Adds a file, or the files of a folder, if they hold prose.
fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && !LEFT_OUT.contains(&&*name) {
            for entry in fs::read_dir(path).unwrap() {
                collect(&entry.unwrap().path(), files);
            }
        }
    } else if path
        .extension()
        .is_some_and(|extension| extension == "rs" || extension == "md" || extension == "txt")
        && path.exists()
    {
        // This list is the one file that must name the wordings.
        files.extend((!path.ends_with("house/wordings.rs")).then(|| path.to_owned()));
    }
}

/// Lists the wordings of one line.
pub(crate) fn in_line(line: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut count = |phrase: String, ends: &dyn Fn(&str) -> bool| {
        for (at, _) in line.match_indices(&phrase) {
            let before = line[..at].chars().next_back();
            if !before.is_some_and(is_of_word) && ends(&line[at + phrase.len()..]) {
                found.push(phrase.clone());
            }
        }
    };
    let whole = |after: &str| !after.starts_with(is_of_word);
    PHRASES.iter().for_each(|phrase| count((*phrase).to_owned(), &whole));
    for (firsts, seconds) in PAIRS {
        for first in firsts {
            seconds.iter().for_each(|second| count(format!("{first} {second}"), &whole));
        }
    }
    for verb in ["is", "are", "was", "were"] {
        let odd = |after: &str| {
            let next = first_word(after);
            next.starts_with(|letter: char| letter.is_ascii_lowercase()) && !AFTER_NO.contains(&next)
        };
        count(format!("{verb} no "), &odd);
    }
    for opening in ["// Of ", "/// Of ", "//! Of ", ". Of "] {
        for (at, _) in line.match_indices(opening) {
            let is_part = line[..at].ends_with('/');
            if !is_part && AFTER_OF.contains(&first_word(&line[at + opening.len()..])) {
                found.push("Of".to_owned());
            }
        }
    }
    found
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn first_word(text: &str) -> &str {
    text.split(|letter| !is_of_word(letter)).next().unwrap_or_default()
}

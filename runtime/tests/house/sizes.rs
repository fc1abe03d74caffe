//! How long files and functions are: lines of code, without comments, blank lines and tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{imports::without_tests, rust_files};

/// Most lines of code of a file.
const OF_A_FILE: usize = 600;

/// Most lines of code of a function, its signature included.
const OF_A_FUNCTION: usize = 80;

/// Lists what is longer than it may be in a folder of sources.
pub(crate) fn too_long(sources: &Path) -> Vec<String> {
    let mut files = Vec::new();
    rust_files(sources, &mut files);
    files.sort();
    let tests = |path: &PathBuf| super::imports::is_test(path.strip_prefix(sources).unwrap());
    files.iter().filter(|path| !tests(path)).flat_map(|path| too_long_in(path)).collect()
}

fn too_long_in(path: &Path) -> Vec<String> {
    let code = without_tests(&fs::read_to_string(path).unwrap());
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut found = Vec::new();
    if lines.len() > OF_A_FILE {
        found.push(format!("{} has {} lines of code, more than {OF_A_FILE}", path.display(), lines.len()));
    }
    for (name, length) in functions(&lines).into_iter().filter(|(_, length)| *length > OF_A_FUNCTION) {
        found.push(format!("{}: `{name}` has {length} lines, more than {OF_A_FUNCTION}", path.display()));
    }
    found
}

/// Lists the functions with a body, and how long they are; the code is formatted, so that indentation tells.
pub(crate) fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let begins = lines.iter().enumerate().filter_map(|(at, line)| Some((at, function_name(line)?)));
    begins.filter_map(|(at, name)| Some((name, length(&lines[at..])?))).collect()
}

fn function_name(line: &str) -> Option<String> {
    let (before, after) = line.split_once("fn ")?;
    let is_qualifier = |word: &str| ["const", "async", "pub"].contains(&word) || word.starts_with("pub(");
    let in_place =
        |word: &str| ["in", "crate::"].iter().any(|part| word.starts_with(part)) || word.ends_with(')');
    before
        .split_whitespace()
        .all(|word| is_qualifier(word) || in_place(word))
        .then(|| after.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect())
}

/// Counts the lines of the function that begins here; `None` for a declaration without a body.
fn length(lines: &[&str]) -> Option<usize> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let own = indentation(lines[0]);
    let opens = lines.iter().position(|line| line.ends_with(['{', ';', '}']))?;
    match lines[opens] {
        line if line.ends_with(';') => None,
        line if line.ends_with('}') => Some(opens + 1),
        _ => Some(lines.iter().position(|line| indentation(line) == own && line.trim() == "}")? + 1),
    }
}

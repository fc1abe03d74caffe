//! The behaviours that must hold, and the tests that carry their ids.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// The list of behaviours, one a line.
const LIST: &str = include_str!("../behaviours.txt");

/// The folders of tests.
const FOLDERS: [&str; 6] = ["runtime", "macros", "apiserver", "trials", "tests", "examples"];

/// Names a behaviour: a family and a number, such as `R12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// The letter of its family.
    pub family: char,
    /// Its number in the family.
    pub number: u32,
}

impl Id {
    /// Reads an id; `None` for any other word.
    pub fn of(word: &str) -> Option<Self> {
        let family = word.chars().next().filter(|letter| "RDSIQCWPLMATH".contains(*letter))?;
        let number = &word[1..];
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| number.parse().ok()).flatten().map(|number| Self { family, number })
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.family, self.number)
    }
}

/// Returns whether a behaviour must have a test by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// The suite fails without one.
    Now,
    /// It is promised for later.
    Later,
}

/// One line of the list.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Its name.
    pub id: Id,
    /// Whether it must be tested by now.
    pub demand: Demand,
    /// Its text.
    pub claim: &'static str,
}

/// Reads the list, in its order.
///
/// # Panics
/// At a line that is neither a behaviour nor a remark.
pub fn listed() -> Vec<Behaviour> {
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| behaviour(line).unwrap_or_else(|| panic!("no behaviour: {line:?}"))).collect()
}

fn behaviour(line: &'static str) -> Option<Behaviour> {
    let (demand, rest) = line.split_once(' ')?;
    let demand = match demand {
        "+" => Demand::Now,
        "-" => Demand::Later,
        _ => return None,
    };
    let (id, claim) = rest.split_once(' ')?;
    Some(Behaviour { id: Id::of(id)?, demand, claim })
}

/// A test that carries an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The test's function.
    pub test: String,
    /// The file, as from the repository's root.
    pub file: PathBuf,
    /// The line of the function, from 1.
    pub line: usize,
}

/// Collects the tests of the repository by the ids in the comments above them.
///
/// # Errors
/// A source file can't be read.
pub fn proofs() -> io::Result<BTreeMap<Id, Vec<Proof>>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let mut found = BTreeMap::<Id, Vec<Proof>>::new();
    for folder in FOLDERS {
        for file in sources(&root.join(folder))? {
            let name = file.strip_prefix(root).unwrap_or(&file).to_owned();
            for (id, test, line) in claims(&fs::read_to_string(&file)?) {
                found.entry(id).or_default().push(Proof { test, file: name.clone(), line });
            }
        }
    }
    Ok(found)
}

fn sources(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file's claims: the ids that open a comment right above a test, the test's name and its line.
///
/// Between the two may stand attributes and more comments. A test has an attribute that says so, or takes a
/// stage, as those of the end-to-end suite do.
fn claims(code: &str) -> Vec<(Id, String, usize)> {
    let (mut claims, mut ids, mut is_test) = (Vec::new(), Vec::new(), false);
    for (at, line) in code.lines().map(str::trim).enumerate() {
        match (line.strip_prefix("//"), function(line)) {
            (Some(comment), _) => ids.extend(ids_of(comment)),
            (None, _) if line.starts_with("#[") => is_test |= line.contains("test"),
            (None, Some(name)) => {
                let is_test = std::mem::take(&mut is_test) || line.contains("Stage)");
                claims.extend(ids.drain(..).filter(|_| is_test).map(|id| (id, name.to_owned(), at + 1)));
            }
            (None, None) => {
                ids.clear();
                is_test = false;
            }
        }
    }
    claims
}

/// Reads the ids that a comment starts with.
fn ids_of(comment: &str) -> impl Iterator<Item = Id> {
    let words = comment.split([' ', ',', ':', ';', '·']).filter(|word| !word.is_empty());
    words.map_while(Id::of)
}

fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

/// Lists the behaviours of some families (none: of all) that no test carries.
pub fn missing(families: &str, proofs: &BTreeMap<Id, Vec<Proof>>) -> Vec<Behaviour> {
    let asked = |behaviour: &Behaviour| families.is_empty() || families.contains(behaviour.id.family);
    listed().into_iter().filter(|one| asked(one) && !proofs.contains_key(&one.id)).collect()
}

/// Writes the table: each behaviour of some families (none: of all), and the tests that carry its id.
pub fn table(families: &str, proofs: &BTreeMap<Id, Vec<Proof>>) -> String {
    let mut out = String::new();
    let asked = |one: &Behaviour| families.is_empty() || families.contains(one.id.family);
    let asked: Vec<_> = listed().into_iter().filter(asked).collect();
    // Writing to a String does not fail.
    for Behaviour { id, claim, .. } in &asked {
        let _ = writeln!(out, "{id} {claim}");
        for Proof { test, file, line } in proofs.get(id).into_iter().flatten() {
            let _ = writeln!(out, "    {test} ({}:{line})", file.display());
        }
    }
    let missing = missing(families, proofs);
    let names: Vec<_> = missing.iter().map(|one| one.id.to_string()).collect();
    let _ = match missing.is_empty() {
        true => writeln!(out, "\n{} behaviours: none missing", asked.len()),
        false => {
            writeln!(out, "\n{} behaviours, {} without a test: {}", asked.len(), names.len(), names.join(" "))
        }
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: &str) -> Vec<String> {
        claims(code).into_iter().map(|(id, test, line)| format!("{id} {test} {line}")).collect()
    }

    #[test]
    fn a_comment_right_above_a_test_counts_and_no_other() {
        assert_eq!(
            read("// R1 R2, and why\n#[test]\nfn a() {\n    // R3\n    let b = 1;\n}\n"),
            ["R1 a 3", "R2 a 3"]
        );
        assert_eq!(
            read("// Q1\n// A remark.\n#[tokio::test(start_paused = true)]\nasync fn b() {"),
            ["Q1 b 4"]
        );
        assert_eq!(read("// I8: says the code\nfn not_a_test() {}\n"), [""; 0]);
        assert_eq!(read("// S1\n\n#[test]\nfn far_away() {}\n"), [""; 0]);
        assert_eq!(read("// C2\nasync fn on_a_server(stage: Stage) {"), ["C2 on_a_server 2"]);
        assert_eq!(read("// Remarks about R1\n#[test]\nfn c() {}"), [""; 0]);
    }

    #[test]
    fn the_list_is_in_order_and_names_each_behaviour_once() {
        let ids: Vec<_> = listed().iter().map(|one| one.id).collect();
        let families: String = ids
            .iter()
            .map(|id| id.family)
            .collect::<Vec<_>>()
            .chunk_by(|a, b| a == b)
            .map(|family| family[0])
            .collect();
        assert_eq!(families, "RDSIQCWPLHMAT");
        let after = |pair: &[Id]| pair[0].family != pair[1].family || pair[0].number < pair[1].number;
        let unordered: Vec<_> = ids.windows(2).filter(|pair| !after(pair)).collect();
        assert!(unordered.is_empty(), "{unordered:?}");
    }
}

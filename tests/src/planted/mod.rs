//! Bugs that are planted on purpose, one at a time, to see that the tests that claim a rule find its breach.
//!
//! Each is a file of `tests/planted`, whose README tells its form. `cargo run --bin planted` runs them.

mod bug;
mod copy;
mod place;
mod trial;

pub use bug::{Bug, Flaw, TestTarget};
pub use copy::Copy;
pub use trial::{Outcome, Trials};

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::behaviours::proofs;

/// How many bugs the checks plant on one day.
pub const A_DAY: usize = 4;

/// Returns the repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}

/// Reads every bug of `tests/planted`, sorted by the tests that must find it, then by name.
///
/// # Errors
/// The folder or a file can't be read, or a file has another form.
pub fn bugs() -> io::Result<Vec<Bug>> {
    let mut bugs = Vec::new();
    for entry in fs::read_dir(root().join("tests/planted"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "bug") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            bugs.push(Bug::read(&name, &fs::read_to_string(&path)?).map_err(io::Error::other)?);
        }
    }
    bugs.sort_by(|one, other| (one.target, &one.name).cmp(&(other.target, &other.name)));
    Ok(bugs)
}

/// Says what is wrong with some bugs: places that the code no longer has, tests that claim none of the behaviours.
///
/// # Errors
/// A source file can't be read.
pub fn flaws(bugs: &[Bug]) -> io::Result<Vec<String>> {
    let proofs = proofs()?;
    let mut flaws = Vec::new();
    for bug in bugs {
        flaws.extend(bug.planted(&root()).err().map(|flaw| flaw.to_string()));
        let claimed = |test: &String| {
            bug.ids.iter().flat_map(|id| proofs.get(id)).flatten().any(|proof| proof.test == *test)
        };
        let strange = bug.tests.iter().filter(|test| !claimed(test));
        flaws.extend(strange.map(|test| format!("{}: no test {test} claims what it breaks", bug.name)));
    }
    Ok(flaws)
}

/// Takes the few whose turn it is on a day, counted from 1970: all have theirs, in turn.
pub fn of_the_day(bugs: Vec<Bug>, day: u64) -> Vec<Bug> {
    let turns = bugs.len().div_ceil(A_DAY).max(1) as u64;
    let turn = usize::try_from(day % turns).unwrap_or_default();
    bugs.into_iter().skip(turn * A_DAY).take(A_DAY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_has_its_day() {
        let bugs: Vec<Bug> = (0..10)
            .map(|at| Bug::read(&format!("{at:02}"), "R1: no\nfound by: lib a\n\nfn a\n-a\n+b\n").unwrap())
            .collect();
        let names = |day| of_the_day(bugs.clone(), day).into_iter().map(|bug| bug.name).collect::<Vec<_>>();
        assert_eq!(names(0), ["00", "01", "02", "03"]);
        assert_eq!(names(2), ["08", "09"]);
        assert_eq!((0..3).flat_map(names).count(), 10);
        assert_eq!(names(3), names(0));
        assert!(of_the_day(Vec::new(), 7).is_empty());
    }
}

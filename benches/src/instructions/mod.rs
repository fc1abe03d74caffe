//! Counts the instructions of eight hot paths, and compares them with the baseline that is committed.
//!
//! A count says nothing about time, but it is the same on a busy machine: a path that slowly decays shows, whatever else runs.
//! Each path runs twice under callgrind, in one thread, with few and with many rounds: the difference is what a round costs.

mod baseline;
mod paths;
mod server;

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

pub(crate) use paths::{Path, run};

use baseline::Baseline;

/// How much more than its baseline a path may take: compilers and C libraries differ by less.
const TOLERATED: f64 = 1.1;

/// What becomes of the counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They are compared with the baseline.
    Compare,
    /// They become the baseline.
    Save,
}

/// Counts all paths and prints them.
///
/// # Errors
/// A path takes a tenth more instructions than its baseline, or valgrind is missing.
pub(crate) fn count(purpose: Purpose) -> anyhow::Result<()> {
    let mut baseline = Baseline::read()?;
    let mut decayed = Vec::new();
    println!("{:<22} {:>12} {:>12}", "instructions a round", "baseline", "now");
    for path in Path::ALL {
        let now = a_round(path)?;
        let before = baseline.of(path.name());
        let shown = before.map_or_else(|| "-".to_owned(), |before| before.to_string());
        println!("{:<22} {shown:>12} {now:>12}", path.name());
        match purpose {
            Purpose::Save => baseline.set(path.name(), now),
            Purpose::Compare if before.is_none_or(|before| now as f64 > before as f64 * TOLERATED) => {
                decayed.push(path.name());
            }
            Purpose::Compare => {}
        }
    }
    if purpose == Purpose::Save {
        return baseline.write();
    }
    if decayed.is_empty() {
        return Ok(());
    }
    bail!(
        "more than a tenth above the baseline: {}. Find the cause (`valgrind --tool=callgrind`), or accept it: \
         `cargo run --release -p watchkeeper-benches -- instructions --save`",
        decayed.join(", ")
    )
}

/// Returns how many instructions one round of a path takes.
fn a_round(path: Path) -> anyhow::Result<u64> {
    let (few, many) = (path.rounds(), 3 * path.rounds());
    let spent = collected(path, many)?.saturating_sub(collected(path, few)?);
    Ok(spent / (many - few))
}

/// Runs a path under callgrind, and reads how many instructions it took in all.
fn collected(path: Path, rounds: u64) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["path", path.name(), &rounds.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("valgrind counts the instructions, and can't be run: install it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let total = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.with_context(|| format!("{} was not counted: {said}", path.name()))
}

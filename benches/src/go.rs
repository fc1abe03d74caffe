//! Builds the program of Go's peers, once for each state of its sources.

use std::{
    hash::{DefaultHasher, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the program, built if need be.
///
/// # Errors
/// In words: there is no Go, or it does not build.
pub(crate) fn build() -> Result<PathBuf, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/go");
    let state = state_of(&sources).map_err(|error| format!("{}: {error}", sources.display()))?;
    let folder = target_folder().ok_or("the bench runs from no target folder")?;
    let program = folder.join(format!("watchkeeper-benches-go-{state:016x}"));
    if program.exists() {
        return Ok(program);
    }
    println!("building the program of Go's peers: some minutes the first time");
    let built =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(&sources).output();
    let output = built.map_err(|error| format!("go can't be run: {error}"))?;
    match output.status.success() {
        true => Ok(program),
        false => Err(format!("go build failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn target_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

fn state_of(sources: &Path) -> std::io::Result<u64> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(sources)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(&std::fs::read(file)?);
    }
    Ok(hasher.finish())
}

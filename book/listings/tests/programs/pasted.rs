//! What README prints works in a new crate in an empty folder, with the crates that it names.
//!
//! It builds crates, so it is left out unless asked for: `cargo test --workspace --test programs -- --ignored`. What these
//! are made of is built in the target folder of the workspace, by the versions of its lock file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::time::Instant;

use super::{
    packages::UNPACKED,
    printed::{self, Folder},
    repository::{self, blocks, root, target},
};

/// Runs cargo in a folder, as a user would whose registry has the crates as they would be published.
pub(crate) fn cargo_with_this_watchkeeper(folder: &Path, arguments: &[&str]) {
    let mut cargo = repository::cargo(folder);
    for (krate, path) in &*UNPACKED {
        cargo.arg("--config").arg(format!("patch.crates-io.{krate}.path={path:?}"));
    }
    let began = Instant::now();
    let output = cargo.args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "cargo {arguments:?}\n{out}\n{err}");
    println!("  cargo {}: {:.1} s", arguments.join(" "), began.elapsed().as_secs_f64());
}

/// Makes a crate in an empty folder; in its manifest stands the block that README prints.
fn new_crate(folder: &Path, name: &str, block: &str) -> PathBuf {
    cargo_with_this_watchkeeper(folder, &["new", "--quiet", "--vcs", "none", name]);
    let krate = folder.join(name);
    let manifest = fs::read_to_string(krate.join("Cargo.toml")).unwrap();
    let pasted = manifest.replace("[dependencies]\n", block);
    assert!(pasted != manifest, "cargo writes another manifest now: {manifest}");
    fs::write(krate.join("Cargo.toml"), pasted).unwrap();
    repository::as_published(&krate.join("Cargo.toml"));
    fs::copy(root().join("Cargo.lock"), krate.join("Cargo.lock")).unwrap();
    krate
}

/// Builds and tests a crate, and runs its program with arguments.
pub(crate) async fn works(krate: &Path, arguments: &[&str]) {
    cargo_with_this_watchkeeper(krate, &["build", "--all-targets"]);
    cargo_with_this_watchkeeper(krate, &["test"]);
    let program = krate.file_name().unwrap();
    let [served, made, healed] = printed::runs(&target().join("debug").join(program), arguments).await;
    println!("  definition served after {served:?}, child made after {made:?}, made again after {healed:?}");
}

#[tokio::test]
#[ignore = "builds crates"]
async fn what_readme_prints_works_in_a_new_crate_in_an_empty_folder() {
    let folder = Folder::empty();
    let block = &blocks("README.md", "toml")[0];
    println!("README");
    let readme = new_crate(folder.path(), "pasted-readme", block);
    // README prints the reconciler, and links to the file that it is part of.
    fs::copy(root().join("book/listings/src/bin/operator.rs"), readme.join("src/main.rs")).unwrap();
    let main = fs::read_to_string(readme.join("src/main.rs")).unwrap();
    fs::write(readme.join("src/main.rs"), without_tests(&main)).unwrap();
    works(&readme, &[]).await;
}

/// Leaves out the modules of tests in other files.
fn without_tests(program: &str) -> String {
    let mut kept = String::new();
    let mut lines = program.lines();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            while lines.next().is_some_and(|next| next.starts_with("#[")) {}
        } else {
            kept += &format!("{line}\n");
        }
    }
    kept
}

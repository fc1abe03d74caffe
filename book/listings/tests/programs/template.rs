//! The template becomes an operator that works: by `cp` and `sed`, as README says, and by `cargo generate`.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    pasted::{cargo_with_this_watchkeeper, works},
    printed::Folder,
    repository::{as_published, blocks, root},
};

/// The lines of README that copy the template.
fn copy_lines() -> String {
    let shell = blocks("README.md", "sh").into_iter().find(|block| block.starts_with("cp -r template "));
    shell.expect("README copies the template")
}

/// Runs lines in a folder that has the template, as a clone of the repository has it.
fn shell(folder: &Path, lines: &str) {
    let output =
        Command::new("sh").args(["-ec", lines]).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{lines}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Says which files of a folder still have a placeholder.
fn with_placeholders(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(with_placeholders(&path)),
            false if fs::read_to_string(&path).unwrap().contains("{{") => {
                found.push(path.display().to_string())
            }
            false => {}
        }
    }
    found
}

#[tokio::test]
#[ignore = "builds crates"]
async fn the_template_becomes_an_operator_that_works() {
    let folder = Folder::empty();
    fs::create_dir(folder.path().join("clone")).unwrap();
    let clone = folder.path().join("clone");
    shell(&root(), &format!("cp -r template Cargo.toml '{}'", clone.display()));
    shell(&clone, &copy_lines());
    let operator = folder.path().join("my-operator");
    assert_eq!(with_placeholders(&operator), [""; 0]);
    fs::copy(root().join("Cargo.lock"), operator.join("Cargo.lock")).unwrap();
    as_published(&operator.join("Cargo.toml"));
    println!("template, copied");
    cargo_with_this_watchkeeper(&operator, &["fmt", "--check"]);
    // Other programs of this machine may use its port.
    works(&operator, &["--http", "off"]).await;

    // The same files, whichever way they were made.
    if Command::new("cargo-generate").arg("--version").output().is_err() {
        println!("template, generated: NOT RUN: cargo-generate is not on the PATH");
        return;
    }
    println!("template, generated");
    let generated = folder.path().join("generated");
    fs::create_dir(&generated).unwrap();
    let template = root().join("template");
    let line =
        format!("cargo generate --path '{}' --name my-operator --vcs none --silent", template.display());
    shell(&generated, &line);
    as_published(&generated.join("my-operator/Cargo.toml"));
    fs::remove_file(operator.join("Cargo.lock")).unwrap();
    let _ = fs::remove_file(operator.join("cargo-generate.toml"));
    let same = Command::new("diff")
        .args(["-r", "my-operator"])
        .arg(&operator)
        .current_dir(&generated)
        .output()
        .unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
}

#[test]
fn the_template_names_crates_that_readme_names() {
    let manifest = fs::read_to_string(root().join("template/Cargo.toml")).unwrap();
    let (_, dependencies) = manifest.split_once("[dependencies]\n").unwrap();
    // Its commands and its log are one feature.
    let own = "watchkeeper = { git = \"https://github.com/watchkeeper/watchkeeper\", features = [\"cli\"] }";
    assert!(dependencies.starts_with(own), "{dependencies}");
    let readme = &blocks("README.md", "toml")[0];
    for line in dependencies.lines().skip(1) {
        assert!(readme.lines().any(|named| named == line), "{line}");
    }
}

//! The repository that this was built in: its pages, and cargo as a user has it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a page in a language, in their order.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    after.map(|after| after.split_once("```").expect("the block ends").0.to_owned()).collect()
}

/// The target folder in which this was built.
pub(crate) fn target() -> PathBuf {
    env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Cargo in a folder, without anything that the cargo which runs this has set, but for the target folder.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_this_build = name.starts_with("CARGO") && name != "CARGO_HOME" && name != "CARGO_INCREMENTAL";
        if of_this_build || name == "K8S_OPENAPI_ENABLED_VERSION" {
            cargo.env_remove(name);
        }
    }
    cargo.env("CARGO_TARGET_DIR", target()).env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo.current_dir(folder).stdin(Stdio::null());
    cargo
}

/// Names the crates of this repository by version in a manifest that names them by its address.
pub(crate) fn as_published(manifest: &Path) {
    let text = fs::read_to_string(manifest).unwrap();
    let published = text.replace("git = \"https://github.com/watchkeeper/watchkeeper\"", "version = \"0.1\"");
    fs::write(manifest, published).unwrap();
}

//! The path of a real kube-apiserver, if one is installed.

use std::{env, path::PathBuf};

/// Names the folder of the binaries that `tests/kube-apiserver/build` builds.
const BINARIES: &str = "WATCHKEEPER_KUBE_APISERVER";

/// Returns the program.
///
/// # Errors
/// In words: its path is not set.
pub(crate) fn program() -> Result<PathBuf, String> {
    match env::var_os(BINARIES) {
        Some(folder) => Ok(PathBuf::from(folder).join("kube-apiserver")),
        None => Err(format!(
            "{BINARIES} names no folder; tests/kube-apiserver/build builds it, and prints the folder"
        )),
    }
}

//! The crates as they would be published: outside this workspace, without its settings.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use serde_json::Value;

use super::{
    printed::{Folder, Process},
    repository::{self, root, target},
};

/// What is published, in the order of its dependencies.
pub(crate) const CRATES: [&str; 4] =
    ["watchkeeper-macros", "watchkeeper", "watchkeeper-apiserver", "watchkeeper-trials"];

/// The crates, packed and unpacked; and where each is.
pub(crate) static UNPACKED: LazyLock<Vec<(&str, PathBuf)>> = LazyLock::new(|| {
    let mut cargo = repository::cargo(&root());
    cargo.args(["package", "--quiet", "--no-verify", "--allow-dirty"]);
    cargo.args(CRATES.iter().flat_map(|krate| ["--package", krate]));
    let packed = cargo.output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let (fresh, version) = (Folder::empty(), env!("CARGO_PKG_VERSION"));
    let unpack = |krate: &'static str| {
        let archive = target().join(format!("package/{krate}-{version}.crate"));
        let tar = Command::new("tar").arg("xzf").arg(&archive).current_dir(fresh.path()).status().unwrap();
        assert!(tar.success(), "{}", archive.display());
        (krate, target().join(format!("unpacked/{krate}-{version}")))
    };
    let crates = CRATES.map(unpack).into();
    bring_up_to_date(fresh.path(), &target().join("unpacked"));
    crates
});

/// Writes what differs, and nothing else: archives hold no times, and cargo goes by these.
fn bring_up_to_date(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        let place = to.join(name);
        if path.is_dir() {
            bring_up_to_date(&path, &place);
        } else if fs::read(&path).ok() != fs::read(&place).ok() {
            fs::write(&place, fs::read(&path).unwrap()).unwrap();
        }
    }
}

/// The smaller and the larger number of a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap_or_default())
}

/// Names the platform that this is built on.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

// Who has the Rust that the manifests promise can build what is published.
#[test]
fn no_dependency_needs_a_newer_rust_than_the_manifests_say() {
    let mut cargo = repository::cargo(&root());
    // Without the packages of other platforms: those need not be here.
    cargo.args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", &host()]);
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let named = |id: &Value| packages.iter().find(|package| package["id"] == *id).unwrap();
    let ours = packages.iter().find(|package| package["name"] == "watchkeeper").unwrap();
    let ours = version(ours["rust_version"].as_str().unwrap());
    // Everything that the published crates are built of.
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let mut left: Vec<&Value> = packages
        .iter()
        .filter(|one| CRATES.contains(&one["name"].as_str().unwrap()))
        .map(|one| &one["id"])
        .collect();
    let mut seen = Vec::new();
    while let Some(id) = left.pop() {
        if seen.contains(&id) {
            continue;
        }
        seen.push(id);
        let node = nodes.iter().find(|node| node["id"] == *id).unwrap();
        let normal = |dep: &&Value| {
            dep["dep_kinds"]
                .as_array()
                .unwrap()
                .iter()
                .any(|kind| kind["kind"] != "dev" && kind["target"].is_null())
        };
        left.extend(node["deps"].as_array().unwrap().iter().filter(normal).map(|dep| &dep["pkg"]));
        let needs = named(id)["rust_version"].as_str().map(version);
        assert!(
            needs.is_none_or(|needs| needs <= ours),
            "{} needs Rust {needs:?}, the manifests say {ours:?}",
            named(id)["name"]
        );
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

#[tokio::test]
#[ignore = "builds crates"]
async fn the_servers_binary_can_be_installed_by_itself() {
    let folder = Folder::empty();
    let (_, package) = UNPACKED.iter().find(|(name, _)| *name == "watchkeeper-apiserver").unwrap();
    let mut cargo = repository::cargo(folder.path());
    cargo.args(["install", "--quiet", "--debug", "--features", "standalone", "--root"]).arg(folder.path());
    let installed = cargo.arg("--path").arg(package).output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    serves(&folder.path().join("bin/watchkeeper-apiserver"), folder.path());
}

/// Starts the server's binary, and reads what it says first.
fn serves(binary: &Path, folder: &Path) {
    use std::io::{BufRead, BufReader};
    let mut server = Command::new(binary);
    server.args(["--listen", "127.0.0.1:0", "--kubeconfig"]).arg(folder.join("kubeconfig"));
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let first = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let _server = Process(server);
    assert_eq!(first, "ready");
    assert!(folder.join("kubeconfig").is_file());
}

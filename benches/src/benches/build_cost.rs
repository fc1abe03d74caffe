//! `build-cost`: how long a release build of an operator takes, and how large its program is.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use tokio::time::Instant;

use crate::{
    contest::{Contest, Settings},
    job::{Bench, Job, Mode, Side},
    kit,
    measure::{Measures, children_cpu_seconds, measures},
    report::{Column, Goal::Share},
};

/// The operators: the same one, on either runtime.
const OPERATORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/operators");
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Runs the bench; takes some minutes a side.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let job = Job::new(Bench::BuildCost, 0);
    Contest::new(
        "build-cost: one operator, from an empty target folder, in release; crates are fetched before",
        job,
    )
    .column(Column::cost("cpu", "CPU, s"))
    .column(Column::cost("wall", "on all cores, s"))
    .column(Column::cost("again", "built again after a change of the operator, s"))
    .column(Column::cost("size", "program, stripped, MB"))
    .column(Column::fact("crates", "crates compiled"))
    .side(Side::Watchkeeper, &[])
    // kube-rs serves no probes and metrics: this program does not either.
    .variant(Side::Watchkeeper, Mode::WithoutHttp, "without the feature `http`", &[])
    .side(Side::KubeRs, &[("cpu", Share(1.15)), ("wall", Share(1.15)), ("size", Share(1.1))])
    .run(settings)
    .map(drop)
}

/// Builds the operator of one side.
pub(crate) fn measure(job: &Job) -> anyhow::Result<Measures> {
    let operator = match job.side {
        Side::Watchkeeper => "watchkeeper",
        Side::KubeRs => "kube-rs",
        side => return kit::no_part(side),
    };
    let features = match job.mode {
        Mode::WithoutHttp => ", default-features = false, features = [\"ring\"]",
        _ => "",
    };
    let folder = Folder::with(operator, features)?;
    folder.cargo(&["fetch", "--quiet"])?;
    let (began, before) = (Instant::now(), children_cpu_seconds());
    let said = folder.cargo(&["build", "--release", "--offline"])?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), children_cpu_seconds() - before);
    let crates = said.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count();
    let size = fs::metadata(folder.0.join("target/release/operator"))?.len() as f64 / 1e6;
    let main = folder.0.join("src/main.rs");
    let text = fs::read_to_string(&main)?;
    let changed = text.replace("for a change", "after a change");
    anyhow::ensure!(changed != text, "the operator has nothing to change");
    fs::write(&main, changed)?;
    let began = Instant::now();
    folder.cargo(&["build", "--release", "--offline"])?;
    let again = began.elapsed().as_secs_f64();
    Ok(measures([("wall", wall), ("cpu", cpu), ("again", again), ("size", size), ("crates", crates as f64)]))
}

/// A folder with one operator, which goes when this is dropped.
struct Folder(PathBuf);

impl Folder {
    /// Copies an operator; watchkeeper gets these features in place of the default ones.
    fn with(operator: &str, features: &str) -> anyhow::Result<Self> {
        let folder = Self(env::temp_dir().join(format!("build-cost-{operator}-{}", std::process::id())));
        fs::create_dir_all(folder.0.join("src"))?;
        let workspace = fs::canonicalize(WORKSPACE)?;
        let source = Path::new(OPERATORS).join(operator);
        let manifest = fs::read_to_string(source.join("Cargo.toml.in"))?;
        let manifest = manifest.replace("WORKSPACE/runtime\"", &format!("WORKSPACE/runtime\"{features}"));
        let manifest = manifest.replace("WORKSPACE", &workspace.to_string_lossy());
        fs::write(folder.0.join("Cargo.toml"), manifest)?;
        fs::copy(source.join("main.rs"), folder.0.join("src/main.rs"))?;
        // The same versions for both.
        fs::copy(workspace.join("Cargo.lock"), folder.0.join("Cargo.lock"))?;
        Ok(folder)
    }

    /// Runs cargo there; returns its output.
    fn cargo(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).args(["--color", "never"]).current_dir(&self.0);
        command.env("CARGO_TARGET_DIR", self.0.join("target")).env_remove("RUSTFLAGS");
        let output = command.output().context("cargo can't be run")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "cargo {}: {said}", arguments.join(" "));
        Ok(said)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Any rest is among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! Where a table is measured: on all cores, on one, or with another allocator.

use std::{
    cell::OnceCell,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::job::{Cores, Side};

/// The program whose allocator is mimalloc.
const MIMALLOC: &str = "watchkeeper-benches-mimalloc";

/// Where a table is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On all cores, with the system's allocator.
    Usual,
    /// Each side on one core, the Rust sides on a current-thread runtime; what serves them may use any.
    OneCore,
    /// The Rust sides with mimalloc.
    Mimalloc,
}

impl Place {
    /// What the title of a table says of it.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::OneCore => "; on one core",
            Self::Mimalloc => "; with mimalloc",
        }
    }

    pub(crate) fn cores(self) -> Cores {
        match self {
            Self::OneCore => Cores::One,
            _ => Cores::All,
        }
    }

    /// Whether a side is measured there.
    pub(crate) fn has(self, side: Side) -> bool {
        self != Self::Mimalloc || !side.is_go()
    }
}

/// What the other places need, looked for when it is first asked for.
#[derive(Default)]
pub(crate) struct Places {
    core: OnceCell<Option<String>>,
    mimalloc: OnceCell<Option<PathBuf>>,
}

impl Places {
    /// Begins a command that runs a program there; `None` where that can't be had, which was said then.
    pub(crate) fn command(&self, place: Place, program: &Path) -> Option<Command> {
        match place {
            Place::Usual => Some(Command::new(program)),
            Place::OneCore => {
                let core = self.core.get_or_init(core).as_ref()?;
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", core]).arg(program);
                Some(command)
            }
            Place::Mimalloc => self.mimalloc.get_or_init(mimalloc).as_ref().map(Command::new),
        }
    }
}

/// Finds a core that this process may use.
fn core() -> Option<String> {
    let has_taskset = Command::new("taskset").arg("--version").output().is_ok();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let core = first_core(&status).filter(|_| has_taskset);
    if core.is_none() {
        println!("tables of one core are left out: taskset is missing");
    }
    core
}

fn first_core(status: &str) -> Option<String> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    allowed.split([',', '-']).next().filter(|core| !core.is_empty()).map(str::to_owned)
}

/// Builds the program with mimalloc, in addition to this one.
fn mimalloc() -> Option<PathBuf> {
    let built = build_mimalloc();
    if let Err(why) = &built {
        println!("tables of mimalloc are left out: {why}");
    }
    built.ok()
}

fn build_mimalloc() -> Result<PathBuf, String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let profile = own.parent().ok_or("the bench runs from no target folder")?;
    let target = profile.parent().ok_or("the bench runs from no target folder")?;
    println!("building the benches with mimalloc: some minutes the first time");
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "build",
        "--quiet",
        "-p",
        env!("CARGO_PKG_NAME"),
        "--features",
        "mimalloc",
        "--bin",
        MIMALLOC,
    ]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    command.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = command.status().map_err(|error| format!("cargo can't be run: {error}"))?;
    status.success().then(|| profile.join(MIMALLOC)).ok_or_else(|| "it does not build".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_core_that_is_allowed_is_found() {
        let status = |list: &str| format!("Name:\tbench\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\n");
        for (list, first) in [("0-1", "0"), ("3", "3"), ("5,7-9", "5")] {
            assert_eq!(first_core(&status(list)).as_deref(), Some(first));
        }
        assert_eq!(first_core("Name:\tbench\n"), None);
    }

    #[test]
    fn go_has_an_allocator_of_its_own() {
        assert!(Place::OneCore.has(Side::ClientGo) && !Place::Mimalloc.has(Side::ClientGo));
    }
}

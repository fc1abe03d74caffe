//! One bug after the other: builds the copy with it, runs the tests that must find it, and judges what they say.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "programs run in real time")]

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Bug, Copy, TestTarget};

/// Longest that the tests of one bug may run.
const LIMIT: Duration = Duration::from_secs(300);

/// Without a bug all seeds of the chaos pass, which takes minutes: some are enough to see that it runs.
const FEW_SEEDS: &[(&str, &str)] = &[("CHAOS_SEEDS", "20")];

/// What has the features of the whole workspace together with the package that is tested: what all depend on is built
/// once, for these and for `cargo test --workspace`. These two do not depend on what is changed, or have no library.
const FEATURES: [&str; 4] = ["-p", "watchkeeper-apiserver", "-p", "watchkeeper-benches"];

/// The packages of which the copy has others than the repository. Cargo names what it builds of a package alike wherever
/// the workspace is: in a profile of their own they are never taken for each other.
const OF_THE_COPY: [&str; 7] = [
    "watchkeeper",
    "watchkeeper-macros",
    "watchkeeper-apiserver",
    "watchkeeper-trials",
    "watchkeeper-examples",
    "watchkeeper-tests",
    "watchkeeper-benches",
];

/// Runs bugs in a copy of the repository.
#[derive(Debug)]
pub struct Trials {
    copy: Copy,
    target: PathBuf,
}

/// What became of a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// These tests failed.
    Found(Vec<String>),
    /// All passed.
    NotFound,
    /// Nothing was tried: this is what the bug's file, or the build, is to be blamed for.
    Broken(String),
}

impl Trials {
    /// Runs bugs in a copy, building into a target folder.
    pub fn new(copy: Copy, target: &Path) -> Self {
        Self { copy, target: target.to_owned() }
    }

    /// Checks that without any bug the tests exist that are to find some by this program, and pass.
    ///
    /// # Errors
    /// They do not; the text says which.
    pub fn pass_without(&self, target: TestTarget, bugs: &[Bug]) -> Result<(), String> {
        let of_target = bugs.iter().filter(|bug| bug.target == target);
        let tests: BTreeSet<String> = of_target.flat_map(|bug| bug.tests.iter().cloned()).collect();
        let tests: Vec<String> = tests.into_iter().collect();
        let said = self.build(target).and_then(|program| self.run(&program, &tests, FEW_SEEDS))?;
        let missing: Vec<_> = tests.iter().filter(|test| !said.passed(test)).collect();
        match missing.is_empty() && said.all_passed() {
            true => Ok(()),
            false => Err(format!("without any bug, these fail or do not exist: {missing:?}")),
        }
    }

    /// Plants a bug and runs the tests that must find it.
    pub fn try_one(&self, bug: &Bug) -> Outcome {
        let _planted = match self.copy.plant(bug) {
            Ok(planted) => planted,
            Err(flaw) => return Outcome::Broken(flaw.to_string()),
        };
        let said = self.build(bug.target).and_then(|program| self.run(&program, &bug.tests, &[]));
        match said {
            Err(problem) => Outcome::Broken(problem),
            Ok(said) => match said.failures() {
                failed if !failed.is_empty() => Outcome::Found(failed),
                _ if said.all_passed() => Outcome::NotFound,
                _ => Outcome::Broken(format!("the tests ended without a result:\n{}", said.text)),
            },
        }
    }

    /// Builds a test program of the copy.
    fn build(&self, target: TestTarget) -> Result<Program, String> {
        let built = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
            .args(["test", "--quiet", "--no-run", "--message-format=json-render-diagnostics"])
            .args(OF_THE_COPY.map(|name| format!("--config=profile.dev.package.{name}.codegen-units=255")))
            .args(FEATURES)
            .args(match target {
                TestTarget::Lib => ["-p", "watchkeeper", "--lib"].to_vec(),
                TestTarget::Suite | TestTarget::Chaos | TestTarget::Trials => {
                    ["-p", "watchkeeper-tests", "--test", target.name()].to_vec()
                }
            })
            .current_dir(self.copy.root())
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_INCREMENTAL", "1")
            .output()
            .map_err(|error| format!("cargo can't be run: {error}"))?;
        if !built.status.success() {
            return Err(format!("does not compile:\n{}", String::from_utf8_lossy(&built.stderr)));
        }
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let wanted = match target {
            TestTarget::Lib => "watchkeeper",
            TestTarget::Suite | TestTarget::Chaos | TestTarget::Trials => target.name(),
        };
        let program = messages.filter(|message| message["target"]["name"] == wanted).find_map(|message| {
            let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
            Some(Program { file: message["executable"].as_str()?.into(), folder })
        });
        program.ok_or_else(|| format!("cargo built no test program {wanted}"))
    }

    /// Runs some tests, for no longer than they may.
    fn run(&self, program: &Program, tests: &[String], set: &[(&str, &str)]) -> Result<Said, String> {
        let failed = |error: io::Error| format!("{} can't be run: {error}", program.file.display());
        let log = self.copy.root().with_extension("log");
        let out = File::create(&log).map_err(failed)?;
        let mut running = Command::new(&program.file)
            .args(tests)
            .current_dir(&program.folder)
            .env("RUST_BACKTRACE", "0")
            .envs(set.iter().copied())
            .stdin(Stdio::null())
            .stderr(out.try_clone().map_err(failed)?)
            .stdout(out)
            .spawn()
            .map_err(failed)?;
        let begun = Instant::now();
        while running.try_wait().map_err(failed)?.is_none() {
            if begun.elapsed() > LIMIT {
                running.kill().and_then(|()| running.wait()).map_err(failed)?;
                return Err(format!(
                    "the tests ran for more than {LIMIT:?}: a bug must make them fail, not hang"
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::read(&log)
            .map(|said| Said { text: String::from_utf8_lossy(&said).into_owned() })
            .map_err(failed)
    }
}

/// A test program, and the folder in which cargo would run it.
struct Program {
    file: PathBuf,
    folder: PathBuf,
}

/// What a test program said.
struct Said {
    text: String,
}

impl Said {
    /// Returns the tests that failed, by their paths.
    fn failures(&self) -> Vec<String> {
        let listed = self.text.rsplit_once("\nfailures:\n").map(|(_, list)| list).unwrap_or_default();
        let names = listed.lines().take_while(|line| line.starts_with("    "));
        names.map(|line| line.trim().to_owned()).collect()
    }

    fn all_passed(&self) -> bool {
        self.text.contains("test result: ok.")
    }

    fn passed(&self, test: &str) -> bool {
        let mut passed =
            self.text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
        passed.any(|path| path.rsplit("::").next() == Some(test))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_test_program_says_is_understood() {
        let said = |text: &str| Said { text: text.to_owned() };
        let failed = said(
            "test a::one ... FAILED\ntest a::two ... ok\n\nfailures:\n\n---- a::one stdout ----\n\nfailures:\n    a::one\n    b::c\n\ntest result: FAILED. 1 passed\n",
        );
        assert_eq!(failed.failures(), ["a::one", "b::c"]);
        assert!(failed.passed("two") && !failed.passed("one") && !failed.all_passed());
        let fine = said("test a::two ... ok\ntest result: ok. 1 passed\n");
        assert!(fine.passed("two") && !fine.passed("one") && fine.failures().is_empty());
        assert!(!said("thread panicked").all_passed());
    }
}

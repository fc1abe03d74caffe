//! What a person types with `kubectl`, and what comes, against the server's binary.
//!
//! Each file of `typed/` is a transcript: a line with `$` is typed (lines with `>` go on with it), the lines below it are
//! what comes, errors included, and `[exit N]` where it failed. In them `<age>`, `<number>`, `<time>`, `<uid>` and `<any>`
//! stand for what varies, and a line `...` for any lines. Every transcript has a server and a folder of its own, which
//! holds `objects/`; `crd/` is served from the start.
//!
//! Without a `kubectl` on the PATH nothing runs, and one line says so. Where `WATCHKEEPER_KUBE_APISERVER` names the folder
//! of a real kube-apiserver's binaries (`tests/kube-apiserver/build` makes them), the same is typed there, by its own
//! `kubectl`, and the same has to come; what is written down is what came from it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use regex::Regex;

const TRANSCRIPTS: [&str; 9] =
    ["apply", "change", "create", "delete", "explain", "get", "more", "others", "watch"];
/// How long one typed line may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let Some(version) = kubectl() else {
        say("kubectl: NOT RUN: it is not on the PATH");
        return ExitCode::SUCCESS;
    };
    say(&format!("kubectl: {version}"));
    let part = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let wanted: Vec<&str> = TRANSCRIPTS.into_iter().filter(|name| name.contains(&part)).collect();
    let mut outcomes: Vec<(String, anyhow::Result<usize>)> = std::thread::scope(|scope| {
        let running: Vec<_> =
            wanted.iter().map(|name| (*name, scope.spawn(move || play(name, Kind::Embedded)))).collect();
        let ended = running.into_iter().map(|(name, thread)| {
            let panicked = |_| Err(anyhow::anyhow!("the transcript's thread panicked"));
            (name.to_owned(), thread.join().unwrap_or_else(panicked))
        });
        ended.collect()
    });
    if binaries().is_some() {
        // One after another: each takes a gigabyte while it starts.
        outcomes
            .extend(wanted.iter().map(|name| (format!("{name} on kube-apiserver"), play(name, Kind::Real))));
    } else {
        say(&format!("kubectl: not typed to a real kube-apiserver: {BINARIES} names no folder"));
    }
    let mut code = ExitCode::SUCCESS;
    for (name, outcome) in outcomes {
        match outcome {
            Ok(typed) => say(&format!("kubectl: {name}: {typed} lines typed, all answered as written down")),
            Err(error) => {
                say(&format!("kubectl: {name}: FAILED: {error:#}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The environment variable that names the folder of the real server's binaries.
const BINARIES: &str = "WATCHKEEPER_KUBE_APISERVER";

fn binaries() -> Option<PathBuf> {
    std::env::var_os(BINARIES).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Which server is typed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Embedded,
    /// A real kube-apiserver, with the controllers that collect garbage and empty namespaces.
    Real,
}

fn say(text: &str) {
    // Nobody reads on when standard output is gone.
    let _told = writeln!(std::io::stdout(), "{text}");
}

fn kubectl() -> Option<String> {
    let output = Command::new("kubectl").args(["version", "--client"]).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

/// Types one transcript; gives the number of lines typed.
fn play(name: &str, kind: Kind) -> anyhow::Result<usize> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let text = std::fs::read_to_string(here.join(format!("typed/{name}.txt")))?;
    let steps = steps(&text);
    let place = Place::set_up(name, &here, kind)?;
    let mut differ = String::new();
    for step in &steps {
        let came = place.run(&step.typed).with_context(|| format!("line {}", step.line))?;
        let wanted = pattern(&step.comes)?;
        if !wanted.is_match(&came) {
            let Step { line, typed, comes } = step;
            writeln!(differ, "line {line}\n$ {typed}\n--- written down\n{comes}--- came\n{came}")?;
        }
    }
    ensure!(differ.is_empty(), "{differ}");
    ensure!(!steps.is_empty(), "an empty transcript");
    Ok(steps.len())
}

/// A line typed and what comes of it.
struct Step {
    line: usize,
    typed: String,
    comes: String,
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(typed) = line.strip_prefix("$ ") {
            steps.push(Step { line: index + 1, typed: typed.to_owned(), comes: String::new() });
        } else if let Some(step) = steps.last_mut() {
            match line.strip_prefix("> ").filter(|_| step.comes.is_empty()) {
                Some(more) => step.typed = format!("{}\n{more}", step.typed),
                None => step.comes = format!("{}{}\n", step.comes, line.trim_end()),
            }
        }
    }
    for step in &mut steps {
        step.comes = format!("{}\n", step.comes.trim_end());
    }
    steps
}

/// Makes a pattern of what is written down.
fn pattern(comes: &str) -> anyhow::Result<Regex> {
    let mut pattern = String::from("^");
    for line in comes.lines() {
        if line == "..." {
            pattern.push_str("(?:.*\n)*?");
        } else {
            writeln!(pattern, "{}", line_pattern(line))?;
        }
    }
    pattern.push('$');
    Ok(Regex::new(&pattern)?)
}

fn line_pattern(line: &str) -> String {
    const VARYING: [(&str, &str); 4] =
        [("<any>", ".*"), ("<number>", "[0-9]+"), ("<time>", "[0-9-]+T[0-9:]+Z"), ("<uid>", "[0-9a-f-]{36}")];
    let mut ages = line.split("<age>");
    let mut pattern = regex::escape(ages.next().unwrap_or_default());
    for rest in ages {
        pattern.push_str("[0-9]+[smh][0-9smh]*");
        // The room after an age depends on how long it is.
        pattern.push_str(if rest.starts_with(' ') { " +" } else { "" });
        pattern.push_str(&regex::escape(rest.trim_start()));
    }
    for (word, what) in VARYING {
        pattern = pattern.replace(&regex::escape(word), what);
    }
    pattern
}

/// A server, and a folder to type in.
struct Place {
    folder: PathBuf,
    servers: Vec<Child>,
    kind: Kind,
    path: OsString,
}

/// Ends a command when the input ends, and waits for that.
const MINDER: &str = r#"trap : INT TERM HUP; "$@" 2>/dev/null & minded=$!; exec >/dev/null; read -r _; kill "$minded"; wait "$minded""#;

impl Place {
    fn set_up(name: &str, here: &Path, kind: Kind) -> anyhow::Result<Self> {
        let unique = format!("watchkeeper-kubectl-{}-{name}-{kind:?}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(here.join("objects"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut place = Self { folder, servers: Vec::new(), kind, path };
        match kind {
            Kind::Embedded => place.start_embedded(here)?,
            Kind::Real => place.start_real(here)?,
        }
        Ok(place)
    }

    fn start_embedded(&mut self, here: &Path) -> anyhow::Result<()> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper-apiserver"));
        command.args(["--listen", "127.0.0.1:0", "--kubeconfig"]).arg(self.folder.join("kubeconfig"));
        command.arg("--crd").arg(here.join("crd"));
        let ready = self.start(&mut command, |line| line.trim() == "ready")?;
        ensure!(ready.trim() == "ready", "the server said {ready:?}");
        Ok(())
    }

    fn start_real(&mut self, here: &Path) -> anyhow::Result<()> {
        let binaries = binaries().context("no binaries")?;
        let minded = |program: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", MINDER, "minder"]).arg(binaries.join(program));
            command
        };
        let ready = self
            .start(minded("kube-apiserver").arg("-dir").arg(self.folder.join("server")), |line| {
                line.starts_with("KUBECONFIG=")
            })?;
        let kubeconfig = ready.trim().strip_prefix("KUBECONFIG=").context("the server is not ready")?;
        std::fs::copy(kubeconfig, self.folder.join("kubeconfig"))?;
        let mut path = OsString::from(&binaries);
        path.push(":");
        path.push(&self.path);
        self.path = path;
        let crd = here.join("crd");
        // It is established before its documents are there.
        let serve = format!(
            "kubectl apply -f {} && kubectl wait --for=condition=Established crd --all && \
             until kubectl explain widgets >/dev/null 2>&1; do sleep 0.2; done",
            crd.display()
        );
        self.run(&serve)?;
        let mut controllers = minded("kube-controller-manager");
        controllers.arg("-kubeconfig").arg(kubeconfig).stdin(Stdio::piped()).stdout(Stdio::null());
        self.servers.push(controllers.stderr(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Starts a server; gives the line that says it is ready.
    fn start(&mut self, command: &mut Command, is_ready: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let mut server =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = server.stdout.take().context("the server's standard output")?;
        self.servers.push(server);
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if is_ready(&line) {
                return Ok(line);
            }
        }
        Ok(String::new())
    }

    /// Types a line; gives what came, both outputs in one, and how it ended.
    fn run(&self, typed: &str) -> anyhow::Result<String> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec 2>&1\n{typed}")).current_dir(&self.folder);
        command.env("KUBECONFIG", self.folder.join("kubeconfig"));
        command.env("KUBECACHEDIR", self.folder.join("cache"));
        command.env("PATH", &self.path);
        command.env("HOME", &self.folder).env_remove("EDITOR").env_remove("KUBE_EDITOR");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let (send, ended) = mpsc::channel();
        std::thread::spawn(move || send.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(PATIENCE) else {
            bail!("no end in {PATIENCE:?} of: {typed}");
        };
        let output = output?;
        let mut came = String::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // A dispatching kubectl says when it has no client of the server's very version.
            if !line.starts_with("WARNING: version difference between client") {
                // Later ones say the namespace of what is deleted.
                writeln!(came, "{}", line.trim_end().replace(" from default namespace", ""))?;
            }
        }
        if !output.status.success() {
            writeln!(came, "[exit {}]", output.status.code().unwrap_or(-1))?;
        }
        Ok(format!("{}\n", came.trim_end()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().rev() {
            drop(server.stdin.take());
            // What is gone already is what is wanted; a minder ends with its input.
            let _ended = match self.kind {
                Kind::Embedded => server.kill().and_then(|()| server.wait()),
                Kind::Real => server.wait(),
            };
        }
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

//! What a person types with `kubectl`, and what comes, against the server's binary.
//!
//! Each file of `typed/` is a transcript: a line with `$` is typed (lines with `>` go on with it), the lines below it are
//! what comes, errors included, and `[exit N]` where it failed. In them `<age>`, `<number>`, `<time>`, `<uid>` and `<any>`
//! stand for what varies, and a line `...` for any lines. Every transcript has a server and a folder of its own, which
//! holds `objects/`; `crd/` is served from the start.
//!
//! Without a `kubectl` on the PATH nothing runs, and one line says so.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use regex::Regex;

const TRANSCRIPTS: [&str; 7] = ["apply", "change", "create", "delete", "explain", "get", "watch"];
/// How long one typed line may take.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let Some(version) = kubectl() else {
        say("kubectl: NOT RUN, there is no kubectl on the PATH");
        return ExitCode::SUCCESS;
    };
    say(&format!("kubectl: {version}"));
    let outcomes: Vec<(&str, anyhow::Result<usize>)> = std::thread::scope(|scope| {
        let running = TRANSCRIPTS.map(|name| (name, scope.spawn(move || play(name))));
        let ended = running.map(|(name, thread)| {
            (name, thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the transcript's thread panicked"))))
        });
        ended.into()
    });
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

fn say(text: &str) {
    // Nobody reads on when standard output is gone.
    let _told = writeln!(std::io::stdout(), "{text}");
}

fn kubectl() -> Option<String> {
    let output = Command::new("kubectl").args(["version", "--client"]).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

/// Types one transcript; gives the number of lines typed.
fn play(name: &str) -> anyhow::Result<usize> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl");
    let text = std::fs::read_to_string(here.join(format!("typed/{name}.txt")))?;
    let steps = steps(&text);
    let place = Place::set_up(name, &here)?;
    for step in &steps {
        let came = place.run(&step.typed).with_context(|| format!("line {}", step.line))?;
        let wanted = pattern(&step.comes)?;
        ensure!(
            wanted.is_match(&came),
            "line {}\n$ {}\n--- written down\n{}--- came\n{came}",
            step.line,
            step.typed,
            step.comes
        );
    }
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
    server: Child,
}

impl Place {
    fn set_up(name: &str, here: &Path) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("watchkeeper-kubectl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(here.join("objects"))? {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        let mut server = Command::new(env!("CARGO_BIN_EXE_watchkeeper-apiserver"))
            .args(["--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(folder.join("kubeconfig"))
            .arg("--crd")
            .arg(here.join("crd"))
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = server.stdout.take().context("the server's standard output")?;
        let place = Self { folder, server };
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        ensure!(ready.trim() == "ready", "the server said {ready:?}");
        Ok(place)
    }

    /// Types a line; gives what came, both outputs in one, and how it ended.
    fn run(&self, typed: &str) -> anyhow::Result<String> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec 2>&1\n{typed}")).current_dir(&self.folder);
        command.env("KUBECONFIG", self.folder.join("kubeconfig"));
        command.env("KUBECACHEDIR", self.folder.join("cache"));
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
                writeln!(came, "{}", line.trim_end())?;
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
        // Both may be gone already, which is what is wanted.
        let _killed = self.server.kill().and_then(|()| self.server.wait());
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

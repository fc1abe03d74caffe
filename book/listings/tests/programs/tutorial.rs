//! The tutorial, followed by a reader who does everything that it says: each file, each line that is typed.
//!
//! What a page prints is compared with what comes. `WATCHKEEPER_BLESS=1` writes what comes into the page, unless the block
//! leaves lines out by `…`; a block that is `…` alone is not written yet. `WATCHKEEPER_CHAPTERS=3` ends after the third chapter, `3..5` plays only these three, on the state
//! of the server that was kept after the second. `WATCHKEEPER_HURRY=1` leaves out the tests: the crates that are stored have
//! them too.

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use watchkeeper_apiserver::{ApiServer, OverHttp};
use watchkeeper_book_listings::{Files, Signal, Step, is_line, normal, script, shows};

use super::{
    printed::Process,
    repository::{self, root},
};

/// How long a line may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reader: a crate, terminals, and a server.
struct Reader {
    folder: PathBuf,
    files: Files,
    /// The files before something was tried.
    before: Option<Files>,
    terminals: BTreeMap<String, Terminal>,
    exported: BTreeMap<String, String>,
    plays: bool,
}

/// What runs in a terminal, and what it has printed so far.
struct Terminal {
    process: Process,
    output: Arc<Mutex<String>>,
    /// How many lines were seen.
    seen: usize,
}

/// Whether what comes is written into the pages.
fn may_bless() -> bool {
    env::var_os("WATCHKEEPER_BLESS").is_some()
}

/// Cargo, or a shell, as the reader's terminal has it.
fn command(program: &str, folder: &Path, exported: &BTreeMap<String, String>) -> Command {
    let cargo = repository::cargo(folder);
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| name != "RUST_LOG" && name != "RUST_BACKTRACE"));
    for (name, value) in cargo.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("NO_COLOR", "1").env("KUBECACHEDIR", folder.join("kubecache")).envs(exported);
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Reads what a pipe yields into a text that others may look at meanwhile.
fn collect(pipe: impl Read + Send + 'static, output: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            output.lock().unwrap_or_else(PoisonError::into_inner).push_str(&format!("{line}\n"));
        }
    });
}

impl Reader {
    fn begins(folder: &Path) -> Self {
        let output =
            repository::cargo(folder).args(["new", "--quiet", "--vcs", "none", "websites"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let folder = folder.join("websites");
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let files =
            Files::from([("Cargo.toml".to_owned(), manifest), ("src/main.rs".to_owned(), String::new())]);
        let (terminals, exported) = (BTreeMap::new(), BTreeMap::new());
        Self { folder, files, before: None, terminals, exported, plays: true }
    }

    /// Writes the files that differ, with this repository in place of the published one.
    fn save(&self) {
        for (path, text) in &self.files {
            let path = self.folder.join(path);
            let git = "git = \"https://github.com/watchkeeper/watchkeeper\"";
            let here = |krate: &str| format!("path = {:?}", root().join(krate));
            let lines = text.lines().map(|line| match line.split_once(' ') {
                Some(("watchkeeper", _)) => line.replace(git, &here("runtime")),
                Some(("watchkeeper-apiserver", _)) => line.replace(git, &here("apiserver")),
                Some(("watchkeeper-trials", _)) => line.replace(git, &here("trials")),
                _ => line.to_owned(),
            });
            let text: String = lines.map(|line| format!("{line}\n")).collect();
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
    }

    /// Follows a page; returns it as it would have to be.
    async fn follows(&mut self, name: &str, page: &str) -> String {
        let mut mended = page.to_owned();
        for step in script(page).unwrap() {
            match step {
                Step::Edit(edit) => edit.apply(&mut self.files).unwrap(),
                _ if !self.plays => {}
                Step::Try(edit) => {
                    self.before.get_or_insert_with(|| self.files.clone());
                    edit.apply(&mut self.files).unwrap();
                }
                Step::Undo => self.files = self.before.take().expect("something was tried"),
                Step::Run(lines) => {
                    self.save();
                    for (typed, printed) in lines {
                        if skips(&typed, &printed) {
                            continue;
                        }
                        let began = Instant::now();
                        let came = self.types(name, &typed, &printed).await;
                        println!("    {:.1} s", began.elapsed().as_secs_f64());
                        mend(&mut mended, &typed, &printed, &came);
                    }
                }
                Step::Start { terminal, typed, printed } => {
                    self.save();
                    let came = self.starts(&terminal, &typed, &printed).await;
                    if let Err(came) = came {
                        println!("  {name} prints\n{printed}\nit brings\n{came}");
                        assert!(may_bless(), "{name}: $ {typed}");
                    }
                }
                Step::See { terminal, printed } => {
                    if let Err(came) = self.sees(&terminal, &printed).await {
                        println!("  {name} prints\n{printed}\nit brings\n{came}");
                        assert!(may_bless(), "{name} sees in {terminal}");
                    }
                }
                Step::End { terminal, signal } => self.ends(&terminal, signal),
            }
        }
        mended
    }

    /// Types a line; returns what came at last.
    async fn types(&mut self, name: &str, typed: &str, printed: &str) -> String {
        println!("  $ {typed}");
        if let Some((variable, value)) = typed.strip_prefix("export ").and_then(|rest| rest.split_once('=')) {
            let value = value.replace("$PWD", &self.folder.display().to_string());
            self.exported.insert(variable.to_owned(), value);
            return String::new();
        }
        // A read may come before the operator has done its part.
        let reads = ["kubectl get", "kubectl describe", "websites why", "curl"];
        let patient = reads.iter().any(|read| typed.contains(read));
        let until = Instant::now() + if patient { Duration::from_secs(20) } else { Duration::ZERO };
        loop {
            let mut shell = command("sh", &self.folder, &self.exported);
            let output = shell.arg("-c").arg(format!("exec 2>&1\n{typed}")).output().unwrap();
            let came = String::from_utf8_lossy(&output.stdout).into_owned();
            if shows(printed, &came) {
                return came;
            }
            if Instant::now() >= until {
                println!("{name} prints\n{printed}\nit brings\n{came}");
                assert!(
                    may_bless(),
                    "{name}: $ {typed}\nthe page prints {:#?}\nit brings {:#?}",
                    normal(printed),
                    normal(&came)
                );
                return came;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Starts what runs on; waits for its lines, which come in the page's order, with others between them.
    async fn starts(&mut self, terminal: &str, typed: &str, printed: &str) -> Result<(), String> {
        println!("  {terminal} $ {typed}");
        if let Some(run) = typed.split_once("cargo run") {
            let arguments = run.1.split(" -- ").next().unwrap().split_whitespace();
            let built =
                command("cargo", &self.folder, &self.exported).arg("build").args(arguments).output().unwrap();
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        }
        let (exports, line) = typed.rsplit_once("; ").unwrap_or(("", typed));
        let (variables, program): (Vec<_>, Vec<_>) =
            line.split(' ').partition(|word| word.contains('=') && !word.starts_with('-'));
        let shell = format!("{exports}\nexport A=1 {}\nexec {} 2>&1", variables.join(" "), program.join(" "));
        let mut shell_command = command("sh", &self.folder, &self.exported);
        let spawned = shell_command.arg("-c").arg(shell).stdout(Stdio::piped()).spawn();
        let mut child: Child = spawned.unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        collect(child.stdout.take().unwrap(), output.clone());
        let replaced =
            self.terminals.insert(terminal.to_owned(), Terminal { process: Process(child), output, seen: 0 });
        assert!(replaced.is_none(), "{terminal} runs already");
        self.sees(terminal, printed).await
    }

    async fn sees(&mut self, terminal: &str, printed: &str) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let wanted: Vec<String> = normal(printed).into_iter().filter(|line| line != "…").collect();
        let shown = self.terminals.get_mut(terminal).unwrap_or_else(|| panic!("{terminal} runs nothing"));
        loop {
            let came = shown.output.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let lines = normal(&came);
            let (mut left, mut at) = (wanted.iter().peekable(), shown.seen);
            for (number, line) in (1..).zip(&lines).skip(shown.seen) {
                if left.next_if(|next| is_line(next, line)).is_some() {
                    at = number;
                }
            }
            if left.peek().is_none() {
                shown.seen = at;
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(came);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn ends(&mut self, terminal: &str, signal: Signal) {
        let mut ended = self.terminals.remove(terminal).unwrap_or_else(|| panic!("{terminal} runs nothing"));
        let name = match signal {
            // A shell may have had its children ignore the other one.
            Signal::Interrupt => "-TERM",
            Signal::Kill => "-KILL",
        };
        let child = &mut ended.process.0;
        let killed = Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap();
        assert!(killed.success());
        child.wait().unwrap();
    }
}

/// Puts what came into the page, in place of what it prints, if that differs and can be known.
fn mend(page: &mut String, typed: &str, printed: &str, came: &str) {
    let is_new = printed == "…\n";
    if !may_bless() || !is_new && (shows(printed, came) || printed.contains('…')) {
        return;
    }
    let came: String = came.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    *page = page.replacen(&format!("$ {typed}\n{printed}"), &format!("$ {typed}\n{came}"), 1);
}

/// Whether a line is left out: a test, where the reader is in a hurry and the page knows what comes.
fn skips(typed: &str, printed: &str) -> bool {
    env::var_os("WATCHKEEPER_HURRY").is_some() && typed.starts_with("cargo test") && !printed.contains("XXX")
}

/// The chapters that are played; those before are only applied.
fn chosen() -> (usize, usize) {
    let Ok(said) = env::var("WATCHKEEPER_CHAPTERS") else { return (1, usize::MAX) };
    let number = |text: &str| text.parse().unwrap();
    said.split_once("..").map_or_else(|| (1, number(&said)), |(first, last)| (number(first), number(last)))
}

/// A folder outside the workspace; always the same one, so that the compiler need not begin again.
fn place() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    root().hash(&mut hasher);
    env::temp_dir().join(format!("tutorial-{:x}", hasher.finish()))
}

/// Where the state of the server is kept after a chapter, so that the next one can be played alone.
fn kept(chapter: usize) -> PathBuf {
    place().join(format!("after-{chapter}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds crates, and needs a kubectl"]
async fn a_reader_follows_the_tutorial() {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        println!("tutorial: NOT RUN: kubectl is not on the PATH");
        return;
    }
    let (start, folder) = (Instant::now(), place());
    let _ = fs::remove_dir_all(folder.join("websites"));
    fs::create_dir_all(&folder).unwrap();
    let (first, last) = chosen();
    let data = folder.join("data");
    let _ = fs::remove_file(&data);
    if first > 1 {
        fs::copy(kept(first - 1), &data).expect("the chapters before were played");
    }
    let server: ApiServer<OverHttp> =
        ApiServer::http().namespace("default").rbac().data(&data).start().await.unwrap();
    let mut reader = Reader::begins(&folder);
    fs::write(reader.folder.join("dev.kubeconfig"), server.kubeconfig_yaml()).unwrap();
    if first > 1 {
        // The first chapter says it.
        let kubeconfig = reader.folder.join("dev.kubeconfig").display().to_string();
        reader.exported.insert("KUBECONFIG".to_owned(), kubeconfig);
    }
    let summary = fs::read_to_string(root().join("book/src/SUMMARY.md")).unwrap();
    let names = summary.lines().filter_map(|line| line.split_once("](tutorial/")?.1.strip_suffix(')'));
    for (number, name) in (1..).zip(names) {
        if number > last {
            break;
        }
        let path = root().join("book/src/tutorial").join(name);
        let page = fs::read_to_string(&path).unwrap();
        let began = Instant::now();
        println!("{name}, begun after {:.0} s", (began - start).as_secs_f64());
        reader.plays = number >= first;
        let mended = reader.follows(name, &page).await;
        println!("{name}, ended after {:.0} s", start.elapsed().as_secs_f64());
        for terminal in reader.terminals.keys().cloned().collect::<Vec<_>>() {
            reader.ends(&terminal, Signal::Interrupt);
        }
        if reader.plays {
            fs::copy(&data, kept(number)).unwrap();
        }
        if mended != page {
            fs::write(&path, mended).unwrap();
        }
    }
    server.stop().await;
}

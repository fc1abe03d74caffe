//! The lines that README types into kubectl bring what README prints below them.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    printed::Process,
    repository::{self, blocks, root},
};

/// How long a cache, or the operator, may take to show what was done.
const PATIENCE: Duration = Duration::from_secs(20);

/// Every kubectl there is: the one on the PATH, and the one of the reference servers.
pub(super) fn kubectls() -> Vec<PathBuf> {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|folder| folder.join("kubectl")).find(|file| file.is_file());
    let reference =
        env::var_os("WATCHKEEPER_KUBE_APISERVER").map(|folder| PathBuf::from(folder).join("kubectl"));
    found.into_iter().chain(reference).collect()
}

/// Starts the example as README does; returns it and the line that lets another terminal join in.
fn website() -> (Process, String) {
    let mut cargo = repository::cargo(&root());
    cargo.args(["run", "--quiet", "--example", "website"]).stdout(Stdio::piped());
    let mut child: Child = cargo.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let process = Process(child);
    let mut lines = lines.inspect(|line| println!("  {line}"));
    let join = lines
        .find_map(|line| line.strip_prefix("join in: ").map(str::to_owned))
        .expect("it says how to join in");
    // What it says later must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (process, join)
}

/// What is typed, and what comes.
fn typed() -> Vec<(String, String)> {
    let transcript = blocks("README.md", "console").remove(1);
    let steps = transcript.split("$ ").skip(1);
    steps
        .map(|step| step.split_once('\n').map(|(typed, comes)| (typed.to_owned(), comes.to_owned())).unwrap())
        .collect()
}

/// Returns the output without the parts that vary: ages, the blanks next to them, and the namespace that older versions omit.
fn constant(text: &str) -> Vec<String> {
    let is_age = |word: &str| word.strip_suffix('s').is_some_and(|digits| digits.parse::<u32>().is_ok());
    let word = |word| if is_age(word) { "<age>" } else { word };
    let text = text.replace(" from default namespace", "");
    let lines = text.lines().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).collect()
}

#[tokio::test]
#[ignore = "builds the example, and needs a kubectl"]
async fn what_readme_types_into_kubectl_brings_what_it_prints() {
    if kubectls().is_empty() {
        println!("kubectl: NOT RUN, there is none on the PATH, nor in $WATCHKEEPER_KUBE_APISERVER");
        return;
    }
    let (_process, join) = website();
    for kubectl in kubectls() {
        println!("{}", kubectl.display());
        for (typed, comes) in typed() {
            // A read may come before the operator has done its part.
            let until =
                Instant::now() + if typed.starts_with("kubectl get") { PATIENCE } else { Duration::ZERO };
            loop {
                let shell = format!("exec 2>&1\n{join}\n{typed}");
                let mut command = Command::new("sh");
                command.arg("-c").arg(shell).stdin(Stdio::null());
                let path = env::var_os("PATH").unwrap_or_default();
                let first = kubectl.parent().map(PathBuf::from);
                let paths = first.into_iter().chain(env::split_paths(&path));
                command.env("PATH", env::join_paths(paths).unwrap());
                let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
                let (came, wanted) = (constant(&output), constant(&comes));
                if came == wanted {
                    println!("  $ {typed}");
                    break;
                }
                assert!(Instant::now() < until, "$ {typed}\nREADME prints {wanted:#?}\nit brings {came:#?}");
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
    let kubeconfig = join.split(['=', ' ']).nth(2).unwrap_or_default();
    let _ = fs::remove_file(kubeconfig);
}

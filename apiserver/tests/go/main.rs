//! What a Go program does with client-go, protobuf and all, against the server's binary.
//!
//! `client/` is the program; against another server: `go run . -kubeconfig FILE`. It is built here where there is a `go` on
//! the PATH and `WATCHKEEPER_GO` is set, for it takes minutes and the modules of client-go; else one line says so.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};

fn main() -> ExitCode {
    let outcome = match Command::new("go").arg("version").output() {
        Ok(_) if std::env::var_os("WATCHKEEPER_GO").is_some() => run(),
        Ok(_) => Ok("NOT RUN, WATCHKEEPER_GO is not set".to_owned()),
        Err(_) => Ok("NOT RUN: go is not on the PATH".to_owned()),
    };
    let (line, code) = match outcome {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err(error) => (format!("FAILED: {error:#}"), ExitCode::FAILURE),
    };
    // Nobody reads on when standard output is gone.
    let _told = writeln!(std::io::stdout(), "go: {line}");
    code
}

fn run() -> anyhow::Result<String> {
    let folder = std::env::temp_dir().join(format!("watchkeeper-go-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kubeconfig = folder.join("kubeconfig");
    let mut server = Command::new(env!("CARGO_BIN_EXE_watchkeeper-apiserver"))
        .args(["--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()?;
    let outcome = server.stdout.take().context("the server's standard output").and_then(|stdout| {
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        ensure!(ready.trim() == "ready", "the server said {ready:?}");
        client(&kubeconfig)
    });
    // Both may be gone already, which is what is wanted.
    let _killed = server.kill().and_then(|()| server.wait());
    let _removed = std::fs::remove_dir_all(&folder);
    outcome
}

fn client(kubeconfig: &Path) -> anyhow::Result<String> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/client");
    let output =
        Command::new("go").args(["run", ".", "-kubeconfig"]).arg(kubeconfig).current_dir(program).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{told}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().replace('\n', ", "))
}

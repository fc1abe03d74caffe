//! Mistakes that a process of its own has to make: in kubeconfigs, credentials, addresses.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use regex::Regex;
use serde_json::{Value, json};
use watchkeeper_apiserver::{ApiServer, OverHttp};

use crate::Mistake;

/// How long an operator may take until it says something, or ends.
const PATIENCE: u32 = 300;

/// A folder with what the operators need, and a server.
struct Place {
    folder: PathBuf,
    server: ApiServer<OverHttp>,
    /// Another server's kubeconfig.
    foreign: Value,
}

/// Ends the operator, whatever becomes of the test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn mistakes() -> Vec<Mistake> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(ApiServer::http().start()).unwrap();
    let folder = env::temp_dir().join(format!("mistakes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let foreign = runtime.block_on(ApiServer::http().start()).unwrap();
    let foreign = serde_json::to_value(foreign.kubeconfig()).unwrap();
    let place = Place { folder, server, foreign };
    let mut found = place.files();
    found.extend(place.contents());
    found.extend(place.credentials());
    found.extend(place.connections());
    found
}

impl Place {
    /// A kubeconfig that works, to be spoiled.
    fn config(&self) -> Value {
        serde_json::to_value(self.server.kubeconfig()).unwrap()
    }

    /// The operator with a kubeconfig spoiled in one way.
    fn with(&self, mistake: &'static str, spoil: impl FnOnce(&mut Value)) -> Mistake {
        let mut config = self.config();
        spoil(&mut config);
        self.with_text(mistake, &config.to_string())
    }

    fn with_text(&self, mistake: &'static str, kubeconfig: &str) -> Mistake {
        let file = self.folder.join("kubeconfig");
        fs::write(&file, kubeconfig).unwrap();
        (mistake, self.says(Some(&file)))
    }

    fn user(config: &mut Value) -> &mut Value {
        &mut config["users"][0]["user"]
    }

    fn cluster(config: &mut Value) -> &mut Value {
        &mut config["clusters"][0]["cluster"]
    }

    fn files(&self) -> Vec<Mistake> {
        let missing = self.folder.join("no-such-file");
        vec![
            ("No kubeconfig anywhere, and not in a pod", self.says(None)),
            ("KUBECONFIG names a file that is not there", self.says(Some(&missing))),
            self.with_text("The kubeconfig is broken YAML", "apiVersion: v1\nclusters: [ {\n"),
            self.with_text("The kubeconfig is empty", ""),
        ]
    }

    fn contents(&self) -> Vec<Mistake> {
        vec![
            self.with("The current context is unknown", |config| config["current-context"] = json!("prod")),
            self.with("No current context is set", |config| {
                config.as_object_mut().unwrap().remove("current-context");
            }),
            self.with("The context names an unknown cluster", |config| {
                config["contexts"][0]["context"]["cluster"] = json!("prod");
            }),
            self.with("The context names an unknown user", |config| {
                config["contexts"][0]["context"]["user"] = json!("alice");
            }),
            self.with("The certificate authority's file is not there", |config| {
                let cluster = Self::cluster(config);
                cluster.as_object_mut().unwrap().remove("certificate-authority-data");
                cluster["certificate-authority"] = json!(self.folder.join("no-such-ca.pem"));
            }),
            self.with("The certificate authority is not a certificate", |config| {
                Self::cluster(config)["certificate-authority-data"] = json!("bm8gY2VydGlmaWNhdGU=");
            }),
            self.with("The certificate authority is not valid base64", |config| {
                Self::cluster(config)["certificate-authority-data"] = json!("%%%");
            }),
            self.with("The client certificate's file is not there", |config| {
                *Self::user(config) = json!({
                    "client-certificate": self.folder.join("no-such-client.pem"),
                    "client-key": self.folder.join("no-such-client.key"),
                });
            }),
            self.with("The token's file is not there", |config| {
                *Self::user(config) = json!({ "tokenFile": self.folder.join("no-such-token") });
            }),
        ]
    }

    fn credentials(&self) -> Vec<Mistake> {
        let plugin = |command: &str, script: &str| {
            json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": command,
                "args": ["-c", script],
                "interactiveMode": "Never",
            }})
        };
        vec![
            self.with("The credentials plugin is not installed", |config| {
                *Self::user(config) = plugin("no-such-plugin", "");
            }),
            self.with("The credentials plugin fails", |config| {
                *Self::user(config) = plugin("sh", "echo 'session expired: log in again' >&2; exit 1");
            }),
            self.with("The credentials plugin prints no credentials", |config| {
                *Self::user(config) = plugin("sh", "echo hello");
            }),
            self.with("The token has expired (401)", |config| {
                *Self::user(config) = json!({ "token": "an-old-token" });
            }),
            self.with("The user may not install the CRD (403)", |config| {
                *Self::user(config) = json!({ "token": "viewer-token" });
            }),
        ]
    }

    fn connections(&self) -> Vec<Mistake> {
        let foreign = self.foreign["clusters"][0]["cluster"]["certificate-authority-data"].clone();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = self.server.url();
        vec![
            self.with("The certificate authority is another cluster's", |config| {
                Self::cluster(config)["certificate-authority-data"] = foreign;
            }),
            self.with("Nothing listens at the server's address", |config| {
                Self::cluster(config)["server"] = json!(format!("https://{closed}"));
            }),
            self.with("The server's name is unknown", |config| {
                Self::cluster(config)["server"] = json!("https://no-such-host.invalid:6443");
            }),
            self.with("The cluster's server URL is empty", |config| {
                Self::cluster(config)["server"] = json!("https://");
            }),
            self.with("The server is asked without TLS", |config| {
                Self::cluster(config)["server"] = json!(url.replace("https://", "http://"));
            }),
        ]
    }

    /// Runs README's operator until it says what is wrong; returns that.
    fn says(&self, kubeconfig: Option<&Path>) -> String {
        let log = self.folder.join("log");
        let out = File::create(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_readme-operator"));
        command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default()).env("HOME", &self.folder);
        command.env("RUST_BACKTRACE", "0").env("NO_COLOR", "1");
        if let Some(kubeconfig) = kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        let err = out.try_clone().unwrap();
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        let mut operator = Operator(child);
        for _ in 0..PATIENCE {
            let ended = operator.0.try_wait().unwrap().is_some();
            let said = self.cleaned(&fs::read_to_string(&log).unwrap());
            if ended || said.contains("WARN") || said.contains("ERROR") {
                return said;
            }
            #[expect(clippy::disallowed_methods, reason = "another process takes real time")]
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("nothing was said: {}", fs::read_to_string(&log).unwrap());
    }

    /// Leaves out what went well, and what varies.
    fn cleaned(&self, said: &str) -> String {
        let mut lines = String::new();
        for line in said.lines().filter(|line| !line.contains(" INFO ")) {
            lines.push_str(line);
            lines.push('\n');
        }
        let folder = regex::escape(&self.folder.display().to_string());
        for (varies, constant) in [
            (folder.as_str(), "<folder>"),
            (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:<port>"),
            (r"trying again in [0-9.]+m?s", "trying again in <time>"),
            (r"[0-9-]+T[0-9:.]+Z +", ""),
            (r"failed to lookup address information: .*?;", "failed to lookup address information: <words>;"),
        ] {
            lines = Regex::new(varies).unwrap().replace_all(&lines, constant).into_owned();
        }
        lines
    }
}

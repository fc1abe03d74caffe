//! Who may do what by roles: the same roles, questions and requests for this server and, where there is one, a real
//! kube-apiserver.
//!
//! `WATCHKEEPER_KUBE_APISERVER` names the folder of the real servers' binaries (`tests/kube-apiserver/build` makes
//! them). Without it the answers are compared with what is written down here alone, and a line says so.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::serde_json::{Value, json};
use kube::Client;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use watchkeeper_apiserver::ApiServer;

mod tables;

use tables::{ACTS, Act, QUESTIONS, Question, objects};

/// What came back: the code and the body.
#[derive(Clone, Debug, PartialEq)]
struct Answer(u16, Value);

impl Answer {
    fn message(&self) -> &str {
        self.1["message"].as_str().unwrap_or_default()
    }
}

/// A server, by a client of its administrator and one of a user without rights.
struct Target {
    admin: Client,
    viewer: Client,
}

impl Target {
    async fn of(kubeconfig: Kubeconfig) -> Self {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let with_token = |token: &str| {
            let mut config = config.clone();
            config.default_retry = false;
            let token: Value = json!({ "token": token });
            config.auth_info = k8s_openapi::serde_json::from_value::<AuthInfo>(token).unwrap();
            Client::try_from(config).unwrap()
        };
        Self { admin: with_token("admin-token"), viewer: with_token("viewer-token") }
    }

    async fn send(&self, act: &Act<'_>) -> Answer {
        let mut request = Request::builder().method(act.method.parse::<Method>().unwrap()).uri(act.path);
        for (name, value) in act.headers {
            request = request.header(*name, *value);
        }
        if act.method == "PATCH" {
            request = request.header("content-type", "application/merge-patch+json");
        } else {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(kube::client::Body::from(act.body.as_bytes().to_vec())).unwrap();
        let client = if act.viewer { &self.viewer } else { &self.admin };
        let response = client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let body = k8s_openapi::serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer(code, body)
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.send(&Act { method: "POST", path, body: &body, headers: &[], viewer: false, code: 201 }).await
    }

    async fn ask(&self, question: &Question) -> Value {
        let spec = question.spec();
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let Answer(code, body) = self.post(path, &review).await;
        assert_eq!(code, 201, "{body}");
        body["status"].clone()
    }

    /// Creates what the questions are about, and waits until the aggregated roles are made.
    async fn prepare(&self) {
        for (path, object) in objects() {
            let Answer(code, body) = self.post(path, &object).await;
            assert_eq!(code, 201, "{object}: {body}");
        }
        for _ in 0..600 {
            let made = [
                Question::of("vic", "get", "", "pods", "shop", ""),
                Question::of("ada", "create", "rbac.authorization.k8s.io", "roles", "shop", ""),
                Question::of("agg", "get", "example.com", "widgets", "", ""),
            ];
            let mut all = true;
            for question in &made {
                all &= self.ask(question).await["allowed"] == true;
            }
            if all {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the aggregated roles are not made");
    }
}

/// The real servers under way; they end with it.
struct Real(Vec<Child>, Target);

impl Drop for Real {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // Each may have ended by itself.
            let _gone = process.kill();
            let _ended = process.wait();
        }
    }
}

impl Real {
    async fn start(binaries: &Path) -> Self {
        let mut server = Command::new(binaries.join("kube-apiserver"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let kubeconfig = lines
            .map_while(Result::ok)
            .find_map(|line| {
                line.trim_start_matches("export ").strip_prefix("KUBECONFIG=").map(str::to_owned)
            })
            .expect("the server says where its kubeconfig is");
        let manager = Command::new(binaries.join("kube-controller-manager"))
            .args(["-kubeconfig", &kubeconfig, "-controllers", "clusterrole-aggregation-controller"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let target = Target::of(Kubeconfig::read_from(kubeconfig.trim()).unwrap()).await;
        Self(vec![manager, server], target)
    }
}

// A6 A7 A8 A9
#[tokio::test]
async fn roles_decide_as_in_a_real_server() {
    let own = ApiServer::http().rbac().start().await.unwrap();
    let own = (Target::of(own.kubeconfig()).await, own);
    own.0.prepare().await;
    let real = match std::env::var_os("WATCHKEEPER_KUBE_APISERVER") {
        None => {
            eprintln!("authz: the real server was NOT asked: WATCHKEEPER_KUBE_APISERVER is not set");
            None
        }
        Some(binaries) => {
            let real = Real::start(Path::new(&binaries)).await;
            real.1.prepare().await;
            Some(real)
        }
    };
    let mut wrong = Vec::new();
    for question in QUESTIONS {
        let status = own.0.ask(question).await;
        if status["allowed"] != question.allowed {
            wrong.push(format!("{question:?} is answered {status}"));
        }
        if let Some(real) = &real {
            let theirs = real.1.ask(question).await;
            if theirs != status {
                wrong.push(format!("{question:?}:\n  here    {status}\n  there   {theirs}"));
            }
        }
    }
    for act in ACTS {
        let answer = own.0.send(act).await;
        if answer.0 != act.code {
            wrong.push(format!("{act:?} is answered {} {}", answer.0, answer.message()));
        }
        if let Some(real) = &real {
            let theirs = real.1.send(act).await;
            if (theirs.0, theirs.message()) != (answer.0, answer.message()) {
                let (own, there) = (answer.message(), theirs.message());
                wrong.push(format!("{act:?}:\n  here  {} {own}\n  there {} {there}", answer.0, theirs.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    let with = if real.is_some() { "equal on both servers" } else { "as written down" };
    eprintln!("authz: {} questions and {} requests, {with}", QUESTIONS.len(), ACTS.len());
}

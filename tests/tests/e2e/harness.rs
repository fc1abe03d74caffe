//! Runs each test on each server there is, and never counts a run that did not happen.

#![expect(clippy::print_stdout, reason = "a report is printed")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures::future::LocalBoxFuture;
use tokio::{runtime, sync::OnceCell, time::Instant};
use watchkeeper::Manager;
use watchkeeper_tests::{
    Website,
    backend::{BINARIES, Backend, KubeApiserver, Log, Server, Stage, User, binaries},
};

/// How long a test may take, unless the environment allows more.
const LIMIT: Duration = Duration::from_secs(150);
/// The environment variable that allows more, in seconds: for tests that are asked to do more than usual.
const MORE: &str = "WATCHKEEPER_E2E_LIMIT";
/// How many tests run at once unless told otherwise: they wait more than they work.
const THREADS: usize = 4;
/// How much of the log of a test that failed is shown.
const SHOWN: usize = 40;

/// A test, for any server.
#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) module: &'static str,
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    pub(crate) run: fn(Stage) -> LocalBoxFuture<'static, ()>,
}

/// Which server a test can run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// One that others use meanwhile.
    Shared,
    /// One for itself: it is restarted, or its history forgotten.
    Own,
}

/// Lists a module's tests: `tests! { Shared: a, b; Own: c }`.
macro_rules! tests {
    ($($needs:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        pub(crate) const TESTS: &[$crate::harness::Test] = &[$($(
            $crate::harness::Test {
                module: module_path!(),
                name: stringify!($name),
                needs: $crate::harness::Needs::$needs,
                run: |stage| Box::pin($name(stage)),
            }
        ),+),+];
    };
}
pub(crate) use tests;

/// A test on a server.
#[derive(Clone, Copy)]
struct Case {
    test: Test,
    backend: Backend,
}

impl Case {
    fn name(&self) -> String {
        let module = self.test.module.rsplit("::").next().unwrap_or_default();
        format!("{}::{module}::{}", self.backend.name(), self.test.name)
    }
}

/// What the command line asks for; what it does not know it leaves alone, as the usual harness has more of it.
struct Asked {
    parts: Vec<String>,
    list: bool,
    threads: usize,
}

impl Asked {
    fn read() -> Self {
        let mut asked = Self { parts: Vec::new(), list: false, threads: THREADS };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => asked.list = true,
                "--test-threads" => {
                    asked.threads = words.next().and_then(|n| n.parse().ok()).unwrap_or(THREADS)
                }
                "--skip" | "--format" | "--color" => drop(words.next()),
                option if option.starts_with('-') => {}
                part => asked.parts.push(part.to_owned()),
            }
        }
        asked
    }

    fn wants(&self, case: &Case) -> bool {
        let name = case.name();
        self.parts.is_empty() || self.parts.iter().any(|part| name.contains(part.as_str()))
    }
}

/// How a test went.
struct Outcome {
    case: Case,
    failure: Option<String>,
}

/// Runs the tests that the command line asks for; fails when one does.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let asked = Asked::read();
    let on = |backend| tests.iter().map(move |test| Case { test: *test, backend });
    let all = on(Backend::Embedded).chain(on(Backend::KubeApiserver));
    let wanted: Vec<_> = all.filter(|case| asked.wants(case)).collect();
    if asked.list {
        wanted.iter().for_each(|case| println!("{}: test", case.name()));
        return ExitCode::SUCCESS;
    }
    let real = binaries().is_some();
    let cases: Vec<_> = wanted.into_iter().filter(|case| real || case.backend == Backend::Embedded).collect();
    println!("\nrunning {} tests", cases.len());
    let outcomes = run_all(&cases, asked.threads);
    report(&outcomes, real)
}

/// Runs tests on this many threads, those on the slower server first.
fn run_all(cases: &[Case], threads: usize) -> Vec<Outcome> {
    let mut order = cases.to_vec();
    order.sort_by_key(|case| std::cmp::Reverse((case.backend, case.test.needs == Needs::Own)));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let shared = OnceCell::new();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, order.len().max(1)) {
            scope.spawn(|| {
                while let Some(case) = order.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let outcome = run_one(*case, &shared);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test on a thread of its own, whose name a panic shows.
fn run_one(case: Case, shared: &OnceCell<Arc<KubeApiserver>>) -> Outcome {
    let (name, started) = (case.name(), Instant::now());
    let log = Log::default();
    let work = || {
        let _taken = log.take();
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(case, shared, log.clone()))));
        runtime.shutdown_timeout(Duration::from_secs(5));
        result.err().map(|panic| message(&*panic))
    };
    let failure = thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.clone()).spawn_scoped(scope, work).unwrap();
        thread.join().unwrap_or_else(|panic| Some(message(&*panic)))
    });
    let verdict = if failure.is_some() { "FAILED" } else { "ok" };
    println!("test {name} ... {verdict} ({:.1} s)", started.elapsed().as_secs_f64());
    if failure.is_some() {
        println!("  the end of its log:\n{}", log.tail(SHOWN));
    }
    Outcome { case, failure }
}

async fn play(case: Case, shared: &OnceCell<Arc<KubeApiserver>>, log: Log) {
    let server = match (case.backend, case.test.needs) {
        (Backend::Embedded, _) => Server::embedded().await,
        (Backend::KubeApiserver, Needs::Own) => {
            Server::KubeApiserver(Arc::new(KubeApiserver::start(binaries().unwrap()).await))
        }
        (Backend::KubeApiserver, Needs::Shared) => {
            Server::KubeApiserver(shared.get_or_init(start_shared).await.clone())
        }
    };
    let started = Instant::now();
    let namespace = format!("e2e-{}", case.test.name.replace('_', "-")).chars().take(40).collect::<String>();
    let stage = Stage::set(server, namespace.trim_end_matches('-'), log).await;
    stage.install::<Website>().await;
    let asked = std::env::var(MORE).ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let limit = asked.unwrap_or(LIMIT);
    let run = tokio::time::timeout(limit.saturating_sub(started.elapsed()), (case.test.run)(stage)).await;
    assert!(run.is_ok(), "not through within {limit:?}");
}

/// Starts the server that tests share, with its controllers once the kinds of the suite are served.
async fn start_shared() -> Arc<KubeApiserver> {
    let shared = Arc::new(KubeApiserver::start(binaries().unwrap()).await);
    let (client, _) = Server::KubeApiserver(shared.clone()).client(User::Admin, "default").await;
    Manager::new(client).install_crd::<Website>().await.unwrap();
    shared.start_controllers();
    shared
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

fn report(outcomes: &[Outcome], real: bool) -> ExitCode {
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.failure.is_some()).collect();
    println!();
    for outcome in &failed {
        let failure = outcome.failure.as_deref().unwrap_or_default();
        println!("FAILED {}\n  {}\n", outcome.case.name(), failure.replace('\n', "\n  "));
    }
    for backend in [Backend::Embedded, Backend::KubeApiserver] {
        let on = |outcomes: &[&Outcome]| outcomes.iter().filter(|one| one.case.backend == backend).count();
        let (ran, failed) = (on(&outcomes.iter().collect::<Vec<_>>()), on(&failed));
        match backend {
            Backend::KubeApiserver if !real => {
                println!("kube-apiserver: not run ({BINARIES} is not set); 0 tests ran there");
            }
            _ => println!("{}: {ran} tests ran, {failed} failed", backend.name()),
        }
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

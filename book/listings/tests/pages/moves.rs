//! How the work moves between replicas: drawn from runs of a controller.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use tokio::time::{Instant, sleep};
use watchkeeper::{prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::ApiServer;

use super::{
    marked::assert_is,
    svg::{picture, stroke, text},
};

const MOVE: &str = "book/src/pictures/move.svg";
const TENANTS: usize = 6;
/// When the picture begins, in seconds after the first replica was started; it is at work then.
const BEGINS: u64 = 40;
/// When the second replica is started, when the first one is stopped, and when the picture ends.
const STARTS: u64 = 4;
const STOPS: u64 = 32;
const ENDS: u64 = 40;

/// A run: the replica, the tenant, and the seconds at which it began and ended.
type RunOf = (usize, usize, f64, f64);

/// Works for a while each time.
struct Works {
    replica: usize,
    start: Instant,
    runs: Arc<Mutex<Vec<RunOf>>>,
}

impl Reconciler<ConfigMap> for Works {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, map: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        let tenant: usize = map.name_any().parse().expect("it is named so");
        let began = self.start.elapsed().as_secs_f64();
        sleep(Duration::from_millis(1_200 + 300 * tenant as u64)).await;
        let run = (self.replica, tenant, began, self.start.elapsed().as_secs_f64());
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(Action::requeue_after(Duration::from_millis(600)))
    }
}

/// Plays it. Returns the runs, by the seconds of the picture.
async fn played() -> Vec<RunOf> {
    let mut server = ApiServer::in_memory().seed(7).namespace("maps");
    for tenant in 0..TENANTS {
        server = server.namespace(format!("tenant-{tenant}"));
    }
    let server = server.start().await;
    for tenant in 0..TENANTS {
        let (name, namespace) = (Some(tenant.to_string()), Some(format!("tenant-{tenant}")));
        let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
    let (start, runs) = (Instant::now(), Arc::default());
    let replica = |replica: usize| {
        let config = ReflectorConfig { seed: Some(replica as u64), ..ReflectorConfig::default() };
        let works = Works { replica, start, runs: Arc::clone(&runs) };
        let controller = Controller::new(works).workers(TENANTS);
        Manager::with_config(server.client(), config).sharded("maps").controller(controller).spawn()
    };
    let first = replica(0);
    sleep(Duration::from_secs(BEGINS + STARTS)).await;
    let second = replica(1);
    sleep(Duration::from_secs(STOPS - STARTS)).await;
    let (stopped, ()) = tokio::join!(first.stop(), sleep(Duration::from_secs(ENDS - STOPS)));
    stopped.unwrap();
    second.stop().await.unwrap();
    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    let since = |at: f64| at - BEGINS as f64;
    runs.iter().map(|(replica, tenant, from, to)| (*replica, *tenant, since(*from), since(*to))).collect()
}

fn draw(runs: &[RunOf]) -> String {
    let x = |second: f64| (680.0 + 92.0 * second.clamp(0.0, ENDS as f64)).round() / 10.0;
    let row = |tenant: usize| 56.0 + 24.0 * tenant as f64;
    let mut body = String::new();
    for tenant in 0..TENANTS {
        body += &text(62.0, row(tenant) + 13.0, "s e", &format!("tenant {}", tenant + 1));
    }
    for (replica, tenant, from, to) in runs {
        let (left, right) = (x(*from), x(*to));
        if right - left > 0.5 && *from < ENDS as f64 {
            let fill = if *replica == 0 { "opacity=\".35\"" } else { "opacity=\".85\"" };
            body += &format!(
                "<rect x=\"{left}\" y=\"{}\" width=\"{:.1}\" height=\"16\" fill=\"currentColor\" {fill}/>\n",
                row(*tenant),
                right - left
            );
        }
    }
    let bottom = row(TENANTS);
    for (second, what) in [(STARTS, "replica 2 starts"), (STOPS, "replica 1 stops")] {
        let x = x(second as f64);
        body += &stroke(&format!("M{x} 30V{bottom}"), " stroke-dasharray=\"4 4\"");
        body += &text(x, 24.0, "s m", what);
    }
    body += &stroke(&format!("M{} {bottom}H{}", x(0.0), x(ENDS as f64)), "");
    for second in (0..=ENDS).step_by(10) {
        body += &text(x(second as f64), bottom + 20.0, "s m", &format!("{second} s"));
    }
    body += &text(8.0, bottom + 44.0, "s", "faint: runs of replica 1; strong: runs of replica 2");
    picture("Runs of six tenants while the work moves between two replicas", bottom as usize + 54, &body)
}

#[tokio::test(start_paused = true)]
async fn the_picture_of_a_move_is_that_of_a_run() {
    let mut runs = played().await;
    runs.sort_by(|one, other| (one.1, one.2).partial_cmp(&(other.1, other.2)).expect("no NaN"));
    for pair in runs.windows(2) {
        assert!(pair[0].1 != pair[1].1 || pair[0].3 <= pair[1].2, "two work on one tenant: {pair:?}");
    }
    let of_second = runs.iter().filter(|run| run.0 == 1);
    let first_of_second = of_second.map(|run| run.2).fold(f64::INFINITY, f64::min);
    assert!((STARTS as f64 + 15.0..STARTS as f64 + 20.0).contains(&first_of_second), "{first_of_second}");
    assert_is(MOVE, &draw(&runs));
}

//! Back-off and the rate limit over time: drawn from runs of a controller.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use tokio::time::{Instant, sleep, timeout};
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;

use super::{
    marked::assert_is,
    svg::{picture, stroke, text},
};

const BACKOFF: &str = "book/src/pictures/backoff.svg";
const LIMIT: &str = "book/src/pictures/limit.svg";

/// How often a run fails before it succeeds.
const FAILURES: usize = 9;
/// The limit that is drawn, and how many objects wait for it.
const RATE: u32 = 5;
const BURST: u32 = 20;
const OBJECTS: usize = 50;

/// Notes when each run begins; the first ones fail.
#[derive(Clone, Debug, Default)]
struct Noting {
    begun: Arc<Mutex<Vec<Instant>>>,
    failures: usize,
}

impl Noting {
    fn begun(&self) -> Vec<Instant> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Reconciler<ConfigMap> for Noting {
    type Error = std::io::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.push(Instant::now());
        if begun.len() > self.failures {
            Ok(Action::await_change())
        } else {
            Err(std::io::Error::other("the registrar can't be reached"))
        }
    }
}

/// Runs a controller over some objects until it has run so often; returns the seconds at which the runs began.
async fn starts(noting: Noting, objects: usize, runs: usize, limit: Option<RateLimit>) -> Vec<f64> {
    let server = ApiServer::in_memory().seed(7).namespace("shop").start().await;
    for number in 0..objects {
        let metadata = ObjectMeta { name: Some(format!("map-{number}")), ..ObjectMeta::default() };
        server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
    let mut controller = Controller::new(noting.clone()).namespace("shop");
    if let Some(limit) = limit {
        controller = controller.rate_limit(limit);
    }
    let running = Manager::new(server.client()).controller(controller).spawn();
    let enough = async {
        while noting.begun().len() < runs {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(60), enough).await.expect("it runs so often");
    running.stop().await.unwrap();
    let begun = noting.begun();
    begun.iter().map(|at| at.duration_since(begun[0]).as_secs_f64()).collect()
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// A bar for each wait, on a scale on which double is one step.
fn draw_backoff(starts: &[f64]) -> String {
    let mut body = text(8.0, 20.0, "s", "milliseconds until the next run");
    for (number, pair) in starts.windows(2).enumerate() {
        let wait = ((pair[1] - pair[0]) * 1000.0).round();
        let (x, height) = (14.0 + 49.0 * number as f64, tenths(14.0 + 17.0 * (wait / 5.0).log2()));
        body += &format!(
            "<rect x=\"{x}\" y=\"{:.1}\" width=\"40\" height=\"{height}\" fill=\"currentColor\" opacity=\".35\"/>\n",
            212.0 - height
        );
        body += &text(x + 20.0, tenths(206.0 - height), "s m", &format!("{wait}"));
        body += &text(x + 20.0, 230.0, "s m", &format!("{}", number + 1));
    }
    body += &stroke("M8 212H452", "");
    body += &text(8.0, 252.0, "s", "after so many failures in a row; each step up is double");
    picture("The wait after each failure", 262, &body)
}

/// How many runs began, over time, and how many may have.
fn draw_limit(starts: &[f64]) -> String {
    let x = |seconds: f64| tenths(40.0 + 68.0 * seconds);
    let y = |runs: f64| tenths(212.0 - 3.7 * runs);
    let mut path = format!("M{} {}", x(0.0), y(0.0));
    for (number, at) in (1..).zip(starts) {
        path += &format!("H{}V{}", x(*at), y(f64::from(number)));
    }
    path += &format!("H{}", x(6.0));
    let most = f64::from(BURST + RATE * 6);
    let mut body = stroke(&path, " stroke-width=\"2.5\"");
    body += &stroke(
        &format!("M{} {}L{} {}", x(0.0), y(f64::from(BURST)), x(6.0), y(most)),
        " stroke-dasharray=\"4 4\"",
    );
    body += &stroke(&format!("M{} {}V212H{}", x(0.0), y(most), x(6.0)), "");
    for runs in [0, 10, 20, 30, 40, 50] {
        body += &text(34.0, y(f64::from(runs)) + 5.0, "s e", &runs.to_string());
    }
    for second in 0..=6_u32 {
        body += &text(x(f64::from(second)), 232.0, "s m", &format!("{second} s"));
    }
    body += &text(50.0, 20.0, "s", "runs begun");
    body += &text(x(2.6), y(38.0), "s e", "burst + rate × time");
    body += &text(x(2.6), y(24.0), "s", "the runs of 50 objects");
    picture("Runs under a rate limit of 5 a second with a burst of 20", 242, &body)
}

#[tokio::test(start_paused = true)]
async fn the_picture_of_back_off_is_that_of_a_run() {
    let noting = Noting { failures: FAILURES, ..Noting::default() };
    let starts = starts(noting, 1, FAILURES + 1, None).await;
    assert_is(BACKOFF, &draw_backoff(&starts));
}

#[tokio::test(start_paused = true)]
async fn the_picture_of_the_rate_limit_is_that_of_a_run() {
    let limit = RateLimit::per_second(RATE).burst(BURST);
    let starts = starts(Noting::default(), OBJECTS, OBJECTS, Some(limit)).await;
    let may = |at: f64| f64::from(BURST) + f64::from(RATE) * at;
    for (number, at) in (1..).zip(&starts) {
        assert!(f64::from(number) <= may(*at) + 1e-6, "run {number} after {at} s");
    }
    assert_is(LIMIT, &draw_limit(&starts));
}

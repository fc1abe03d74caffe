//! Stops leaders whose runs block a thread: never two replicas at work on a key, and the second signal always ends.

#![expect(clippy::print_stdout, reason = "the report is the point")]

use std::time::{Duration, UNIX_EPOCH};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::clock::WallClock;
use watchkeeper_tests::{Website, backend::User, website};

use crate::{
    Stage,
    replica::{Replica, overlaps},
};

/// How long each run blocks, in seconds: longer than the grace period.
const BLOCK: u64 = 45;

pub(crate) async fn run(stage: &Stage, rounds: usize) -> anyhow::Result<bool> {
    let played = futures::future::join_all((0..rounds).map(|round| one(stage, round))).await;
    let mut good = true;
    println!("round overlaps ended_after_one_signal_s ended_after_second_signal_s taken_over_after_s");
    for outcome in played {
        let (line, is_good) = outcome?;
        println!("{line}");
        good &= is_good;
    }
    Ok(good)
}

async fn one(stage: &Stage, round: usize) -> anyhow::Result<(String, bool)> {
    let namespace = format!("stop-{round}");
    let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    Api::<Namespace>::all(stage.client.clone()).create(&PostParams::default(), &object).await?;
    let sites = Api::<Website>::namespaced(stage.client.clone(), &namespace);
    for at in 0..4 {
        sites.create(&PostParams::default(), &website(&format!("site-{at}"))).await?;
    }
    let kubeconfig = stage.server.kubeconfig_text(User::Admin);
    let start = |name: &str| Replica::start(None, name, &namespace, &kubeconfig, Some(BLOCK));
    let mut first = start("one")?;
    works(&first).await?;
    let second = start("two")?;
    sleep(Duration::from_secs(2)).await;
    let signalled = Instant::now();
    first.signal("-TERM")?;
    // Every other round sends the second signal while the run still blocks.
    let twice = round % 2 == 1;
    let (mut by_one, mut by_two) = (None, None);
    let mut gone = None;
    if twice {
        sleep(Duration::from_secs(2 + round as u64)).await;
        let again = Instant::now();
        first.signal("-TERM")?;
        by_two = first.ends(Duration::from_secs(10)).await?.map(|_| again.elapsed());
        gone = Some(now());
    } else {
        by_one = first.ends(Duration::from_secs(120)).await?.map(|_| signalled.elapsed());
    }
    works(&second).await?;
    let taken_over = signalled.elapsed();
    let (mut of_first, of_second) = (first.work.stretches(), second.work.stretches());
    // The process is gone, and its work with it.
    of_first.iter_mut().for_each(|stretch| stretch.ended = stretch.ended.or(gone));
    let overlaps = overlaps(&of_first, &of_second);
    let ended = by_one.is_some() || by_two.is_some();
    let seconds =
        |took: Option<Duration>| took.map_or("-".into(), |took| format!("{:.2}", took.as_secs_f64()));
    let line =
        format!("{round} {overlaps} {} {} {:.1}", seconds(by_one), seconds(by_two), taken_over.as_secs_f64());
    Ok((line, overlaps == 0 && ended))
}

async fn works(replica: &Replica) -> anyhow::Result<()> {
    let began = Instant::now();
    while replica.work.stretches().is_empty() {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(120), "it does not work");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Returns the time of day as replicas report it, in microseconds since 1970.
fn now() -> u128 {
    WallClock::system().now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

//! The benches: each describes a comparison, and measures one side in a process of its own.

mod build_cost;
mod fairness;
mod fan_out;
mod idle;
mod initial_list;
mod latency;
mod lister_get;
mod queue;
mod readers_writer;
mod reads;
mod reconcile_throughput;
mod relist;
mod scale;
mod server;
mod shards;
mod soak;
mod watch_throughput;

pub(crate) use server::{is_on_one_thread, serve as serve_kubernetes};

use crate::{
    contest::Settings,
    job::{Bench, Job},
    measure::Measures,
};

/// How often each side runs by default.
pub(crate) fn usual_runs(bench: Bench) -> usize {
    match bench {
        Bench::Idle | Bench::Scale | Bench::Soak | Bench::Shards | Bench::BuildCost => 1,
        _ => 3,
    }
}

/// Runs a bench and prints its tables.
pub(crate) fn run(bench: Bench, settings: &Settings) -> anyhow::Result<()> {
    match bench {
        Bench::InitialList => initial_list::run(settings),
        Bench::WatchThroughput => watch_throughput::run(settings),
        Bench::FanOut => fan_out::run(settings),
        Bench::ReadersWriter => readers_writer::run(settings),
        Bench::Reads => reads::run(settings),
        Bench::ListerGet => lister_get::run(settings),
        Bench::Relist => relist::run(settings),
        Bench::Idle => idle::run(settings),
        Bench::Scale => scale::run(settings),
        Bench::Soak => soak::run(settings),
        Bench::Queue => queue::run(settings),
        Bench::Latency => latency::run(settings),
        Bench::ReconcileThroughput => reconcile_throughput::run(settings),
        Bench::Fairness => fairness::run(settings),
        Bench::Server => server::run(settings),
        Bench::Shards => shards::run(settings),
        Bench::BuildCost => build_cost::run(settings),
    }
}

/// Measures one side once, in this process.
pub(crate) async fn measure(job: Job) -> anyhow::Result<Measures> {
    match job.bench {
        Bench::InitialList => initial_list::measure(&job).await,
        Bench::WatchThroughput => watch_throughput::measure(&job).await,
        Bench::FanOut => fan_out::measure(&job).await,
        Bench::ReadersWriter => readers_writer::measure(&job),
        Bench::Reads => reads::measure(&job).await,
        Bench::ListerGet => lister_get::measure(&job),
        Bench::Relist => relist::measure(&job).await,
        Bench::Idle => idle::measure(&job).await,
        Bench::Scale => scale::measure(&job).await,
        Bench::Soak => soak::measure(&job).await,
        Bench::Queue => queue::measure(&job).await,
        Bench::Latency => latency::measure(&job).await,
        Bench::ReconcileThroughput => reconcile_throughput::measure(&job).await,
        Bench::Fairness => fairness::measure(&job).await,
        Bench::Server => server::measure(&job).await,
        Bench::Shards => shards::measure(&job).await,
        Bench::BuildCost => build_cost::measure(&job),
    }
}

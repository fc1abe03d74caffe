//! watchkeeper beside its peers: `cargo run --release -p watchkeeper-benches -- NAME`.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod prepared;
mod reconcile_throughput;
mod report;

use clap::{Parser, ValueEnum};

/// Measures watchkeeper and its peers, in turn, on the same bytes.
#[derive(Parser)]
struct Arguments {
    /// Which bench to run.
    bench: Bench,
    /// How often each side runs.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bench {
    /// No-op reconciles of 50,000 keys; 20,000 reconciles in flight that end at staggered times.
    ReconcileThroughput,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.bench {
        Bench::ReconcileThroughput => reconcile_throughput::run(arguments.runs),
    }
}

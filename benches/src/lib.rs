//! watchkeeper compared with its peers: `cargo run --release -p watchkeeper-benches -- NAME`.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod clock;
mod measure;
mod job;
mod gadget;
mod pod;
mod server;
mod go;
mod kube_apiserver;
mod place;
mod report;
mod plot;
mod results;
mod findings;
mod render;
mod contest;
mod kit;
mod benches;
mod instructions;

use clap::{Parser, Subcommand};

use crate::{
    contest::{Extent, Kept, Settings},
    instructions::{Path, Purpose},
    job::{Bench, Cores, Job},
    results::{Origin, Results},
};

/// Measures watchkeeper and its peers, in turn, on the same bytes.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// The benches to run, one after another.
    #[arg(required = true)]
    benches: Vec<Bench>,
    /// How often each side runs; each bench has a default.
    #[arg(long)]
    runs: Option<usize>,
    /// Measures a million objects as well, which takes many minutes.
    #[arg(long)]
    full: bool,
    /// Measures small sizes, to try a bench.
    #[arg(long, conflicts_with_all = ["full", "save"])]
    small: bool,
    /// Measures only the tables whose title contains this text.
    #[arg(long)]
    table: Option<String>,
    /// Saves the figures for README and book: see `render`.
    #[arg(long)]
    save: bool,
    #[command(subcommand)]
    inner: Option<Inner>,
}

/// The purpose for which the program starts itself.
#[derive(Subcommand)]
enum Inner {
    /// Counts the instructions of eight hot paths under valgrind; fails if one takes a tenth more than its baseline.
    Instructions {
        /// Saves the counts as the baseline.
        #[arg(long)]
        save: bool,
    },
    /// Writes the saved figures into the READMEs and the book.
    Render,
    /// Runs a hot path this many times.
    #[command(hide = true)]
    Path { path: Path, rounds: u64 },
    /// Measures one side once.
    #[command(hide = true)]
    Measure { job: String },
    /// Serves prepared answers.
    #[command(hide = true)]
    Serve { objects: usize },
    /// Serves the embedded API server.
    #[command(hide = true)]
    ServeKubernetes,
}

/// Runs what the command line requests.
///
/// # Errors
/// In words: what could not be measured.
pub fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.inner {
        Some(Inner::Serve { objects }) => return server::serve(objects),
        Some(Inner::Render) => return render::render(),
        Some(Inner::Path { path, rounds }) => return instructions::run(path, rounds),
        Some(Inner::Instructions { save }) => {
            return instructions::count(if save { Purpose::Save } else { Purpose::Compare });
        }
        Some(Inner::ServeKubernetes) => return benches::serve_kubernetes(),
        Some(Inner::Measure { job }) => {
            let job = serde_json::from_str::<Job>(&job)?;
            let threads = match job.cores {
                Cores::All if !benches::is_on_one_thread(&job) => kit::Threads::All,
                _ => kit::Threads::One,
            };
            let measures = kit::alone(threads, job.seconds, benches::measure(job))?;
            println!("{}", serde_json::to_string(&measures)?);
            return Ok(());
        }
        None => {}
    }
    let cores = std::thread::available_parallelism()?;
    println!(
        "{cores} cores; each run is a process of its own, sides in turn; the system's allocator unless a table says \
         another; ratio: how many times better the first row is"
    );
    let extent = match (arguments.small, arguments.full) {
        (true, _) => Extent::Small,
        (false, true) => Extent::Full,
        (false, false) => Extent::Usual,
    };
    let kept = if arguments.save { Kept::Saved } else { Kept::Printed };
    if arguments.save {
        Results::may_keep(&Origin::now()?)?;
    }
    let mut left_out = Some(Vec::new());
    for bench in arguments.benches {
        let runs = arguments.runs.unwrap_or_else(|| benches::usual_runs(bench)).max(1);
        let settings = Settings::new(runs, extent, kept, arguments.table.clone());
        benches::run(bench, &settings)?;
        left_out = left_out.zip(settings.left_out()).map(|(all, titles)| [all, titles].concat());
    }
    let Some((only, titles)) = arguments.table.zip(left_out) else { return Ok(()) };
    anyhow::bail!("no title contains {only:?}; the tables are:\n  {}", titles.join("\n  "))
}

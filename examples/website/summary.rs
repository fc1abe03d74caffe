//! The results of a demo, as `name: value` lines.

use std::process::ExitCode;

use super::{
    journal::Figures,
    operator::{BURST, RATE},
};

/// The visitor's observations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Sites that got a Deployment and a status that reports it.
    pub(crate) sites_created: u32,
    /// Edits of sites that reached the Deployment and the status.
    pub(crate) edits_followed: u32,
    /// Deployments that came back after they were deleted.
    pub(crate) children_healed: u32,
    /// Deployments that came back although the operator was down when they were deleted.
    pub(crate) children_healed_after_cut: u32,
    /// Deleted sites that went, with their Deployments, once cleanup had run.
    pub(crate) sites_cleaned_up: u32,
    /// Deployments that went with their sites: the work of the server's garbage collector.
    pub(crate) children_collected: u32,
    /// Changes whose final state never appeared.
    pub(crate) lost: Vec<String>,
}

/// One line of the summary, and whether it is as it must be.
struct Line {
    name: &'static str,
    value: String,
    fine: bool,
}

fn at_least(name: &'static str, least: u32, value: u32) -> Line {
    Line { name, value: value.to_string(), fine: value >= least }
}

/// Prints the summary; fails where something did not come true, saying what.
pub(crate) fn print(seen: &Seen, figures: &Figures, sites: u32) -> ExitCode {
    let bound = (BURST + RATE) as usize;
    let lines = [
        at_least("sites created", sites, seen.sites_created),
        at_least("edits followed", 1, seen.edits_followed),
        at_least("children healed", 1, seen.children_healed),
        at_least("children healed after a cut watch", 1, seen.children_healed_after_cut),
        at_least("sites cleaned up", 1, seen.sites_cleaned_up),
        at_least("children garbage-collected", 0, seen.children_collected),
        Line {
            name: "finalizers run",
            value: figures.released.len().to_string(),
            fine: !figures.released.is_empty(),
        },
        Line {
            name: "requeues on time",
            value: figures.requeues_on_time.to_string(),
            fine: figures.requeues_on_time >= u64::from(sites) / 2,
        },
        Line {
            name: "requeues late",
            value: figures.requeues_late.to_string(),
            fine: figures.requeues_late == 0,
        },
        Line { name: "changes lost", value: seen.lost.len().to_string(), fine: seen.lost.is_empty() },
        Line { name: "reconciles", value: figures.reconciles.to_string(), fine: true },
        Line {
            name: "most reconciles started in a second",
            value: format!("{} (limit {bound} = burst {BURST} + rate {RATE} x 1 s)", figures.busiest_second),
            fine: figures.busiest_second <= bound,
        },
    ];
    println!("--- summary");
    for line in &lines {
        println!("{}: {}", line.name, line.value);
    }
    seen.lost.iter().for_each(|lost| println!("lost: {lost}"));
    let wrong: Vec<_> = lines.iter().filter(|line| !line.fine).map(|line| line.name).collect();
    if wrong.is_empty() {
        println!("all came true");
        return ExitCode::SUCCESS;
    }
    println!("did not come true: {}", wrong.join(", "));
    ExitCode::FAILURE
}

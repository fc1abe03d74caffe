//! `fan-out`: what many controllers on one kind share, and what each costs.

use super::latency::paced;
use crate::{
    contest::{Contest, Settings},
    job::{Bench, Job, Mode, Side},
    kit::{self, Tally},
    measure::Measures,
    report::{Column, Goal::AtMost, Goals, Row, counted},
};

const OBJECTS: usize = 10_000;
const A_SECOND: usize = 1_000;
const SECONDS: u64 = 2;

/// Runs the bench with 1, 10 and 50 controllers, and reports the cost of one more.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut tables = Vec::new();
    for users in [1, 10, 50] {
        tables.push((users, table(settings, users)?));
    }
    let (Some((_, one)), Some((many, most))) = (tables.first(), tables.last()) else { return Ok(()) };
    growth(one, most, *many);
    Ok(())
}

fn table(settings: &Settings, users: usize) -> anyhow::Result<Vec<Row>> {
    let events = A_SECOND * SECONDS as usize;
    let job = Job::new(Bench::FanOut, OBJECTS).events(events).seconds(SECONDS).users(users);
    let one: &Goals = &[("requests", AtMost(2.0))];
    Contest::served(
        format!("fan-out: {} on 10000 objects, 1000 changes a second", counted(users, "controller")),
        job,
    )
    .column(Column::cost("requests", "lists and watches (a streaming list is one request)"))
    .column(Column::cost("cpu", "CPU an event, µs"))
    .column(Column::cost("rss", "RSS, MB"))
    .column(Column::cost("p99", "change sent to reconcile, p99, µs"))
    .also_on_one_core()
    .side(Side::Watchkeeper, one)
    .variant(Side::Watchkeeper, Mode::Handlers, "handlers", one)
    .side(Side::KubeRs, &[])
    .variant(Side::KubeRs, Mode::Shared, "one shared stream", &[])
    .variant(Side::ClientGo, Mode::Default, "handlers with queues", &[])
    .side(Side::ControllerRuntime, &[])
    .run(settings)
}

/// Prints what the tables say together: what one more listener adds.
fn growth(one: &[Row], most: &[Row], many: usize) {
    println!("\n{:<46} {:>16} {:>16}", format!("from 1 to {many}"), "RSS, times", "CPU, µs each");
    for (few, all) in one.iter().zip(most) {
        let figures = |key| Some((few.median(key)?, all.median(key)?));
        let (Some((rss, rss_all)), Some((cpu, cpu_all))) = (figures("rss"), figures("cpu")) else { continue };
        let (times, each) = (rss_all / rss, (cpu_all - cpu) / (many - 1) as f64);
        println!("  {:<44} {times:>16.2} {each:>16.2}", few.label());
    }
    println!("must reach: watchkeeper's RSS <= 1.1 x, one more of its handlers <= 1 µs an event");
}

/// Measures one side.
pub(crate) async fn measure(job: &Job) -> anyhow::Result<Measures> {
    let tally = Tally::new(job.objects, job.users);
    match (job.side, job.mode) {
        (Side::Watchkeeper, Mode::Handlers) => {
            let factory = kit::factory(job)?;
            let informer = kit::informer(job, &factory);
            let register = |_| {
                let (added, updated) = (tally.clone(), tally.clone());
                let handler = informer.handler().on_add(move |object, _| added.hear(&object));
                handler.on_update(move |_, object| updated.hear(&object)).register()
            };
            let _registrations: Vec<_> = (0..job.users).map(register).collect();
            factory.start();
            paced(job, &tally, job.users).await
        }
        (Side::Watchkeeper, _) => {
            let _running = kit::controllers(job, job.users, 1, &tally)?;
            paced(job, &tally, job.users).await
        }
        (Side::KubeRs, _) => {
            let _running = kit::kube_controllers(job, job.users, 1, &tally)?;
            paced(job, &tally, job.users).await
        }
        (side, _) => kit::no_part(side),
    }
}

//! `readers-writer`: a writer at full speed while tasks list a namespace of 1,000 objects each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Runtime, time::Instant};
use watchkeeper::{
    Watched,
    kube::runtime::{reflector::store, watcher::Event},
    store::Indexer,
};

use crate::{
    contest::{Contest, Settings},
    gadget::{self, A_NAMESPACE, Gadget, REPLICAS},
    job::{Bench, Job, Question, Side},
    kit,
    measure::{Measures, Sorted, measures},
    report::{
        Column,
        Goal::{AtMost, Times},
        Goals,
    },
};

const OBJECTS: usize = 100_000;
const SECONDS: u64 = 2;
const A_BATCH: usize = 100;
const BATCHES: usize = 5_000;

/// Runs the bench with 0, 10 and 50 readers that count, and with 50 that read each object of each list.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    [0, 10, 50].into_iter().try_for_each(|users| table(settings, users, Question::Main))?;
    table(settings, 50, Question::Walk)
}

fn table(settings: &Settings, users: usize, question: Question) -> anyhow::Result<()> {
    let job = Job::new(Bench::ReadersWriter, OBJECTS).users(users).seconds(SECONDS).question(question);
    let what = if question == Question::Walk { "read each object of a list" } else { "count a list" };
    let (ours, go): (&Goals, &Goals) = match users {
        50 => (&[("p999", AtMost(200.0))], &[("reads", Times(2.0))]),
        _ => (&[], &[]),
    };
    let contest = Contest::served(
        format!("readers-writer: 100000 objects, one writer, {users} readers that {what}"),
        job,
    );
    let contest = match users {
        0 => contest.everywhere().column(Column::cost("batched", "each of a batch of 100, median, µs")),
        _ => contest,
    };
    contest
        .column(Column::cost("p50", "a write, median, µs"))
        .column(Column::cost("p999", "a write, p99.9, µs"))
        .column(Column::rate("writes", "writes/s"))
        .column(Column::rate("reads", "lists of 1000 objects/s"))
        .side(Side::Watchkeeper, ours)
        .side(Side::KubeRs, &[])
        .side(Side::ClientGo, go)
        .side(Side::ControllerRuntime, &[])
        .run(settings)
        .map(drop)
}

/// Measures one side.
pub(crate) fn measure(job: &Job) -> anyhow::Result<Measures> {
    match job.side {
        Side::Watchkeeper => {
            let indexer = Indexer::with_indexes(Gadget::indexes())?;
            indexer.replace((0..job.objects).map(|at| Arc::new(gadget::small(at))));
            let lister = indexer.lister();
            let walks = job.question == Question::Walk;
            let list = move |namespace: &str| {
                let listed = lister.namespace(namespace).list();
                if walks {
                    gadget::replicas(listed.iter().map(|object| &**object)) / REPLICAS
                } else {
                    listed.len()
                }
            };
            let mut figures = duel(job, list, |gadget| drop(indexer.upsert(Arc::new(gadget))))?;
            if job.users == 0 {
                figures.insert("batched".to_owned(), batched(job, &indexer));
            }
            Ok(figures)
        }
        Side::KubeRs => {
            let (reader, mut writer) = store::<Gadget>();
            writer.apply_watcher_event(&Event::Init);
            (0..job.objects).for_each(|at| writer.apply_watcher_event(&Event::InitApply(gadget::small(at))));
            writer.apply_watcher_event(&Event::InitDone);
            let walks = job.question == Question::Walk;
            let list = move |namespace: &str| {
                let listed =
                    reader.state_filter(|object| object.metadata.namespace.as_deref() == Some(namespace));
                if walks {
                    gadget::replicas(listed.iter().map(|object| &**object)) / REPLICAS
                } else {
                    listed.len()
                }
            };
            duel(job, list, |gadget| writer.apply_watcher_event(&Event::Apply(gadget)))
        }
        side => kit::no_part(side),
    }
}

/// The median microseconds of a write in a batch.
fn batched(job: &Job, indexer: &Indexer<Gadget>) -> f64 {
    let updates = updates(job);
    let batch = |updates: &[Gadget]| {
        let updates = updates.to_vec();
        let start = Instant::now();
        indexer.write(|batch| updates.into_iter().for_each(|gadget| drop(batch.upsert(Arc::new(gadget)))));
        start.elapsed().as_nanos() as f64 / 1e3 / A_BATCH as f64
    };
    Sorted::new(updates.chunks(A_BATCH).cycle().take(BATCHES).map(batch).collect()).median()
}

fn updates(job: &Job) -> Vec<Gadget> {
    (0..10_000).map(|at| gadget::small((at * 7_919 + 13) % job.objects)).collect()
}

/// Lets readers list for as long as the writer writes; each write is timed alone.
///
/// The writer has a thread of its own, and the readers share as many as leave it a core.
fn duel(
    job: &Job,
    list: impl Fn(&str) -> usize + Clone + Send + 'static,
    mut write: impl FnMut(Gadget),
) -> anyhow::Result<Measures> {
    let readers = readers(job)?;
    let (stop, reads, wrong) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for reader in 0..job.users {
        let (list, stop, reads, wrong, objects) =
            (list.clone(), stop.clone(), reads.clone(), wrong.clone(), job.objects);
        readers.spawn(async move {
            for turn in reader.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let found = list(&gadget::namespace(turn * A_NAMESPACE % objects));
                reads.fetch_add(1, Ordering::Relaxed);
                wrong.fetch_add(usize::from(found != A_NAMESPACE), Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
    }
    let updates = updates(job);
    let (began, mut took) = (Instant::now(), Vec::new());
    for gadget in updates.iter().cycle() {
        let gadget = gadget.clone();
        let start = Instant::now();
        write(gadget);
        took.push(start.elapsed().as_nanos() as f64 / 1e3);
        if began.elapsed() > Duration::from_secs(job.seconds) {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    readers.shutdown_background();
    anyhow::ensure!(wrong.load(Ordering::Relaxed) == 0, "a list was wrong");
    let (writes, took) = (took.len() as f64 / seconds, Sorted::new(took));
    let reads = reads.load(Ordering::Relaxed) as f64 / seconds;
    Ok(measures([("p50", took.median()), ("p999", took.at(0.999)), ("writes", writes), ("reads", reads)]))
}

fn readers(job: &Job) -> anyhow::Result<Runtime> {
    let threads = std::thread::available_parallelism()?.get().saturating_sub(1).clamp(1, job.users.max(1));
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build()?)
}

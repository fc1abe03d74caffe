//! `lister-get`: what a read of the cache costs, by key, by index, and by labels.

use std::{hint::black_box, sync::Arc};

use tokio::time::Instant;
use watchkeeper::{
    Lister, ObjectKey, Watched,
    kube::runtime::{
        reflector::{ObjectRef, store},
        watcher::Event,
    },
    store::{IndexValue, Indexer, Selector},
};

use crate::{
    contest::{Contest, Extent, Settings},
    gadget::{self, Gadget},
    job::{Bench, Job, Side},
    kit,
    measure::{Measures, measures},
    report::{
        Column,
        Goal::{AtMost, Times},
    },
};

/// How many different keys and values are looked up, in a random order.
const ASKED: usize = 10_000;
pub(super) const GETS: usize = 1_000_000;
/// The index that `#[informer(index)]` made.
const INDEX: &str = "by_place";
const LOOK_UPS: usize = 200_000;

/// Runs the bench at several sizes.
pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let sizes: &[usize] = match settings.extent {
        Extent::Small => &[1_000],
        Extent::Usual => &[1_000, 100_000],
        Extent::Full => &[1_000, 100_000, 1_000_000],
    };
    sizes.iter().try_for_each(|objects| table(settings, *objects))
}

fn table(settings: &Settings, objects: usize) -> anyhow::Result<()> {
    let most = if objects > 100_000 { 250.0 } else { 150.0 };
    let contest = Contest::served(
        format!("lister-get: {objects} objects, a place holds 10, a label value selects 1 %"),
        Job::new(Bench::ListerGet, objects),
    );
    let contest = if objects == 100_000 { contest.everywhere() } else { contest };
    contest
        .column(Column::cost("get", "get by key, ns"))
        .column(Column::cost("index", "index look-up of 10, µs"))
        .column(Column::cost("walk", "the ten looked up and read, µs"))
        .column(Column::cost("select", "selector scan, ms"))
        .side(Side::Watchkeeper, &[("get", AtMost(most)), ("index", AtMost(0.6))])
        .side(Side::KubeRs, &[])
        .side(Side::ClientGo, &[("select", Times(2.0))])
        .side(Side::ControllerRuntime, &[])
        .run(settings)
        .map(drop)
}

/// Measures one side.
pub(crate) fn measure(job: &Job) -> anyhow::Result<Measures> {
    match job.side {
        Side::Watchkeeper => watchkeeper(job),
        Side::KubeRs => kube_rs(job),
        side => kit::no_part(side),
    }
}

/// Some numbers below a bound, in no order.
pub(super) fn scattered(below: usize) -> impl Iterator<Item = usize> {
    (0..ASKED).map(move |at| (at * 7_919 + 13) % below)
}

/// The mean nanoseconds of one call, over many.
pub(super) fn nanos<T>(calls: usize, asked: &[T], mut call: impl FnMut(&T)) -> f64 {
    let began = Instant::now();
    asked.iter().cycle().take(calls).for_each(&mut call);
    began.elapsed().as_nanos() as f64 / calls as f64
}

fn scans(objects: usize) -> usize {
    (2_000_000 / objects).clamp(3, 200)
}

fn watchkeeper(job: &Job) -> anyhow::Result<Measures> {
    let indexer = Indexer::with_indexes(Gadget::indexes())?;
    indexer.replace((0..job.objects).map(|at| Arc::new(gadget::small(at))));
    let lister: Lister<Gadget> = indexer.lister();
    let keys: Vec<_> =
        scattered(job.objects).map(|at| ObjectKey::new(gadget::namespace(at), gadget::name(at))).collect();
    let places: Vec<_> = scattered(job.objects).map(|at| IndexValue::from(gadget::place(at))).collect();
    let selector: Selector = "shard=s07".parse()?;
    let get = nanos(GETS, &keys, |key| drop(black_box(lister.get(key))));
    let index = nanos(LOOK_UPS, &places, |place| drop(black_box(lister.by_index(INDEX, place))));
    let select = nanos(scans(job.objects), &[()], |()| drop(black_box(lister.list_matching(&selector))));
    let walk = nanos(LOOK_UPS, &places, |place| {
        black_box(gadget::replicas(lister.by_index(INDEX, place).iter().map(|object| &**object)));
    });
    anyhow::ensure!(lister.by_index(INDEX, &places[0]).len() == gadget::A_PLACE, "the index is wrong");
    anyhow::ensure!(lister.list_matching(&selector).len() == job.objects / 100, "the scan is wrong");
    Ok(measures([("get", get), ("index", index / 1e3), ("walk", walk / 1e3), ("select", select / 1e6)]))
}

fn kube_rs(job: &Job) -> anyhow::Result<Measures> {
    let (reader, mut writer) = store::<Gadget>();
    writer.apply_watcher_event(&Event::Init);
    (0..job.objects).for_each(|at| writer.apply_watcher_event(&Event::InitApply(gadget::small(at))));
    writer.apply_watcher_event(&Event::InitDone);
    let keys: Vec<_> = scattered(job.objects)
        .map(|at| ObjectRef::<Gadget>::new(&gadget::name(at)).within(&gadget::namespace(at)))
        .collect();
    let places: Vec<_> = scattered(job.objects).map(gadget::place).collect();
    let selector = watchkeeper::kube::core::Expression::Equal("shard".to_owned(), "s07".to_owned()).into();
    let get = nanos(GETS, &keys, |key| drop(black_box(reader.get(key))));
    let scans = scans(job.objects);
    let index = nanos(scans, &places, |place| {
        drop(black_box(reader.state_filter(|object| object.spec.place == *place)))
    });
    let walk = nanos(scans, &places, |place| {
        let listed = reader.state_filter(|object| object.spec.place == *place);
        black_box(gadget::replicas(listed.iter().map(|object| &**object)));
    });
    let select = nanos(scans, &[()], |()| drop(black_box(reader.state_filter_selector(&selector))));
    anyhow::ensure!(reader.state_filter_selector(&selector).len() == job.objects / 100, "the scan is wrong");
    Ok(measures([("get", get), ("index", index / 1e3), ("walk", walk / 1e3), ("select", select / 1e6)]))
}

//! What a run is to do: drawn from its seed before it begins.

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng, seq::IndexedRandom as _};
use tokio::time::Duration;
use watchkeeper_apiserver::{Verb, faults::Action};

use super::{subject::Selection, troubles::trouble};

/// Where objects live.
pub(crate) const NAMESPACES: [&str; 3] = ["a", "b", "c"];
/// What they are called; few, so that names come again.
const NAMES: [&str; 3] = ["x", "y", "z"];
/// Which of them a selector selects.
pub(crate) const TIERS: [&str; 3] = ["", "gold", "silver"];
/// What they are indexed by, several at a time.
pub(crate) const TAGS: [&str; 3] = ["red", "green", "blue"];

/// One run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) informers: Vec<Informer>,
    pub(crate) steps: Vec<Step>,
}

/// One informer, and who listens from the start.
#[derive(Debug)]
pub(crate) struct Informer {
    pub(crate) sort: Sort,
    pub(crate) selection: Selection,
    pub(crate) listeners: Vec<Listener>,
}

/// How an informer asks and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Streaming,
    Paged(u32),
    AnyVersion,
    Metadata,
    Dynamic,
    /// Keeps bytes.
    Compact,
}

/// Somebody who listens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listener {
    Handler,
    Resynced(Duration),
    Observer,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Wait(Duration),
    /// Creates or changes an object.
    Put(Object),
    Delete(Place),
    /// Deletes an object and creates another under its name.
    Recreate(Object),
    Start(usize),
    Join(usize, Listener),
    Leave(usize, usize),
    Compact,
    Restart(Loss),
    Arm(Trouble),
    /// Lets no request and no event through.
    Partition,
    /// Holds back every event.
    Hold,
    Heal,
}

/// What a restart loses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    Nothing,
    History,
    Everything,
    /// The latest versions, this many: a backup is restored.
    Latest(u64),
}

/// An object's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
}

/// An object as it is to be.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) place: Place,
    pub(crate) tier: &'static str,
    pub(crate) tags: String,
    pub(crate) value: u32,
    pub(crate) poisoned: bool,
}

/// A fault rule.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) verb: Verb,
    pub(crate) times: u64,
    pub(crate) fault: Action,
    pub(crate) honest: Honest,
}

/// Returns whether a server that keeps to its contract may behave so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Honest {
    Yes,
    /// It may not: what it made the client miss only a list brings back.
    No,
}

impl Plan {
    /// Draws a run.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = SmallRng::seed_from_u64(seed);
        let informers: Vec<_> = (0..dice.random_range(2..=3)).map(|_| informer(&mut dice)).collect();
        let mut steps = Vec::new();
        for _ in 0..dice.random_range(0..6) {
            steps.push(Step::Put(object(&mut dice)));
        }
        steps.extend((0..informers.len()).filter(|_| dice.random_bool(0.85)).map(Step::Start));
        for _ in 0..dice.random_range(12..48) {
            steps.push(step(&mut dice, informers.len()));
        }
        Self { seed, informers, steps }
    }

    /// Writes the run down, a step a line.
    pub(crate) fn script(&self) -> String {
        let informers = self.informers.iter().map(|informer| format!("  {informer:?}\n"));
        informers.chain(self.steps.iter().map(|step| format!("  {step:?}\n"))).collect()
    }
}

fn informer(dice: &mut SmallRng) -> Informer {
    let sort = match dice.random_range(0..9) {
        0..=2 => Sort::Streaming,
        3 => Sort::Paged(dice.random_range(1..4)),
        4 => Sort::AnyVersion,
        5 => Sort::Metadata,
        6 => Sort::Dynamic,
        7 => Sort::Compact,
        _ => Sort::Paged(500),
    };
    let namespaces: &[&str] = match dice.random_range(0..4) {
        0 => &["a", "b"],
        1 => &["a"],
        _ => &[],
    };
    let tier = if dice.random_bool(0.3) { "gold" } else { "" };
    let transform = sort != Sort::Metadata && dice.random_bool(0.3);
    let compact = dice.random_bool(0.4);
    let label_index = dice.random_bool(0.5);
    let listeners = (0..dice.random_range(0..3)).map(|_| listener(dice)).collect();
    Informer { sort, selection: Selection { namespaces, tier, transform, compact, label_index }, listeners }
}

fn listener(dice: &mut SmallRng) -> Listener {
    match dice.random_range(0..4) {
        0 => Listener::Observer,
        1 => Listener::Resynced(Duration::from_secs(dice.random_range(1..100))),
        _ => Listener::Handler,
    }
}

fn step(dice: &mut SmallRng, informers: usize) -> Step {
    let one = dice.random_range(0..informers);
    match dice.random_range(0..100) {
        0..28 => Step::Wait(pause(dice)),
        28..50 => Step::Put(object(dice)),
        50..60 => Step::Delete(place(dice)),
        60..65 => Step::Recreate(object(dice)),
        65..68 => Step::Start(one),
        68..74 => Step::Join(one, listener(dice)),
        74..77 => Step::Leave(one, dice.random_range(0..4)),
        77..80 => Step::Compact,
        80..85 => Step::Restart(loss(dice)),
        85..95 => Step::Arm(trouble(dice)),
        95 => Step::Partition,
        96 => Step::Hold,
        _ => Step::Heal,
    }
}

fn pause(dice: &mut SmallRng) -> Duration {
    let longest = *[1, 50, 1_000, 10_000, 100_000].choose(dice).unwrap();
    Duration::from_millis(dice.random_range(1..=longest))
}

fn place(dice: &mut SmallRng) -> Place {
    Place { namespace: NAMESPACES.choose(dice).unwrap(), name: NAMES.choose(dice).unwrap() }
}

fn object(dice: &mut SmallRng) -> Object {
    let tags: Vec<_> = TAGS.into_iter().filter(|_| dice.random_bool(0.5)).collect();
    Object {
        place: place(dice),
        tier: TIERS.choose(dice).unwrap(),
        tags: tags.join("."),
        value: dice.random_range(0..1_000),
        poisoned: dice.random_bool(0.15),
    }
}

fn loss(dice: &mut SmallRng) -> Loss {
    match dice.random_range(0..6) {
        0 => Loss::Everything,
        1 => Loss::Latest(dice.random_range(1..20)),
        2..4 => Loss::History,
        _ => Loss::Nothing,
    }
}

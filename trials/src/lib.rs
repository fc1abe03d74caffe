//! Trials: an operator under one trouble after another, and what is left of its promises.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use watchkeeper_trials::Trials;
//!
//! # async fn run_the_operator(client: kube::Client) {}
//! Trials::of(run_the_operator)                                           // any async function of a client
//!     .visitor(async |visit| {
//!         visit.create(&ConfigMap::default()).await;                     // what its users do
//!         visit.delete::<ConfigMap>("a").await;
//!     })
//!     .check();                                                          // panics with a story, and a line to replay it
//! ```
//!
//! A run without trouble comes first. It counts what the operator asks of the server, and how it ends. Then, for
//! the first three requests of each sort and each [`Trouble`] that is possible there, one trial: a server in memory, the
//! operator, the script, that trouble. Then pairs of troubles, by seed. All of it runs under paused time, so that hours of
//! back-off pass in milliseconds, on all cores.
//!
//! A trial fails if one of these does not hold ([`Violation`] names them):
//!
//! - It comes to rest: nothing changes any more, and no request fails.
//! - The end is that of the run without trouble. What servers choose (UIDs, versions, times, generated names) and
//!   what someone else added makes no difference. If somebody changed what the operator does not own, an operator
//!   that restarts must find nothing left to do.
//! - Deleted objects are gone.
//! - What somebody else made is neither changed nor deleted, but as in the run without trouble.
//! - Labels, annotations and conditions of others stay.
//! - What it keeps in [another system](External) is as in the run without trouble, and nothing of it is deleted in between.
//! - The number of requests stays within bounds, and the operator does not end by itself, unless it [may](Trials::may_end).
//! - Whatever a test [claims](Trials::claim).
//!
//! Trials are deterministic if the operator is: let it draw what is random from a seed. If two runs without
//! trouble differ, `check` says at which request, or in which field of the end; what is [random](Trials::random) by
//! nature is left out.
//!
//! The server's clock shows the machine's time, moved on by paused time, as the operator's does. In a story `T+7s` is a
//! time seven seconds after its start.

mod answers;
mod body;
mod call;
mod cases;
mod changes;
mod diff;
mod edits;
mod event;
mod exit;
mod external;
mod foreign;
mod foreign_additions;
mod harness;
mod incident;
mod life;
mod oracle;
mod plan;
mod played;
mod recorded_lines;
mod hidden;
mod recording;
mod records;
mod replace;
mod replay;
mod report;
mod schedule;
mod search;
mod settings;
mod share;
mod supervise;
mod timeline;
mod times;
mod trouble;
mod upgrade;
mod visit;
mod webhooks;
mod world;

#[cfg(test)]
mod blame_tests;
#[cfg(test)]
mod external_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use watchkeeper_apiserver::Kit;
use watchkeeper_apiserver::kit::Kind;

pub use changes::{By, Change, Changes};
pub use external::{ConnectionBroke, External};
pub use incident::{ReplayDifference, Replayed};
pub use oracle::Violation;
pub use recorded_lines::read_recording;
pub use replay::{REPLAY, SHARE};
pub use report::{Failure, Report};
pub use trouble::{Event, ForeignChange, Moment, Replacement, Trouble, WebhookTrouble, Whose};
pub use visit::Visit;
pub use webhooks::Webhooks;
pub use world::Difference;

use self::plan::{Operator, Plan, Surroundings};
use self::played::play;
use self::recording::Recording;
use self::settings::{Settings, Wanted};
use self::share::Share;
use self::world::{Hidden, RandomField};

/// What an operator is tried with.
///
/// The book has more: [what is tried](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/trials.md).
#[must_use = "nothing is tried before `check` or `run`"]
pub struct Trials {
    settings: Settings,
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trials")
            .field("pairs", &self.settings.pairs)
            .field("seed", &self.settings.seed)
            .finish_non_exhaustive()
    }
}

impl Trials {
    /// Tries an operator: what it does with a client until it is stopped.
    ///
    /// It is restarted wherever a trial kills it, each time with a client of its own. A client of a life that is
    /// over never answers. It runs on a thread of its own under paused time, so it must not block.
    pub fn of<O, F>(operator: O) -> Self
    where
        O: Fn(kube::Client) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
    {
        Self::of_served(move |client, _| operator(client))
    }

    /// Tries an operator that serves webhooks, as [`of`](Self::of) does any: it hands them to the trial's server.
    ///
    /// ```no_run
    /// # use watchkeeper_apiserver::WebhookService;
    /// # use watchkeeper_trials::{Trials, Webhooks};
    /// # struct Running(WebhookService);
    /// # impl From<&Running> for WebhookService { fn from(running: &Running) -> Self { running.0.clone() } }
    /// # impl Running { async fn ended(self) {} }
    /// # fn tried(start_the_operator: fn(kube::Client) -> Running) {
    /// Trials::of_served(move |client, webhooks: Webhooks| async move {
    ///     let running = start_the_operator(client);
    ///     webhooks.serve(&running);
    ///     running.ended().await
    /// });
    /// # }
    /// ```
    ///
    /// Where a request of the operator has a webhook called, webhooks are [slow, down, or refuse](WebhookTrouble) from then
    /// on, for 20 s, also for what users write. While the operator is down, so are its webhooks.
    pub fn of_served<O, F>(operator: O) -> Self
    where
        O: Fn(kube::Client, Webhooks) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
    {
        Self::with(boxed(move |client, around| operator(client, around.webhooks())), None)
    }

    /// Tries an operator that calls an [API outside the cluster](External), as [`of`](Self::of) does any.
    pub fn of_calling<O, F>(operator: O) -> Self
    where
        O: Fn(kube::Client, External) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
    {
        Self::with(boxed(move |client, around| operator(client, around.external())), None)
    }

    /// Tries an upgrade: the old version works and the new one takes over; then the old one comes back.
    ///
    /// There is a run without trouble for each version alone. Then one version replaces the other:
    ///
    /// - at rest, after each step of the script; back again at rest, after each later one; and once more;
    /// - at each request of the old version, which is killed before it or after it;
    /// - as in a rolling update, from each request of the old version on, for two more steps of the script, where the old
    ///   version elects a leader;
    /// - back again at each request of the new version, which is killed before it or after it;
    /// - and while somebody deletes what the new version looks after.
    ///
    /// Then pairs of a replacement and of any other [`Trouble`], by seed.
    ///
    /// The end must be that of the version that is at work at the end. So a child that the new version does not know any
    /// more, a field that it no longer sets, or a finalizer that nobody removes is found. More is wrong in an upgrade:
    ///
    /// - The new version changes what is there, although nobody changed anything: children that are changed or made again,
    ///   fields of users that a conversion loses. The status, finalizers and the version of an owner reference may change;
    ///   what else is meant, [`may_change`](Self::may_change).
    /// - A rollback does not come to the old version's end. Fields of the status that only the new version knows may stay,
    ///   and so may what [`may_change`](Self::may_change).
    /// - Both versions write the same object while both run.
    /// - The server refuses a [definition of the new version](Self::new_definition).
    ///
    /// ```no_run
    /// # async fn old_version(client: kube::Client) {}
    /// # async fn new_version(client: kube::Client) {}
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use watchkeeper_trials::Trials;
    ///
    /// Trials::upgrade(old_version, new_version)
    ///     .visitor(async |visit| {
    ///         visit.create(&ConfigMap::default()).await;
    ///         visit.delete::<ConfigMap>("a").await;
    ///     })
    ///     .check();
    /// ```
    pub fn upgrade<O, F, N, G>(old: O, new: N) -> Self
    where
        O: Fn(kube::Client) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
        N: Fn(kube::Client) -> G + Send + Sync + 'static,
        G: Future + 'static,
        G::Output: fmt::Debug,
    {
        Self::upgrade_served(move |client, _| old(client), move |client, _| new(client))
    }

    /// Tries an upgrade of an operator that serves webhooks, as [`of_served`](Self::of_served) has it.
    pub fn upgrade_served<O, F, N, G>(old: O, new: N) -> Self
    where
        O: Fn(kube::Client, Webhooks) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
        N: Fn(kube::Client, Webhooks) -> G + Send + Sync + 'static,
        G: Future + 'static,
        G::Output: fmt::Debug,
    {
        let old = boxed(move |client, around| old(client, around.webhooks()));
        let new = boxed(move |client, around| new(client, around.webhooks()));
        Self::with(old, Some(new))
    }

    /// Plays what a flight recorder of watchkeeper recorded, with this build of the operator.
    ///
    /// A server starts with the recorded objects, others do what they did at the same times, and this build does what it
    /// does. What it writes is compared with what the recorded one wrote. So a recording of an incident becomes a test.
    ///
    /// Parts of the file that are next to it, with `.old` and `.oldest` behind the name, are read as well. Once the recorder has
    /// written over the first part, the replay begins where the rest shows all that was there.
    ///
    /// Kinds that the recorded operator did not watch are not there, nor are what Secrets hold and what was hidden: nothing of
    /// these is compared. What belongs to an object of such a kind stays. A change of others to what the recorded operator made
    /// waits until this build makes it. What this build writes after the recording's end is not a difference. Who
    /// deleted what belonged to something that is gone, the server, does so again.
    ///
    /// ```no_run
    /// # async fn operator(client: kube::Client) {}
    /// use watchkeeper_trials::Trials;
    ///
    /// Trials::replay("incidents/march.wkr", operator).expect_no_differences();
    /// Trials::replay("incidents/march.wkr", operator).expect(|replayed| assert!(replayed.replayed < 100));
    /// Trials::replay("incidents/march.wkr", operator).with_troubles().check();
    /// ```
    ///
    /// # Panics
    ///
    /// When the recording can't be read.
    pub fn replay<O, F>(file: impl Into<PathBuf>, operator: O) -> Replay
    where
        O: Fn(kube::Client) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: fmt::Debug,
    {
        Replay::new(file.into(), Self::of(operator))
    }

    fn with(operator: Operator, successor: Option<Operator>) -> Self {
        let hidden = Hidden { definitions: successor.is_some(), ..Hidden::default() };
        let plan = Plan {
            operator,
            successor,
            visitor: Arc::new(|_| Box::pin(async {})),
            claims: Vec::new(),
            change_claims: Vec::new(),
            patience: Duration::from_secs(600),
            hidden,
            may_change: Vec::new(),
            may_delete: BTreeSet::new(),
            may_end: false,
            crds: Vec::new(),
            upgraded: Arc::default(),
            namespaces: Vec::new(),
            initial: None,
            prepared: [OnceLock::new(), OnceLock::new()],
        };
        let wanted: Wanted = Arc::new(|_| true);
        let (at_most, diagram, replay, share) = (None, None, None, Share::default());
        Self { settings: Settings { plan, wanted, pairs: 100, seed: 0, at_most, diagram, replay, share } }
    }

    /// Serves a custom resource.
    pub fn crd<K: kube::CustomResourceExt>(mut self) -> Self {
        self.settings.plan.crds.push(serde_json::to_value(K::crd()).expect("a definition is JSON"));
        self
    }

    /// Installs a definition with the new version of an [upgrade](Self::upgrade); a rollback leaves it.
    ///
    /// It is not needed where the new version installs its definitions itself. `kube::core::crd::merge_crds` makes
    /// one definition of several versions of one kind.
    ///
    /// # Panics
    ///
    /// When this is not a trial of an upgrade.
    pub fn new_definition(mut self, definition: &CustomResourceDefinition) -> Self {
        assert!(
            self.settings.plan.successor.is_some(),
            "a new definition comes with an upgrade: Trials::upgrade"
        );
        let definition = serde_json::to_value(definition).expect("a definition is JSON");
        Arc::make_mut(&mut self.settings.plan.upgraded).push(definition);
        self
    }

    /// Allows the new version of an [upgrade](Self::upgrade) to change this of objects that are there, without anybody
    /// asking; a rollback may leave it as the new version has it.
    ///
    /// The field, with all that is in it, is named as in [`random`](Self::random); an empty pointer stands for the objects
    /// themselves, which then may also be made, deleted, or made again.
    ///
    /// # Panics
    ///
    /// When the pointer is neither empty nor begins with `/`.
    pub fn may_change<K: Kind>(mut self, pointer: &str) -> Self {
        let is_pointer = pointer.is_empty() || pointer.starts_with('/');
        assert!(is_pointer, "a JSON pointer begins with `/`, and {pointer:?} does not");
        self.settings.plan.may_change.push(RandomField::of::<K>(pointer));
        self
    }

    /// Adds a namespace; if it is the only one, it is that of objects and keys that name none.
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.settings.plan.hidden.namespaces.insert(name.clone());
        self.settings.plan.namespaces.push(name);
        self
    }

    /// Says what users do.
    pub fn visitor<V>(mut self, visitor: V) -> Self
    where
        V: AsyncFn(Visit) + Send + Sync + 'static,
    {
        let visitor = Arc::new(visitor);
        self.settings.plan.visitor = Arc::new(move |visit| {
            let visitor = visitor.clone();
            Box::pin(async move { visitor(visit).await })
        });
        self
    }

    /// Claims something of every end, by a function that panics where it does not hold.
    pub fn claim<C>(mut self, claim: C) -> Self
    where
        C: AsyncFn(Kit) + Send + Sync + 'static,
    {
        let claim = Arc::new(claim);
        self.settings.plan.claims.push(Arc::new(move |kit| {
            let claim = claim.clone();
            Box::pin(async move { claim(kit).await })
        }));
        self
    }

    /// Claims something of all changes of a trial, by a function that panics where it does not hold.
    ///
    /// So what an operator did is compared with what happened: which of its runs nothing of others explains, which
    /// change of others it never looked at. It runs on the thread of the trial, at its end, after the
    /// [`claim`](Self::claim)s.
    pub fn claim_of_changes(mut self, claim: impl Fn(&Changes) + Send + Sync + 'static) -> Self {
        self.settings.plan.change_claims.push(Arc::new(claim));
        self
    }

    /// Leaves out the troubles for which this says `false`.
    pub fn only(mut self, wanted: impl Fn(Trouble) -> bool + Send + Sync + 'static) -> Self {
        self.settings.wanted = Arc::new(wanted);
        self
    }

    /// Says of a field that it is random by nature, such as a password that the operator draws, or the time.
    ///
    /// The field is named by a JSON pointer in which `*` is any key or item: `/data/password`, `/spec/users/*/token`.
    /// Only the field's presence is compared, not its value.
    ///
    /// # Panics
    ///
    /// When the pointer does not begin with `/`.
    pub fn random<K: Kind>(mut self, pointer: &str) -> Self {
        assert!(pointer.starts_with('/'), "a JSON pointer begins with `/`, and {pointer:?} does not");
        self.settings.plan.hidden.random.push(RandomField::of::<K>(pointer));
        self
    }

    /// Allows the operator to delete objects of this kind, also those that others made.
    ///
    /// So an operator does that deletes what belongs to something when that is deleted, where the baseline run deletes
    /// nothing of the kind.
    pub fn may_delete<K: Kind>(mut self) -> Self {
        self.settings.plan.may_delete.insert(K::plural(&()).into_owned());
        self
    }

    /// Says that the operator may end by itself, as some do that can't reach the server when they start.
    ///
    /// It is started again as the kubelet does it: after 10 s, then after twice as long each time, up to 5 minutes;
    /// after a life of 10 minutes the wait is 10 s again. Without this an end by itself is a fault. It must end by
    /// returning, or by a panic. `std::process::exit` ends the test as well: where the platform runs the destructors of
    /// thread-local values then, as with glibc and on macOS, the trial's line is written to the standard error, and the
    /// process is aborted, since an exit code of 0 would pass for success. Only the test's own thread is protected like
    /// this: `std::process::exit(0)` in a thread of the operator, or in `spawn_blocking`, still passes for success.
    pub fn may_end(mut self) -> Self {
        self.settings.plan.may_end = true;
        self
    }

    /// Sets how many pairs of troubles are tried after the single ones; 100 unless set.
    pub fn pairs(mut self, pairs: usize) -> Self {
        self.settings.pairs = pairs;
        self
    }

    /// Sets the seed by which pairs are chosen; 0 unless set.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Sets how long an end may take to become right, in the operator's own time; 10 minutes unless set.
    ///
    /// The time begins when both the script and the last thing that goes wrong are over. Nothing else bounds what the
    /// operator may take, and how often it may ask grows with it.
    pub fn patience(mut self, patience: Duration) -> Self {
        // Nobody waits longer, and the end of a longer time may not be a time.
        self.settings.plan.patience = patience.min(Duration::from_secs(365 * 24 * 3600));
        self
    }

    /// Ends after this time of the machine's; the report says how many trials were left out, and by which line to go on.
    pub fn for_at_most(mut self, time: Duration) -> Self {
        self.settings.at_most = Some(time);
        self
    }

    /// Runs one part of all trials: part `number`, counted from 1, of `of`. Several CI jobs can share the trials.
    ///
    /// So does the variable `WATCHKEEPER_TRIALS='part 2/5'`.
    ///
    /// # Panics
    ///
    /// When `number` is not between 1 and `of`.
    pub fn part(mut self, number: usize, of: usize) -> Self {
        assert!((1..=of).contains(&number), "part {number} of {of} does not exist");
        self.settings.share.part = Some((number, of));
        self
    }

    /// Leaves out what comes before this trial, as a report prints it that left some out for lack of time.
    ///
    /// So does the variable `WATCHKEEPER_TRIALS='from TRIAL'`; `part 2/5 from TRIAL` says both.
    pub fn going_on_from(mut self, trial: impl Into<String>) -> Self {
        self.settings.share.from = Some(trial.into());
        self
    }

    /// Writes the story of a failure as a Mermaid sequence diagram as well.
    pub fn diagram(mut self, file: impl Into<PathBuf>) -> Self {
        self.settings.diagram = Some(file.into());
        self
    }

    /// Plays one trial alone, as a failure prints it; so does the variable `WATCHKEEPER_TRIAL`.
    pub fn trial(mut self, trial: impl Into<String>) -> Self {
        self.settings.replay = Some(trial.into());
        self
    }

    /// Tries the operator; says in one line what was tried.
    ///
    /// # Panics
    ///
    /// At the first trial that fails, with its story and the line that replays it. Also as [`run`](Self::run) does: if the
    /// trial to replay, or `WATCHKEEPER_TRIALS`, can't be read.
    pub fn check(self) {
        let report = self.run();
        eprintln!("{report}");
        if let Some(failure) = report.failures.first() {
            panic!("{failure}");
        }
    }

    /// Tries the operator until a trial fails.
    ///
    /// # Panics
    ///
    /// When the trial to replay can't be read, or the one to go on from is not there.
    #[must_use]
    pub fn run(self) -> Report {
        search::run(&self.settings)
    }
}

/// A [recording](Trials::replay) that is to be played with a build of the operator.
#[must_use = "nothing is played before `run`, `expect` or `expect_no_differences`"]
pub struct Replay {
    recording: Arc<Recording>,
    trials: Trials,
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recording { initial, others, effects, .. } = &*self.recording;
        f.debug_struct("Replay")
            .field("objects", &initial.len())
            .field("changes_of_others", &others.len())
            .field("writes", &effects.len())
            .finish_non_exhaustive()
    }
}

impl Replay {
    pub(crate) fn new(file: PathBuf, trials: Trials) -> Self {
        let recording = Recording::read(&file).unwrap_or_else(|error| panic!("{error}"));
        Self::of(recording, trials)
    }

    fn of(recording: Recording, mut trials: Trials) -> Self {
        let recording = Arc::new(recording);
        for namespace in recording.namespaces() {
            trials = trials.namespace(namespace);
        }
        trials.settings.plan.initial = Some(recording.clone());
        let played = recording.clone();
        let trials = trials.visitor(async move |visit| play(&visit, &played).await);
        Self { recording, trials }
    }

    /// Serves a custom resource, as [`Trials::crd`] does. A recording holds no definitions.
    pub fn crd<K: kube::CustomResourceExt>(mut self) -> Self {
        self.trials = self.trials.crd::<K>();
        self
    }

    /// Plays it.
    ///
    /// # Panics
    ///
    /// When the server refuses a definition.
    #[must_use]
    pub fn run(self) -> Replayed {
        incident::replay(&self.trials.settings.plan, &self.recording)
    }

    /// Plays it, and expects something of what comes of it.
    ///
    /// # Panics
    ///
    /// With the panic of the function, behind the text of the replay.
    pub fn expect(self, check: impl FnOnce(&Replayed)) {
        let replayed = self.run();
        eprintln!("{replayed}");
        check(&replayed);
    }

    /// Plays it, and expects this build to write what was recorded, and to come to rest.
    ///
    /// # Panics
    ///
    /// Where it does not, with each difference.
    pub fn expect_no_differences(self) {
        let replayed = self.run();
        assert!(replayed.differences.is_empty() && replayed.faults.is_empty(), "{replayed}");
    }

    /// Makes trials of it: what was recorded is the script, and troubles are tried at each request of this build.
    pub fn with_troubles(self) -> Trials {
        self.trials
    }
}

/// Makes operators one type, which says how each ended.
fn boxed<O, F>(operator: O) -> Operator
where
    O: Fn(kube::Client, Surroundings) -> F + Send + Sync + 'static,
    F: Future + 'static,
    F::Output: fmt::Debug,
{
    Arc::new(move |client, around| {
        let running = operator(client, around);
        Box::pin(async move { format!("{:?}", running.await) })
    })
}

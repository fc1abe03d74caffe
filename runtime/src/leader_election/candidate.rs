//! Does what the elector decides: reads and writes the Lease, opens and closes the gate, publishes the state.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use super::{
    ElectionError, LeaderElection, LeaderState, Leadership,
    elector::{Do, Elector, LeaseAnswer, Loss},
    gate::TermGate,
    lease::{Lease, LeaseFailure},
    note::LeaseNote,
    overrun::{Overrun, TermWatch},
    settings::Timing,
    status::StatusSender,
};
use crate::{clock::WallClock, metrics::ElectionMeter, object::ObjectKey};

/// How often a leader reads the clocks at least, since one may have jumped.
const LOOK: Duration = Duration::from_secs(1);
/// How long a release of the Lease may take.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// One replica in its election.
pub(crate) struct Candidate {
    elector: Elector,
    lease: Lease,
    gate: Arc<TermGate>,
    clock: WallClock,
    timing: Timing,
    on_overrun: Option<fn(&str)>,
    status: StatusSender,
    /// What this replica says in its Lease.
    note: Option<Arc<LeaseNote>>,
    /// The last failure that was logged.
    failure: Option<LeaseFailure>,
}

impl Candidate {
    /// Makes a candidate, the gate that its terms open, and a view of its state.
    ///
    /// `client` must not be gated. `seed` determines everything random.
    pub(crate) fn new(
        election: LeaderElection,
        client: &kube::Client,
        clock: WallClock,
        meter: ElectionMeter,
        seed: u64,
    ) -> (Result<Self, ElectionError>, Arc<TermGate>, Leadership) {
        let namespace = election.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let checked = election.check(&namespace);
        let LeaderElection { name, identity, timing, on_overrun, note, is_shared, .. } = election;
        let identity: Arc<str> = identity.unwrap_or_else(|| unique(&host(), seed)).into();
        let key = ObjectKey::new(namespace, name);
        let gate = Arc::new(TermGate::new(clock.clone(), timing.expiry()));
        let (status, leadership) =
            StatusSender::new(key.clone(), identity.clone(), timing.lease, gate.clone(), meter);
        let elector = Elector::new(identity.clone(), timing, seed, Instant::now());
        let elector = match (is_shared, &note) {
            (true, _) => elector.shared(),
            (false, Some(_)) => elector.of_own_name(),
            (false, None) => elector,
        };
        let candidate = Self {
            elector,
            lease: Lease::new(client.clone(), key),
            gate: gate.clone(),
            clock,
            timing,
            on_overrun,
            status,
            note,
            failure: None,
        };
        (checked.map(|()| candidate), gate, leadership)
    }

    /// Stands by until there is a term, and opens the gate.
    ///
    /// Returns whether the term continues the last one of this process: no other replica has worked since.
    pub(crate) async fn win(&mut self) -> bool {
        self.gate.close();
        self.elector.stand_by(Instant::now());
        self.stand_by();
        while !self.elector.leads() {
            let _ = self.step(Instant::now() + self.timing.longest_request()).await;
            self.stand_by();
        }
        let (lease, identity) = (self.status.lease(), self.status.identity());
        match (self.elector.is_shared(), &self.note) {
            (true, _) => tracing::debug!(%lease, "holds the Lease together with the other replicas"),
            (false, Some(_)) => tracing::info!(%lease, identity, "shares the work"),
            (false, None) => tracing::info!(%lease, identity, "leads"),
        }
        self.status.set(LeaderState::Leads);
        self.elector.continues
    }

    fn stand_by(&self) {
        if !self.elector.leads() {
            let holder = self.elector.holder().map(str::to_owned);
            if let Some(holder) = &holder {
                tracing::debug!(lease = %self.status.lease(), holder, "stands by");
            }
            self.status.set(LeaderState::StandsBy { holder });
        }
    }

    /// Renews the term until it is lost. The gate closes when the term ends, and at once if another replica has the Lease.
    pub(crate) async fn hold(&mut self) -> Loss {
        loop {
            let now = self.clock.read();
            if let Some(loss) = self.elector.loss(now) {
                if matches!(loss, Loss::TakenBy(_)) {
                    self.gate.close();
                }
                tracing::error!(lease = %self.status.lease(), "leads no more: {loss}; what runs has to end");
                self.status.set(LeaderState::Ends);
                return loss;
            }
            let until = self.elector.lasts_until(now);
            let unrenewed = is_unrenewed(self.gate.clone(), self.timing.renew);
            tokio::select! {
                biased;
                _ = self.step(until) => {}
                () = unrenewed => {}
            }
        }
    }

    /// Ends the term at once: no request starts any more.
    pub(crate) fn close(&self) {
        self.gate.close();
    }

    /// Closes the gate at the end of a term that was lost because it was not renewed.
    pub(crate) async fn expire(&self) {
        self.gate.shut().await;
        self.gate.close();
    }

    /// Watches what the term's work holds. If it still does when another replica may soon lead, the process ends.
    pub(crate) fn watch_term<N>(&self, who: N) -> Option<TermWatch>
    where
        N: Fn() -> Option<String> + Send + 'static,
    {
        let lease = self.status.lease().clone();
        let (gate, tell) = (self.gate.clone(), self.on_overrun);
        let overrun = Overrun { gate, timing: self.timing, lease: lease.clone(), tell };
        let no_thread = |error| {
            tracing::error!(%lease, %error, "no thread can be had that ends the process if a run outlasts the term");
        };
        overrun.watch(who).map_err(no_thread).ok()
    }

    /// Releases the Lease, if this replica holds it, once everything that ran has ended.
    pub(crate) async fn release(&mut self) {
        self.gate.close();
        self.elector.release(Instant::now());
        let until = Instant::now() + RELEASE_WITHIN;
        while Instant::now() < until && self.step(until).await.is_continue() {}
        self.status.set(LeaderState::Idle);
    }

    /// Leaves the Lease to expire, because work goes on that only the leader may do.
    pub(crate) fn leave(&mut self, who: &str) {
        self.gate.close();
        let lease = self.status.lease();
        tracing::error!(%lease, "the Lease is not released but runs out: work of {who} goes on after the stop");
        self.status.set(LeaderState::Idle);
    }

    /// Does the next step, until then at most. Breaks if there is nothing to do.
    async fn step(&mut self, until: Instant) -> ControlFlow<()> {
        let sent = self.clock.read();
        if let Some(note) = &self.note {
            self.elector.note(note.record(), sent.monotonic);
        }
        let within = self.elector.patience.min(until.saturating_duration_since(sent.monotonic));
        let (answer, failure) = match self.elector.next(sent) {
            Do::Nothing => return ControlFlow::Break(()),
            Do::Wait(due) => {
                let passed = sleep_until(due.min(until).min(sent.monotonic + LOOK));
                match &self.note {
                    None => passed.await,
                    Some(note) => tokio::select! {
                        biased;
                        () = note.changed.notified() => {}
                        () = passed => {}
                    },
                }
                return ControlFlow::Continue(());
            }
            Do::Read => {
                if self.elector.leads() {
                    self.status.meter.slow_path.inc();
                }
                self.lease.read(within).await
            }
            Do::Write { base, record } => self.lease.write(base.as_deref(), &record, within).await,
        };
        let written = match &answer {
            LeaseAnswer::Written(lease) => Some(lease.record.note.clone()),
            _ => None,
        };
        self.elector.answered(sent, self.clock.read(), answer);
        if let (Some(note), Some(written)) = (&self.note, written) {
            note.wrote(written.as_ref());
        }
        if let Some(sent) = self.elector.take_confirmed()
            && self.elector.leads()
        {
            self.gate.renewed(sent);
        }
        self.log(failure);
        ControlFlow::Continue(())
    }

    /// Logs a failure when it begins or changes, and when it is over.
    fn log(&mut self, failure: Option<LeaseFailure>) {
        let lease = self.status.lease();
        match (&failure, &self.failure) {
            (Some(error), before) if Some(error) != before.as_ref() => {
                tracing::warn!(%lease, error, "the Lease can't be read or written");
            }
            (None, Some(_)) => tracing::info!(%lease, "the Lease can be read and written again"),
            _ => {}
        }
        self.failure = failure;
    }
}

/// Ends once a term was not renewed for a time, by the clock that shows more: also while a request is under way.
async fn is_unrenewed(gate: Arc<TermGate>, within: Duration) {
    loop {
        let _either = timeout(LOOK, gate.jumped.notified()).await;
        if gate.unrenewed() >= within {
            return;
        }
    }
}

/// Makes an identity that no other process has.
fn unique(host: &str, seed: u64) -> String {
    format!("{host}_{seed:016x}")
}

/// Returns the name of the host, which in a cluster is the pod.
fn host() -> String {
    let variable = |name| std::env::var(name).ok();
    let file = || std::fs::read_to_string("/etc/hostname").ok();
    let found = variable("HOSTNAME").or_else(|| variable("COMPUTERNAME")).or_else(file);
    let host = found.unwrap_or_default().trim().chars().take(200).collect::<String>();
    if host.is_empty() { "replica".to_owned() } else { host }
}

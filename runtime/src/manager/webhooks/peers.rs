//! Which replicas serve the webhooks, and whether all of them answer the same calls.
//!
//! While a program is replaced, replicas of two releases serve behind one Service. What only one of them can answer must not
//! be asked for yet: a version that the older release does not convert, or a webhook that it does not have. So each replica
//! keeps an annotation on the Secret of the certificates, with what it answers. As long as an annotation says something
//! else, definitions and configurations stay as they are. Only in this time replicas renew their annotations, by a count
//! that they raise: one that is not renewed belongs to a replica that is gone. Times are this replica's own, so that clocks
//! need not agree.

use std::{collections::HashMap, time::Duration};

use serde_json::{Map, Value};
use tokio::{sync::watch, time::Instant};

/// The prefix of the annotations.
const PREFIX: &str = "replicas.watchkeeper.dev/";
/// How often a replica renews its annotation while there are others that answer something else.
const RENEWED: Duration = Duration::from_secs(60);
/// A replica that has not renewed its annotation for this long is gone.
const GONE: Duration = Duration::from_secs(150);
/// With more annotations than this, most are of replicas that were killed: all go, and those that live enter again.
const MOST: usize = 32;

/// How far a replica has come, as those need to know who wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct PortState {
    /// The port answers, with a certificate.
    pub(super) serves: bool,
    /// All replicas answer the same calls, as far as is known.
    pub(super) agreed: bool,
    /// The authorities that API servers must trust, in PEM; `None` if the program does not make certificates.
    pub(super) bundle: Option<String>,
    /// How many definitions are not installed yet.
    pub(super) uninstalled: usize,
}

/// Waits until a replica has come so far.
pub(super) async fn wait_for(state: &watch::Sender<PortState>, is_reached: impl FnMut(&PortState) -> bool) {
    // The sender is here, so that there is always one.
    let _ = state.subscribe().wait_for(is_reached).await;
}

/// What one replica knows of the others.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    /// The name of its own annotation.
    own: String,
    /// What it answers, in words.
    answers: String,
    count: u64,
    renewed: Option<Instant>,
    /// The value of each annotation, and since when it has been that.
    seen: HashMap<String, (String, Instant)>,
    /// Others were found that answer something else.
    differ: bool,
}

impl Peers {
    pub(super) fn new(replica: u64, answers: String) -> Self {
        let own = format!("{PREFIX}{replica:016x}");
        Self { own, answers, count: 0, renewed: None, seen: HashMap::new(), differ: false }
    }

    /// Looks at the Secret; returns whether all replicas answer the same, this one included.
    ///
    /// The annotations of the Secret are changed if they have to be written.
    pub(super) fn look(&mut self, secret: &mut Value, now: Instant) -> bool {
        let found = annotations(secret);
        self.seen.retain(|name, _| found.contains_key(name));
        let mut gone = Vec::new();
        let mut others = Vec::new();
        for (name, value) in found.iter().filter(|(name, _)| name.starts_with(PREFIX) && **name != self.own) {
            let value = value.as_str().unwrap_or_default();
            let known = self.seen.entry(name.clone()).or_insert_with(|| (value.to_owned(), now));
            if known.0 != value {
                *known = (value.to_owned(), now);
            }
            match value.split_once(' ') {
                Some((_, answers)) if answers == self.answers => {
                    if found.len() > MOST {
                        gone.push(name.clone());
                    }
                }
                _ if now - known.1 >= GONE => gone.push(name.clone()),
                _ => others.push(name.clone()),
            }
        }
        let is_known = found.contains_key(&self.own);
        let is_due = !others.is_empty() && self.renewed.is_none_or(|renewed| now - renewed >= RENEWED);
        if !is_known || is_due || !gone.is_empty() {
            self.count += u64::from(is_due);
            let value = format!("{} {}", self.count, self.answers);
            let annotations = &mut secret["metadata"]["annotations"];
            annotations[&self.own] = value.into();
            if let Some(annotations) = annotations.as_object_mut() {
                gone.iter().for_each(|name| drop(annotations.remove(name)));
            }
        }
        let differ = !others.is_empty();
        if differ && !self.differ {
            let replicas = others.join(", ");
            tracing::info!(
                %replicas,
                "replicas of another release serve webhooks: CRDs and webhook configurations stay until they stop"
            );
        }
        self.differ = differ;
        is_known && !differ
    }

    /// Notes that the annotation was written.
    pub(super) fn written(&mut self, now: Instant) {
        self.renewed = Some(now);
    }

    /// Takes its own annotation away; returns whether there was one.
    pub(super) fn leave(&self, secret: &mut Value) -> bool {
        let annotations = secret["metadata"]["annotations"].as_object_mut();
        annotations.is_some_and(|annotations| annotations.remove(&self.own).is_some())
    }
}

fn annotations(secret: &Value) -> Map<String, Value> {
    secret["metadata"]["annotations"].as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Has a replica look, and store what it changes.
    fn looks(replica: &mut Peers, secret: &mut Value) -> bool {
        let before = secret.clone();
        let agreed = replica.look(secret, Instant::now());
        if *secret != before {
            replica.written(Instant::now());
        }
        agreed
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_agree_once_those_of_another_release_have_stopped_or_are_gone() {
        let mut secret = json!({"metadata": {"name": "hooks", "annotations": {"else": "stays"}}});
        let mut old = Peers::new(1, "v1".to_owned());
        assert!(!looks(&mut old, &mut secret), "nobody knows of it yet");
        assert!(looks(&mut old, &mut secret));
        let mut new = Peers::new(2, "v1,v2".to_owned());
        for _ in 0..20 {
            assert!(!looks(&mut new, &mut secret), "the older one can't answer all");
            looks(&mut old, &mut secret);
            tokio::time::advance(Duration::from_secs(20)).await;
        }
        assert!(!looks(&mut old, &mut secret), "the older one changes nothing either");
        assert!(old.leave(&mut secret) && !old.leave(&mut secret));
        assert!(looks(&mut new, &mut secret), "it has left");

        // One that was killed.
        looks(&mut old, &mut secret);
        let begun = Instant::now();
        while !looks(&mut new, &mut secret) {
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        let waited = begun.elapsed();
        assert!((GONE..GONE + Duration::from_secs(10)).contains(&waited), "{waited:?}");
        let left: Vec<_> = annotations(&secret).into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["else", "replicas.watchkeeper.dev/0000000000000002"]);
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_of_one_release_do_not_wait_for_each_other() {
        let mut secret = Value::Null;
        let mut all = [1, 2, 3].map(|id| Peers::new(id, "v1".to_owned()));
        all.iter_mut().for_each(|replica| _ = looks(replica, &mut secret));
        assert!(all.iter_mut().all(|replica| looks(replica, &mut secret)));
        // At rest nothing is written.
        let before = secret.clone();
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(all.iter_mut().all(|replica| looks(replica, &mut secret)));
        assert_eq!(secret, before);
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_are_killed_again_and_again_leave_a_few_annotations() {
        let mut secret = Value::Null;
        let mut lives = Peers::new(0, "v1".to_owned());
        for id in 1..200 {
            looks(&mut Peers::new(id, "v1".to_owned()), &mut secret);
            looks(&mut lives, &mut secret);
        }
        assert!(annotations(&secret).len() <= MOST + 1, "{secret}");
        assert!(looks(&mut lives, &mut secret));
    }
}

//! Certificates of several replicas: when they are made, published, served and dropped.
//!
//! One Secret holds them. A generation is an authority (CA) and one certificate that it has signed; the authority's key is
//! forgotten at once, so that nobody can sign with it. A new generation goes through these steps. Any replica may take each
//! step, which needs what the step before has stored:
//!
//! 1. It is stored as the next one. The old certificate is still served.
//! 2. Both authorities are published: written to the configurations, and read back from there.
//! 3. After a while, in which every API server has seen that, it becomes the current one and is served.
//! 4. After a longer while, in which every replica has seen that, the old authority is dropped.
//!
//! Writes of the Secret name the version that they were computed from, so that of two replicas one wins.

use serde::{Deserialize, Serialize};

/// A generation is replaced after two thirds of its life.
pub(crate) const LIFE: i64 = 90 * 86_400;
/// How long configurations show both authorities before the new certificate is served.
pub(crate) const SETTLES: i64 = 120;
/// How long the old authority stays published after the new certificate is served.
pub(crate) const KEPT: i64 = 3_600;
/// How often the Secret and the configurations are read, in seconds.
pub(crate) const LOOK_EVERY: i64 = 20;
/// How often they are read while something is under way.
pub(crate) const LOOK_SOON: i64 = 5;

/// An authority and the certificate that it has signed. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Generation {
    /// The authority's certificate, in PEM.
    pub(crate) authority: String,
    /// The certificate, in PEM.
    pub(crate) certificate: String,
    /// The key of the certificate, in PEM.
    pub(crate) key: String,
    /// The names that the certificate is for.
    pub(crate) names: Vec<String>,
    pub(crate) made: i64,
    pub(crate) expires: i64,
}

impl Generation {
    /// Returns whether the certificate is for these names.
    pub(crate) fn is_for(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredGenerations {
    pub(crate) current: Generation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Generation>,
    /// The authority before the current one, and when that took over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<OldAuthority>,
}

/// An authority whose certificate is not served any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OldAuthority {
    pub(crate) authority: String,
    pub(crate) replaced: i64,
}

impl StoredGenerations {
    /// Returns the authorities that API servers must trust.
    pub(crate) fn bundle(&self) -> String {
        let old = self.old.iter().map(|old| &old.authority);
        let next = self.next.iter().map(|next| &next.authority);
        let mut all: Vec<&str> = Vec::new();
        for authority in old.chain([&self.current.authority]).chain(next) {
            if !all.contains(&authority.as_str()) {
                all.push(authority);
            }
        }
        all.concat()
    }
}

/// What a replica has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// `None`: there is no Secret, or nothing in it that can be used.
    pub(crate) stored: Option<&'a StoredGenerations>,
    /// What this replica serves, if it does.
    pub(crate) served: Option<&'a Generation>,
    /// The bundle of each configuration; `None` for one that has none.
    pub(crate) published: &'a [Option<String>],
    /// Seconds since 1970, on the wall clock.
    pub(crate) now: i64,
}

/// What a replica does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextStep {
    /// Store this, if the Secret is still as it was read.
    pub(crate) store: Option<StoredGenerations>,
    /// Write this bundle to the configurations.
    pub(crate) publish: Option<String>,
    /// Read everything again after this many seconds.
    pub(crate) look_again: i64,
}

/// What one replica remembers from one look to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rotation {
    /// The bundle that all configurations had, and since when.
    confirmed: Option<(String, i64)>,
}

impl Rotation {
    /// Decides what to do. What is stored is served, whatever else is to be done.
    ///
    /// # Errors
    /// No generation can be made.
    pub(crate) fn step<E>(
        &mut self,
        seen: Seen<'_>,
        names: &[String],
        make: impl FnOnce(&[String]) -> Result<Generation, E>,
    ) -> Result<NextStep, E> {
        let Seen { stored, served, published, now } = seen;
        // Replicas of two releases may need different names: none takes away what another one needs.
        let both = |others: &[String]| {
            let more = others.iter().filter(|other| !names.contains(other));
            names.iter().chain(more).cloned().collect::<Vec<_>>()
        };
        let soon = |store| NextStep { store: Some(store), publish: None, look_again: 0 };
        let Some(stored) = stored else {
            return Ok(soon(match served.filter(|served| served.expires > now) {
                // Somebody deleted or broke what was stored. The configurations trust what is served, and not yet another.
                Some(served) => {
                    StoredGenerations { current: served.clone(), next: Some(make(names)?), old: None }
                }
                None => StoredGenerations { current: make(names)?, next: None, old: None },
            }));
        };
        let bundle = stored.bundle();
        let is_published = published.iter().all(|found| found.as_ref() == Some(&bundle));
        let publish = (!is_published).then(|| bundle.clone());
        let since = self.confirm(is_published, bundle, now);
        if let Some(next) = &stored.next {
            let is_usable = next.expires > now && next.is_for(names);
            if !is_usable {
                let made = make(&both(&next.names))?;
                let stored = StoredGenerations { next: Some(made), ..stored.clone() };
                return Ok(NextStep { publish, ..soon(stored) });
            }
            let is_dead = stored.current.expires <= now;
            if since.is_some_and(|since| now - since >= SETTLES) || is_dead {
                return Ok(NextStep { publish, ..soon(promoted(stored, next, now)) });
            }
            return Ok(NextStep { publish, look_again: LOOK_SOON, ..NextStep::default() });
        }
        let Generation { made, expires, names: of, .. } = &stored.current;
        let is_old = now >= made + (expires - made) / 3 * 2;
        if is_old || !stored.current.is_for(names) {
            // With its age, names go that nobody needs any more.
            let made = make(&if is_old { names.to_vec() } else { both(of) })?;
            let stored = StoredGenerations { next: Some(made), ..stored.clone() };
            return Ok(NextStep { publish, ..soon(stored) });
        }
        if stored.old.as_ref().is_some_and(|old| now - old.replaced >= KEPT || now < old.replaced - KEPT) {
            return Ok(NextStep { publish, ..soon(StoredGenerations { old: None, ..stored.clone() }) });
        }
        let look_again = if publish.is_some() { LOOK_SOON } else { LOOK_EVERY };
        Ok(NextStep { publish, look_again, store: None })
    }

    /// Returns since when all configurations have had this bundle.
    fn confirm(&mut self, is_published: bool, bundle: String, now: i64) -> Option<i64> {
        let confirmed =
            self.confirmed.take().filter(|(confirmed, since)| *confirmed == bundle && *since <= now);
        self.confirmed = is_published.then(|| confirmed.unwrap_or((bundle, now)));
        self.confirmed.as_ref().map(|(_, since)| *since)
    }
}

/// Makes the next generation the current one.
fn promoted(stored: &StoredGenerations, next: &Generation, now: i64) -> StoredGenerations {
    let old = OldAuthority { authority: stored.current.authority.clone(), replaced: now };
    StoredGenerations { current: next.clone(), next: None, old: Some(old) }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;

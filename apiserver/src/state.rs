//! The state: store, kinds, clock and generators that every request works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid_text::format_uuid;

use crate::admission::PolicyCache;
use crate::call::Caller;
use crate::clock::Clock;
use crate::kinds::Registry;
#[cfg(feature = "openapi")]
use crate::openapi::Documents;
use crate::session::Session;
use crate::store::{Store, Unsaved};
use crate::tokens::Tokens;

/// The source of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Authorization {
    /// The permissions that a test gives to users.
    #[default]
    Grants,
    /// Roles and their bindings, besides that.
    Rbac,
}

/// A right of one user; `*` is any verb or resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    /// The user's name.
    pub(crate) user: String,
    /// The verb.
    pub(crate) verb: String,
    /// The plural; `plural/status` for a subresource.
    pub(crate) resource: String,
    /// The namespace it holds in; everywhere when absent.
    pub(crate) namespace: Option<String>,
}

/// A token given out for a service account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    /// The token.
    pub(crate) token: String,
    /// The account's key.
    pub(crate) account: String,
    /// The account's uid.
    pub(crate) uid: String,
    /// When it holds no longer.
    pub(crate) ends: Timestamp,
}

impl IssuedToken {
    fn fact(&self) -> Value {
        serde_json::to_value(self).expect("texts and a moment are JSON")
    }
}

/// Everything behind the server's mutex.
#[derive(Debug)]
pub(crate) struct State {
    /// The objects.
    pub(crate) store: Store,
    /// The kinds.
    pub(crate) registry: Registry,
    /// The OpenAPI documents written so far.
    #[cfg(feature = "openapi")]
    pub(crate) documents: Documents,
    /// The time.
    pub(crate) clock: Clock,
    /// The source of permissions.
    pub(crate) authorization: Authorization,
    /// The version up to which aggregated roles are up to date.
    pub(crate) aggregated: u64,
    /// Users who last impersonated by the older permission, `impersonate`.
    pub(crate) old_impersonators: BTreeSet<String>,
    /// Permissions without any rules.
    pub(crate) grants: BTreeSet<Grant>,
    /// The tokens of users.
    pub(crate) tokens: Arc<Tokens>,
    /// The tokens given out for service accounts.
    pub(crate) issued: BTreeMap<String, IssuedToken>,
    /// CRDs to establish, with the moment for it.
    pub(crate) establishing: Vec<(tokio::time::Instant, String)>,
    /// The time from a CRD's creation to its being served.
    pub(crate) establish_delay: Duration,
    /// The time between two bookmarks of a watch.
    pub(crate) bookmark_period: Duration,
    /// Whether something changed that a controller may care about.
    pub(crate) unsettled: bool,
    /// Whether garbage and terminating namespaces are cleaned up.
    pub(crate) cleans_up: bool,
    /// Calls the webhooks that streams need.
    pub(crate) caller: Caller,
    /// The policies that were read.
    pub(crate) policies: PolicyCache,
    /// The webhook answers of the current request.
    pub(crate) session: Session,
    random: SmallRng,
}

impl State {
    /// Makes an empty state.
    pub(crate) fn new(store: Store, clock: Clock, seed: u64) -> Self {
        Self {
            store,
            registry: Registry::new(),
            #[cfg(feature = "openapi")]
            documents: Documents::default(),
            clock,
            authorization: Authorization::default(),
            aggregated: 0,
            old_impersonators: BTreeSet::new(),
            grants: BTreeSet::new(),
            tokens: Arc::default(),
            issued: BTreeMap::new(),
            establishing: Vec::new(),
            establish_delay: Duration::ZERO,
            bookmark_period: Duration::from_secs(60),
            unsettled: false,
            cleans_up: true,
            caller: Caller::default(),
            policies: PolicyCache::default(),
            session: Session::default(),
            random: SmallRng::seed_from_u64(seed),
        }
    }

    /// Creates an independent state that continues from this one, by the machine's clock.
    pub(crate) fn fork(&self) -> Self {
        Self {
            store: self.store.fork(),
            registry: self.registry.clone(),
            #[cfg(feature = "openapi")]
            documents: Documents::default(),
            clock: Clock::default(),
            authorization: self.authorization,
            aggregated: self.aggregated,
            old_impersonators: self.old_impersonators.clone(),
            grants: self.grants.clone(),
            tokens: Arc::default(),
            issued: self.issued.clone(),
            establishing: self.establishing.clone(),
            establish_delay: self.establish_delay,
            bookmark_period: self.bookmark_period,
            unsettled: self.unsettled,
            cleans_up: self.cleans_up,
            caller: self.caller.clone(),
            policies: PolicyCache::default(),
            session: Session::default(),
            random: self.random.clone(),
        }
    }

    /// Notes a token as given out.
    pub(crate) fn issue(&mut self, issued: IssuedToken) {
        self.store.note(|| Unsaved::Fact(issued.fact()));
        self.issued.insert(issued.token.clone(), issued);
    }

    /// Returns what is kept in addition to the objects: the tokens that are still valid.
    pub(crate) fn facts(&self) -> Vec<Value> {
        let now = self.clock.now();
        self.issued.values().filter(|issued| now < issued.ends).map(IssuedToken::fact).collect()
    }

    /// Takes a fact over that was kept.
    ///
    /// # Errors
    /// This server does not write it.
    pub(crate) fn take_fact(&mut self, fact: &Value) -> Result<(), serde_json::Error> {
        let issued = IssuedToken::deserialize(fact)?;
        self.issued.insert(issued.token.clone(), issued);
        Ok(())
    }

    /// Forgets a fact that could not be kept.
    pub(crate) fn forget_fact(&mut self, fact: &Value) {
        if let Some(token) = fact["token"].as_str() {
            self.issued.remove(token);
        }
    }

    /// Makes a uid; equal seeds give equal rows of them.
    pub(crate) fn make_uid(&mut self) -> String {
        format_uuid(self.random.random())
    }

    /// Derives a uid from a name: always the same.
    pub(crate) fn fixed_uid(&self, name: &str) -> String {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |seed: u64, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format_uuid(SmallRng::seed_from_u64(seed).random())
    }

    /// Makes the five letters after a `generateName`.
    pub(crate) fn make_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(LETTERS[self.random.random_range(0..LETTERS.len())])).collect()
    }

    /// Returns the uid of the object that the current request creates: the same in each of its attempts.
    pub(crate) fn uid_of_the_request(&mut self) -> String {
        let uid = self.session.uid.take().unwrap_or_else(|| self.make_uid());
        self.session.uid.insert(uid).clone()
    }

    /// Returns the random suffix of a `generateName`: the same in each attempt of the current request.
    pub(crate) fn suffix_of_the_request(&mut self) -> String {
        let suffix = self.session.suffix.take().unwrap_or_else(|| self.make_suffix());
        self.session.suffix.insert(suffix).clone()
    }

    /// Returns the time of the current request, in whole seconds: the same in each of its attempts.
    pub(crate) fn now_of_the_request(&mut self) -> String {
        let now = self.session.now.take().unwrap_or_else(|| self.clock.seconds());
        self.session.now.insert(now).clone()
    }

    /// Picks a number below a bound.
    pub(crate) fn pick(&mut self, below: u64) -> u64 {
        self.random.random_range(0..below.max(1))
    }
}

/// The text of random uuids.
mod uuid_text {
    /// Writes 128 bits as a version 4 uuid.
    pub(super) fn format_uuid(bits: u128) -> String {
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn a_uuid_says_its_version_and_variant() {
            let text = super::format_uuid(u128::MAX);
            assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        }
    }
}

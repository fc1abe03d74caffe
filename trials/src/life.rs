//! The versions of an operator under trial, and the lives of each.

use std::time::Duration;

use tokio::time::Instant;

use crate::timeline::Actor;

/// Which operator: most trials have one, those of an upgrade two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Version {
    /// The only one.
    #[default]
    Only,
    /// The one that is upgraded, and to which a rollback goes back.
    Old,
    /// The one to which it is upgraded.
    New,
}

impl Version {
    /// Returns who does what this version does, in a story.
    pub(crate) fn actor(self) -> Actor {
        match self {
            Self::Only => Actor::Operator,
            Self::Old => Actor::Old,
            Self::New => Actor::New,
        }
    }

    /// Returns the one that takes over from this.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Only => Self::Only,
            Self::Old => Self::New,
            Self::New => Self::Old,
        }
    }

    /// Names a request of this version, so that two versions have names of their own.
    pub(crate) fn request(self, name: &str) -> String {
        match self {
            Self::Only | Self::Old => name.to_owned(),
            Self::New => format!("new: {name}"),
        }
    }
}

/// One life of a version, from a start to a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) of: Version,
    /// Counted from 1 for each version.
    number: u64,
}

/// What is known of the lives of one version.
#[derive(Clone, Copy, Debug, Default)]
struct Existence {
    /// It is deployed: what dies is started again.
    is_wanted: bool,
    /// Rises with each start and each death; requests of earlier lives go nowhere.
    number: u64,
    /// Until when it stays down after it was killed.
    down: Option<Instant>,
    /// It ended by itself, and is not yet started again.
    ended: bool,
}

/// The lives of all versions.
#[derive(Debug, Default)]
pub(crate) struct Lives([Existence; 3]);

impl Lives {
    /// Nobody lives yet; one version is deployed.
    pub(crate) fn with(first: Version) -> Self {
        let mut lives = Self::default();
        lives.deploy(first);
        lives
    }

    fn of(&self, version: Version) -> &Existence {
        &self.0[version as usize]
    }

    fn of_mut(&mut self, version: Version) -> &mut Existence {
        &mut self.0[version as usize]
    }

    pub(crate) fn deploy(&mut self, version: Version) {
        self.of_mut(version).is_wanted = true;
    }

    /// Ends a version's life for good.
    pub(crate) fn remove(&mut self, version: Version) {
        let existence = self.of_mut(version);
        *existence = Existence { number: existence.number + 1, ..Existence::default() };
    }

    pub(crate) fn is_wanted(&self, version: Version) -> bool {
        self.of(version).is_wanted
    }

    /// Returns the version that is deployed: of two the new one.
    pub(crate) fn at_work(&self) -> Version {
        let all = [Version::New, Version::Old, Version::Only];
        all.into_iter().find(|version| self.is_wanted(*version)).unwrap_or_default()
    }

    /// Returns whether two versions are deployed.
    pub(crate) fn overlap(&self) -> bool {
        self.is_wanted(Version::Old) && self.is_wanted(Version::New)
    }

    pub(crate) fn start(&mut self, version: Version) -> Life {
        let existence = self.of_mut(version);
        existence.number += 1;
        existence.ended = false;
        Life { of: version, number: existence.number }
    }

    pub(crate) fn kill(&mut self, version: Version, down_for: Option<Duration>) {
        let existence = self.of_mut(version);
        existence.number += 1;
        existence.down = down_for.map(|time| Instant::now() + time);
    }

    /// Records that a life ended by itself.
    pub(crate) fn ended(&mut self, life: Life) {
        let existence = self.of_mut(life.of);
        existence.number += 1;
        existence.ended = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.iter().any(|existence| existence.ended)
    }

    pub(crate) fn is_over(&self, life: Life) -> bool {
        self.of(life.of).number != life.number
    }

    pub(crate) fn is_first(life: Life) -> bool {
        life.number == 1
    }

    /// Returns until when a version that was killed stays down.
    pub(crate) fn down_until(&self, version: Version) -> Option<Instant> {
        self.of(version).down
    }

    /// Ends the time for which a version is down.
    pub(crate) fn up(&mut self, version: Version) {
        self.of_mut(version).down = None;
    }

    /// Ends the time for which any is down; false where none is.
    pub(crate) fn all_up(&mut self) -> bool {
        self.0.iter_mut().fold(false, |any, existence| existence.down.take().is_some() | any)
    }

    /// Returns whether one that is deployed does not run now.
    pub(crate) fn is_any_down(&self) -> bool {
        self.0.iter().any(|existence| existence.is_wanted && (existence.down.is_some() || existence.ended))
    }
}

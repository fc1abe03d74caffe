//! Watches that bring nothing while the server goes on: a quiet kind, or something that holds answers back.

/// After how many watches in a row without any sign a list looks at what they may have missed.
const PATIENCE: u32 = 2;

/// The same, at most: patience doubles with each such list that shows nothing new.
const LONGEST_PATIENCE: u32 = 16;

/// What is known of watches that stay silent.
///
/// Servers send bookmarks about every minute, but not all do, and those are quiet with reason. A list tells.
#[derive(Debug)]
pub(in crate::reflector) struct Silence {
    /// How many watches in a row were found dead without any sign, since a list looked.
    pub(super) watches: u32,
    patience: u32,
    /// A list is under way that looks.
    pub(in crate::reflector) looks: bool,
    /// The last look showed what watches had not brought: an open watch does not count as a good one then.
    pub(in crate::reflector) blind: bool,
}

impl Silence {
    pub(super) fn new() -> Self {
        Self { watches: 0, patience: PATIENCE, looks: false, blind: false }
    }

    /// Returns whether a list is to look, now that the server is known to have gone on.
    pub(super) fn is_suspicious(&mut self) -> bool {
        self.looks = self.watches >= self.patience;
        self.looks
    }

    /// Takes what the list showed: something that the watches had not brought, or not.
    pub(in crate::reflector) fn looked(&mut self, missed: bool) {
        if std::mem::take(&mut self.looks) {
            self.watches = 0;
            self.blind |= missed;
            self.patience = if missed { PATIENCE } else { LONGEST_PATIENCE.min(self.patience * 2) };
        }
    }
}

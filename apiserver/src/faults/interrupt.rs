//! Interruptions: breaks and pauses at a place in an answer.

/// The connection broke before the answer was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// It was closed.
    #[error("the connection was cut")]
    Cut,
    /// It was reset.
    #[error("connection reset")]
    Reset,
}

/// A break or a pause in the middle of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interruption {
    pub(super) kind: Interrupt,
    pub(super) place: CutPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Cut,
    Reset,
    Silence,
}

/// A position in an answer: after a number of events, then a number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CutPlace {
    pub(super) events: u32,
    pub(super) byte: Option<usize>,
    pub(super) from: From,
    pub(super) edge: Edge,
}

/// From where events and bytes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum From {
    #[default]
    Start,
    AfterList,
}

/// What to do with a position between two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Edge {
    #[default]
    Kept,
    MovedInside,
}

impl Interruption {
    pub(super) const fn new(kind: Interrupt) -> Self {
        Self { kind, place: CutPlace { events: 0, byte: None, from: From::Start, edge: Edge::Kept } }
    }

    /// Lets this many more events pass first; bookmarks don't count.
    ///
    /// A rule with this applies to watches alone.
    #[must_use]
    pub fn after_events(mut self, events: u32) -> Self {
        self.place.events = events;
        self
    }

    /// Comes instead of the `n`-th next event, counted from 1; bookmarks don't count.
    #[must_use]
    pub fn at_event(self, n: u32) -> Self {
        self.after_events(n.saturating_sub(1)).at_byte(0)
    }

    /// Then lets this many bytes pass; waits for the next byte if 0.
    ///
    /// On a rule for every watch it acts once on each stream: cuts come again and again.
    #[must_use]
    pub fn at_byte(mut self, bytes: usize) -> Self {
        self.place.byte = Some(bytes);
        self
    }

    /// Counts neither events nor bytes of the state that a watch begins with.
    ///
    /// A rule with this applies to watches alone.
    #[must_use]
    pub fn after_list(mut self) -> Self {
        self.place.from = From::AfterList;
        self.place.byte = self.place.byte.or(Some(0));
        self
    }

    /// Moves a place between two lines one byte on, into the line.
    #[must_use]
    pub fn mid_line(mut self) -> Self {
        self.place.edge = Edge::MovedInside;
        self.place.byte = self.place.byte.or(Some(0));
        self
    }

    /// True when it acts as soon as it is planted.
    pub(super) fn immediate(&self) -> bool {
        self.place.events == 0 && self.place.byte.is_none()
    }

    /// True when its place has a meaning in watches only.
    pub(super) fn watches_alone(&self) -> bool {
        self.place.events > 0 || self.place.from == From::AfterList
    }

    pub(super) fn script(&self) -> String {
        let CutPlace { events, byte, from, edge } = self.place;
        let mut out = format!("Fault::{:?}", self.kind);
        if events > 0 {
            out += &format!(".after_events({events})");
        }
        if let Some(byte) = byte {
            out += &format!(".at_byte({byte})");
        }
        if from == From::AfterList {
            out += ".after_list()";
        }
        if edge == Edge::MovedInside {
            out += ".mid_line()";
        }
        out
    }
}

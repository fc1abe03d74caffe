//! Distortions of the events of a watch, or the items of a list.

use std::time::Duration;

use serde::Deserialize;

use super::text::duration;
use crate::watch::{EventType, Frame, Phase};

/// Events, or items of a list, that come otherwise than they should.
///
/// It lasts as long as the stream, unless it is limited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distortion {
    pub(super) what: Distort,
    pub(super) events: Events,
    pub(super) after: u32,
    pub(super) limit: Option<u32>,
    pub(super) chance: Option<f64>,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distort {
    Skip,
    Replay(u32),
    Reorder,
    Coalesce(Duration),
    Garble(Garble),
    EndMark(Mark),
}

/// The affected events; items of a list count as [`Changes`](Events::Changes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Events {
    /// All but errors.
    Any,
    /// All that carry an object: `ADDED`, `MODIFIED` and `DELETED`.
    Changes,
    /// `ADDED` alone.
    Added,
    /// `MODIFIED` alone.
    Modified,
    /// `DELETED` alone.
    Deleted,
    /// Every bookmark, the one that ends the initial events included.
    Bookmarks,
    /// The bookmark that ends the initial events.
    InitialEnd,
}

/// In what way an event or item can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Garble {
    /// The line, or the whole list, is not valid JSON; the newline is kept.
    Json,
    /// The event has an unknown type; items of lists have no type and stay.
    Type,
    /// The object is of another kind.
    Kind,
    /// The object can't be decoded, its name and version can.
    Object,
    /// Not even the object's name can be read.
    Identity,
}

/// The replacement for the mark at the end of the initial events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mark {
    /// The bookmark comes without an annotation.
    Absent,
    /// The annotation says `false`.
    False,
}

impl Distortion {
    pub(super) const fn new(what: Distort, events: Events) -> Self {
        Self { what, events, after: 0, limit: None, chance: None, seed: 0 }
    }

    /// Acts on these events alone.
    #[must_use]
    pub fn only(mut self, events: Events) -> Self {
        self.events = events;
        self
    }

    /// Lets this many of the matching events pass first.
    #[must_use]
    pub fn after_events(mut self, events: u32) -> Self {
        self.after = events;
        self
    }

    /// Acts on the `n`-th of the events concerned alone, counted from 1.
    #[must_use]
    pub fn at_event(self, n: u32) -> Self {
        self.after_events(n.saturating_sub(1)).events(1)
    }

    /// Acts on this many events of an answer, then stops.
    #[must_use]
    pub fn events(mut self, events: u32) -> Self {
        self.limit = Some(events);
        self
    }

    /// Acts on each event with this probability, from 0 to 1; equal seeds give equal results.
    #[must_use]
    pub fn chance(mut self, p: f64, seed: u64) -> Self {
        self.chance = Some(p.clamp(0.0, 1.0));
        self.seed = seed;
        self
    }

    /// True when it means something for the items of a list.
    pub(super) fn fits_lists(&self) -> bool {
        matches!(self.what, Distort::Garble(_))
    }

    pub(super) fn script(&self) -> String {
        let usual = match self.what {
            Distort::Skip => self.events,
            Distort::Coalesce(_) => Events::Any,
            Distort::EndMark(_) => Events::InitialEnd,
            Distort::Replay(_) | Distort::Reorder | Distort::Garble(_) => Events::Changes,
        };
        let mut out = match self.what {
            Distort::Skip => format!("Fault::Skip(Events::{:?})", self.events),
            Distort::Replay(1) => "Fault::Duplicate".to_owned(),
            Distort::Replay(n) => format!("Fault::Replay({n})"),
            Distort::Reorder => "Fault::Reorder".to_owned(),
            Distort::Coalesce(window) => format!("Fault::Coalesce({})", duration(window)),
            Distort::Garble(how) => format!("Fault::Garble(Garble::{how:?})"),
            Distort::EndMark(mark) => format!("Fault::EndMark(Mark::{mark:?})"),
        };
        if usual != self.events {
            out += &format!(".only(Events::{:?})", self.events);
        }
        if self.after > 0 {
            out += &format!(".after_events({})", self.after);
        }
        if let Some(limit) = self.limit {
            out += &format!(".events({limit})");
        }
        if let Some(p) = self.chance {
            out += &format!(".chance({p:?}, {})", self.seed);
        }
        out
    }
}

impl Events {
    /// Returns whether an event is one of these.
    pub(super) fn hold(self, frame: &Frame) -> bool {
        match self {
            Self::Any => frame.event != EventType::Error,
            Self::Changes => frame.event.is_change(),
            Self::Added => frame.event == EventType::Added,
            Self::Modified => frame.event == EventType::Modified,
            Self::Deleted => frame.event == EventType::Deleted,
            Self::Bookmarks => frame.event == EventType::Bookmark,
            Self::InitialEnd => frame.event == EventType::Bookmark && frame.phase == Phase::Initial,
        }
    }
}

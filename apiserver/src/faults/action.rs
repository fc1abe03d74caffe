//! The actions of rules: the names of all faults, and their effects.

use std::time::Duration;

use super::distort::{Distort, Distortion, Events, Garble, Mark};
use super::interrupt::{Interrupt, Interruption};
use super::reply::{Saying, StatusReply, TooLarge};
use super::stale::Staleness;
use super::text::duration;
use crate::route::{RequestInfo, Verb};
use crate::store::Lag;

/// The names of all faults; each starts a [`Rule::then`](super::Rule::then).
///
/// Each describes what a client is expected to do about it.
#[derive(Clone, Copy, Debug)]
pub enum Fault {}

#[expect(non_upper_case_globals, non_snake_case, reason = "they read as the variants of a fault")]
impl Fault {
    /// Breaks the answer off: the connection goes, without an end mark.
    ///
    /// Without a place no byte of a new answer passes, and a stream that is open ends at once. A client drops the
    /// half line, and watches again from the last version it has seen whole: nothing lost, nothing twice, no list.
    pub const Cut: Interruption = Interruption::new(Interrupt::Cut);

    /// Breaks the answer off by a TCP reset: what the client has not read yet may be lost too.
    ///
    /// In memory it is a cut that says `connection reset`. A client does as after a [`Cut`](Fault::Cut).
    pub const Reset: Interruption = Interruption::new(Interrupt::Reset);

    /// Keeps the connection and sends nothing more, until [`Faults::clear`](super::Faults::clear).
    ///
    /// Without a place a new watch gets its headers and no more, any other request is not even looked at.
    /// What was held back goes on after the clearing, as packets do when a network heals. A client gives up a
    /// silent request at its deadline, and opens a silent watch again from its last version.
    pub const Silence: Interruption = Interruption::new(Interrupt::Silence);

    /// Carries the request out, then breaks the connection instead of answering.
    ///
    /// A client can't know that its write is done: it tries again, and must handle a conflict or `AlreadyExists`.
    pub const CommitThenDrop: Action = Action(Effect::CommitThenDrop);

    /// Carries the request out, and delays the answer until the rule is removed.
    ///
    /// With [`lasting`](HeldReply::lasting) until that time is over. A client that gave up must accept its own write
    /// when a watch shows it; one that waits must not believe an answer older than what it has seen since.
    pub const CommitThenHold: HeldReply = HeldReply { time: None };

    /// Changes the named object, as another client would, just before the request is carried out.
    ///
    /// An annotation changes, so the version rises: an update or patch with a version, and a deletion with that
    /// precondition, get a 409 Conflict. A client reads the object again and retries.
    pub const Bump: Action = Action(Effect::Bump);

    /// Answers a page's request by 410, with a token that goes on at the newest state.
    ///
    /// It concerns lists that carry a token alone. A client falls back to one whole list, or goes on.
    pub const ExpiredToken: Action = Action(Effect::ExpiredToken(ListToken::Offered));

    /// Answers a page's request by 410, without a token to go on by.
    ///
    /// It concerns lists that carry a token alone. A client falls back to one whole list.
    pub const ExpiredTokenForGood: Action = Action(Effect::ExpiredToken(ListToken::Absent));

    /// Adds a continue token to every page; pages after the real last one are empty.
    ///
    /// A client must not list for ever.
    pub const EndlessList: Action = Action(Effect::EndlessList);

    /// Sends events twice; the same as [`Replay(1)`](Fault::Replay).
    ///
    /// A client must not take the second for a change.
    pub const Duplicate: Distortion = Distortion::new(Distort::Replay(1), Events::Changes);

    /// Sends an event after the one that follows it; a bookmark ends the wait.
    ///
    /// No server may do this: a client must not panic, and must be right after its next list.
    pub const Reorder: Distortion = Distortion::new(Distort::Reorder, Events::Changes);

    /// Sends, after an event, the last `n` changes again, itself included: versions go back.
    ///
    /// No server may do this for `n` above 1: a client must not panic, nor show its users an older state
    /// after a newer one, and be right after its next list.
    #[must_use]
    pub fn Replay(n: u32) -> Distortion {
        Distortion::new(Distort::Replay(n.max(1)), Events::Changes)
    }

    /// Leaves events out: [`Events::Deleted`], [`Events::Bookmarks`], [`Events::InitialEnd`] and so on.
    ///
    /// A client without the mark that ends the initial events must not wait for ever; one that misses a deletion
    /// finds it by its next list, and tells its users of an object whose last state it does not know.
    #[must_use]
    pub fn Skip(events: Events) -> Distortion {
        Distortion::new(Distort::Skip, events)
    }

    /// Gathers events for some time, then sends only the last of what happened to an object meanwhile.
    ///
    /// Only a `MODIFIED` is ever left out, for a later event of the same object. A client acts on states, not on
    /// the steps that led there.
    #[must_use]
    pub fn Coalesce(window: Duration) -> Distortion {
        Distortion::new(Distort::Coalesce(window), Events::Any)
    }

    /// Makes events, or items of a list, unreadable in a chosen way.
    ///
    /// A client reports it, keeps what it has of the object, and goes on; it must not take it for a deletion.
    #[must_use]
    pub fn Garble(how: Garble) -> Distortion {
        Distortion::new(Distort::Garble(how), Events::Changes)
    }

    /// Spoils the mark on the bookmark that ends the initial events.
    ///
    /// A client must not take that bookmark for the end, nor wait for ever.
    #[must_use]
    pub fn EndMark(mark: Mark) -> Distortion {
        Distortion::new(Distort::EndMark(mark), Events::InitialEnd)
    }

    /// Lets this many bytes of an answer pass in each period, the first at once.
    ///
    /// It acts on bodies of every kind. A client goes on as long as something comes.
    #[must_use]
    pub fn Drip(bytes: usize, period: Duration) -> Action {
        Action(Effect::Drip(Drip { bytes: bytes.max(1), period }))
    }

    /// Answers with this code instead of looking at the request.
    ///
    /// The body is a `Status` with the usual reason of the code. Open streams are left alone, unless it is sent
    /// [as an event](StatusReply::as_event). A client honours `Retry-After` at 429 and 503, lists again after a 410
    /// in either form, and says which kind is forbidden.
    #[must_use]
    pub fn Status(code: u16) -> StatusReply {
        StatusReply::new(code)
    }

    /// Says that the version asked for is not reached yet, in one of the forms servers have sent.
    ///
    /// A client lists without a version, once; it doesn't believe that history was lost.
    #[must_use]
    pub fn TooLarge(form: TooLarge) -> StatusReply {
        StatusReply::too_large(form)
    }

    /// Serves reads from a replica that lags behind; see [`Staleness`].
    ///
    /// An open watch starts lagging, and catches up when the rule is gone. A client never goes back in time: a
    /// watch from a version the replica has not reached is silent until it has, a list "not older than" waits.
    #[must_use]
    pub fn Stale(lag: Lag) -> Staleness {
        Staleness::new(vec![lag])
    }

    /// Serves reads from several replicas that lag each other, one request each in turn.
    ///
    /// As with [`Stale`](Fault::Stale); [`Lag::Versions(0)`](Lag::Versions) is one that is up to date.
    #[must_use]
    pub fn Replicas(lags: impl IntoIterator<Item = Lag>) -> Staleness {
        Staleness::new(lags.into_iter().collect())
    }
}

/// A rule's action; every fault becomes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Action(pub(super) Effect);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Interrupt(Interruption),
    Say(Saying),
    Reply(StatusReply),
    Distort(Distortion),
    Drip(Drip),
    Stale(Staleness),
    ExpiredToken(ListToken),
    EndlessList,
    Bump,
    CommitThenDrop,
    CommitThenHold(HeldReply),
}

/// Bytes per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drip {
    pub(super) bytes: usize,
    pub(super) period: Duration,
}

/// Whether a refused page contains a token to continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListToken {
    Offered,
    Absent,
}

/// An answer that is held back after its request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldReply {
    pub(super) time: Option<Duration>,
}

impl HeldReply {
    /// Delays the answer by this time on tokio's clock.
    #[must_use]
    pub fn lasting(self, time: Duration) -> Self {
        Self { time: Some(time) }
    }
}

impl Action {
    /// Returns whether it has a meaning for a request at all.
    pub(super) fn concerns(&self, info: &RequestInfo) -> bool {
        let verb = info.verb;
        let watch = verb == Some(Verb::Watch);
        match &self.0 {
            Effect::Interrupt(interruption) => watch || !interruption.watches_alone(),
            Effect::Say(_) => watch,
            Effect::Distort(distortion) => watch || (distortion.fits_lists() && verb == Some(Verb::List)),
            Effect::Stale(_) => matches!(verb, Some(Verb::Get | Verb::List | Verb::Watch)),
            Effect::ExpiredToken(_) => verb == Some(Verb::List) && !info.go_on.is_empty(),
            Effect::EndlessList => verb == Some(Verb::List),
            Effect::Bump => {
                info.name.is_some() && matches!(verb, Some(Verb::Update | Verb::Patch | Verb::Delete))
            }
            Effect::Reply(_) | Effect::Drip(_) | Effect::CommitThenDrop | Effect::CommitThenHold(_) => true,
        }
    }

    /// True when no later rule has a say: what only colours an answer adds up.
    pub(super) fn decides(&self) -> bool {
        !matches!(
            self.0,
            Effect::Distort(_) | Effect::Drip(_) | Effect::Stale(_) | Effect::EndlessList | Effect::Bump
        )
    }

    /// True when it reaches into streams that are open.
    pub(super) fn acts_on_streams(&self) -> bool {
        matches!(
            self.0,
            Effect::Interrupt(_) | Effect::Say(_) | Effect::Distort(_) | Effect::Drip(_) | Effect::Stale(_)
        )
    }

    /// Writes the action as code for a test.
    pub(super) fn script(&self) -> String {
        match &self.0 {
            Effect::Interrupt(interruption) => interruption.script(),
            Effect::Say(saying) => saying.script(),
            Effect::Reply(reply) => reply.script(),
            Effect::Distort(distortion) => distortion.script(),
            Effect::Drip(Drip { bytes, period }) => {
                format!("Fault::Drip({bytes}, {})", duration(*period))
            }
            Effect::Stale(staleness) => staleness.script(),
            Effect::ExpiredToken(ListToken::Offered) => "Fault::ExpiredToken".to_owned(),
            Effect::ExpiredToken(ListToken::Absent) => "Fault::ExpiredTokenForGood".to_owned(),
            Effect::EndlessList => "Fault::EndlessList".to_owned(),
            Effect::Bump => "Fault::Bump".to_owned(),
            Effect::CommitThenDrop => "Fault::CommitThenDrop".to_owned(),
            Effect::CommitThenHold(HeldReply { time: None }) => "Fault::CommitThenHold".to_owned(),
            Effect::CommitThenHold(HeldReply { time: Some(time) }) => {
                format!("Fault::CommitThenHold.lasting({})", duration(*time))
            }
        }
    }
}

impl From<HeldReply> for Action {
    fn from(held: HeldReply) -> Self {
        Self(Effect::CommitThenHold(held))
    }
}

impl From<Interruption> for Action {
    fn from(interruption: Interruption) -> Self {
        Self(Effect::Interrupt(interruption))
    }
}

impl From<Saying> for Action {
    fn from(saying: Saying) -> Self {
        Self(Effect::Say(saying))
    }
}

impl From<StatusReply> for Action {
    fn from(reply: StatusReply) -> Self {
        Self(Effect::Reply(reply))
    }
}

impl From<Distortion> for Action {
    fn from(distortion: Distortion) -> Self {
        Self(Effect::Distort(distortion))
    }
}

impl From<Staleness> for Action {
    fn from(staleness: Staleness) -> Self {
        Self(Effect::Stale(staleness))
    }
}

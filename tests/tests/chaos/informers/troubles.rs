//! What a server can do wrong: every fault of the kit that a reader can meet.

use rand::{Rng as _, rngs::SmallRng, seq::IndexedRandom as _};
use tokio::time::Duration;
use watchkeeper_apiserver::{
    Fault, Verb,
    faults::{Action, Events, Garble, Lag, Mark, TooLarge},
};

use super::plan::{Honest, Trouble};

/// Codes that a server may answer; those that come more often stand more often.
const CODES: [u16; 16] = [400, 401, 403, 404, 405, 410, 410, 422, 429, 429, 500, 500, 502, 503, 503, 504];

/// Codes that come in a stream.
const IN_STREAM: [u16; 8] = [410, 410, 429, 500, 500, 503, 504, 403];

/// Draws a rule.
pub(super) fn trouble(dice: &mut SmallRng) -> Trouble {
    let verb = if dice.random_bool(0.6) { Verb::Watch } else { Verb::List };
    let (fault, honest) = match dice.random_range(0..100) {
        0..28 => (broken(dice), Honest::Yes),
        28..52 => (refused(dice), Honest::Yes),
        52..64 => (said(dice), Honest::Yes),
        64..86 => (odd(dice), Honest::Yes),
        _ => (dishonest(dice), Honest::No),
    };
    Trouble { verb, times: dice.random_range(1..5), fault, honest }
}

/// An answer that breaks off, or stops.
fn broken(dice: &mut SmallRng) -> Action {
    let kind = *[Fault::Cut, Fault::Cut, Fault::Reset, Fault::Silence].choose(dice).unwrap();
    let kind = if dice.random_bool(0.2) { kind.after_list() } else { kind };
    let kind = kind.after_events(dice.random_range(0..4));
    match dice.random_range(0..4) {
        0 => kind.into(),
        1 => kind.at_byte(dice.random_range(0..900)).mid_line().into(),
        _ => kind.at_byte(dice.random_range(0..900)).into(),
    }
}

/// An answer that is a refusal.
fn refused(dice: &mut SmallRng) -> Action {
    if dice.random_bool(0.15) {
        return Fault::TooLarge(too_large(dice)).into();
    }
    let mut reply = Fault::Status(*CODES.choose(dice).unwrap());
    if dice.random_bool(0.3) {
        reply = reply.retry_after(dice.random_range(1..10));
    }
    if dice.random_bool(0.2) { reply.text().into() } else { reply.into() }
}

/// A status in the middle of a stream.
fn said(dice: &mut SmallRng) -> Action {
    let reply = match dice.random_range(0..4) {
        0 => Fault::TooLarge(too_large(dice)),
        1 => Fault::Status(410).reason("Gone"),
        _ => Fault::Status(*IN_STREAM.choose(dice).unwrap()),
    };
    let saying = if dice.random_bool(0.3) { reply.as_line() } else { reply.as_event() };
    saying.after_events(dice.random_range(0..4)).into()
}

fn too_large(dice: &mut SmallRng) -> TooLarge {
    *[TooLarge::CauseReason, TooLarge::CauseMessage, TooLarge::Message].choose(dice).unwrap()
}

/// What is allowed, and seldom met.
fn odd(dice: &mut SmallRng) -> Action {
    let lag = |dice: &mut SmallRng| match dice.random_range(0..3) {
        0 => Lag::Versions(0),
        1 => Lag::Versions(dice.random_range(1..12)),
        _ => Lag::Time(Duration::from_secs(dice.random_range(1..30))),
    };
    match dice.random_range(0..10) {
        0 => Fault::Drip(dice.random_range(1..300), Duration::from_millis(dice.random_range(10..2_000))),
        1 => Fault::Skip(Events::Bookmarks).into(),
        2 => Fault::Skip(Events::InitialEnd).into(),
        3 => Fault::EndMark(*[Mark::Absent, Mark::False].choose(dice).unwrap()).into(),
        4 => Fault::Duplicate.into(),
        5 => Fault::Coalesce(Duration::from_millis(dice.random_range(1..5_000))).into(),
        6 => Fault::ExpiredToken,
        7 => Fault::ExpiredTokenForGood,
        8 => Fault::Replicas([lag(dice), lag(dice)]).into(),
        _ => Fault::Stale(lag(dice)).into(),
    }
}

/// What no server may do: only the next list makes it good.
fn dishonest(dice: &mut SmallRng) -> Action {
    let some = Events::Changes;
    let one = dice.random_range(1..4);
    match dice.random_range(0..7) {
        0 => Fault::Reorder.at_event(one).into(),
        1 => Fault::Replay(dice.random_range(2..5)).only(some).at_event(one).into(),
        2 => Fault::Skip(Events::Deleted).at_event(one).into(),
        3 => Fault::Skip(some).at_event(one).into(),
        4 => Fault::EndlessList,
        _ => {
            let how = [Garble::Json, Garble::Type, Garble::Kind, Garble::Object, Garble::Identity];
            Fault::Garble(*how.choose(dice).unwrap()).at_event(one).into()
        }
    }
}

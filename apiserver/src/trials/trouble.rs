//! What can go wrong at one request, and the words for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::route::{RequestInfo, Verb};

/// How long what is slow takes: less than what clients wait for an answer.
pub(super) const SLOW: Duration = Duration::from_secs(8);
/// How long something that is taken away stays away.
pub(super) const AWAY: Duration = Duration::from_secs(20);

/// What goes wrong at one request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// The request never reaches the server; the connection breaks.
    Lost,
    /// The request is carried out; its reply is lost with the connection.
    ReplyLost,
    /// The connection breaks at once, and the request is carried out a moment later.
    DoneLate,
    /// The request is carried out, and answered after 8 s.
    Slow,
    /// The server refuses with this code; 429 and 503 say when to come again.
    Refused(u16),
    /// The operator is killed, and started anew at once.
    Killed(Moment),
    /// The operator is killed, and started anew after the user's next step, or 20 s.
    Down(Moment),
    /// The operator freezes with the request on its way, another takes over, and 20 s later the request arrives.
    ///
    /// So it goes when a leader's machine stalls: its last write comes after its successor's.
    Frozen,
    /// Somebody else changes or deletes an object.
    Stranger(Deed, Whose, Moment),
    /// Something happens to the server or to watches, just before the request.
    Server(Event),
}

/// Before the request is carried out, or after, before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// Just before.
    Before,
    /// Just after.
    After,
}

/// Whose object someone else touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Whose {
    /// The object that the request is about.
    Its,
    /// The one that controls it.
    Owners,
    /// The first one that it controls.
    Childs,
}

/// What someone else does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Deed {
    /// Adds a label and an annotation, which must stay.
    Labels,
    /// Changes a field of the spec, or of the data.
    EditsSpec,
    /// Adds a condition to the status, which must stay.
    AddsCondition,
    /// Adds a finalizer, and takes it off after 20 s.
    AddsFinalizer,
    /// Takes away all owner references.
    Orphans,
    /// Deletes it.
    Deletes,
    /// Deletes it in the foreground: it goes after what depends on it.
    DeletesForeground,
    /// Deletes it, and creates a copy under the same name.
    Remakes,
    /// Makes an object of the name that is about to be created; deletes it after 20 s.
    TakesTheName,
}

/// What happens to the server, or to watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// All watches break.
    WatchesCut,
    /// The watches that are open bring nothing more.
    WatchesSilent,
    /// The watches of this kind are 5 s late.
    WatchesLate,
    /// The server restarts; nothing is lost.
    Restarts,
    /// The server restarts, and knows nothing of the past: watches must list anew.
    ForgetsHistory,
    /// The server is restored to the state before the last two writes.
    Restored,
    /// The operator may do nothing with this kind for 20 s.
    RightsTaken,
    /// The server can't be reached for 20 s.
    Partitioned,
    /// The server's clock is an hour ahead from now on.
    ClockAhead,
}

const DEEDS: [(Deed, &str); 9] = [
    (Deed::Labels, "labels"),
    (Deed::EditsSpec, "edits"),
    (Deed::AddsCondition, "adds-condition-to"),
    (Deed::AddsFinalizer, "adds-finalizer-to"),
    (Deed::Orphans, "orphans"),
    (Deed::Deletes, "deletes"),
    (Deed::DeletesForeground, "deletes-in-foreground"),
    (Deed::Remakes, "remakes"),
    (Deed::TakesTheName, "takes-the-name-of"),
];
const WHOSE: [(Whose, &str); 3] =
    [(Whose::Its, "it"), (Whose::Owners, "its-owner"), (Whose::Childs, "its-child")];
const MOMENTS: [(Moment, &str); 2] = [(Moment::Before, "before"), (Moment::After, "after")];
const EVENTS: [(Event, &str); 9] = [
    (Event::WatchesCut, "watches-cut"),
    (Event::WatchesSilent, "watches-silent"),
    (Event::WatchesLate, "watches-late"),
    (Event::Restarts, "server-restarts"),
    (Event::ForgetsHistory, "history-forgotten"),
    (Event::Restored, "server-restored"),
    (Event::RightsTaken, "rights-taken"),
    (Event::Partitioned, "partitioned"),
    (Event::ClockAhead, "clock-ahead"),
];

fn word<T: PartialEq>(words: &[(T, &'static str)], of: &T) -> &'static str {
    words.iter().find(|(one, _)| one == of).map_or("?", |(_, word)| word)
}

fn meaning<T: Copy>(words: &[(T, &str)], text: &str) -> Option<T> {
    words.iter().find(|(_, word)| *word == text).map(|(one, _)| *one)
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::ReplyLost => f.write_str("reply-lost"),
            Self::DoneLate => f.write_str("done-late"),
            Self::Slow => f.write_str("slow"),
            Self::Frozen => f.write_str("frozen"),
            Self::Refused(code) => write!(f, "refused-{code}"),
            Self::Killed(moment) => write!(f, "killed-{}", word(&MOMENTS, moment)),
            Self::Down(moment) => write!(f, "down-{}", word(&MOMENTS, moment)),
            Self::Stranger(deed, whose, moment) => {
                let (deed, whose) = (word(&DEEDS, deed), word(&WHOSE, whose));
                write!(f, "stranger-{deed}-{whose}-{}", word(&MOMENTS, moment))
            }
            Self::Server(event) => f.write_str(word(&EVENTS, event)),
        }
    }
}

impl FromStr for Trouble {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let moment = |text: &str| meaning(&MOMENTS, text);
        let plain = match text {
            "lost" => Some(Self::Lost),
            "reply-lost" => Some(Self::ReplyLost),
            "done-late" => Some(Self::DoneLate),
            "slow" => Some(Self::Slow),
            "frozen" => Some(Self::Frozen),
            _ => meaning(&EVENTS, text).map(Self::Server),
        };
        let found = plain.or_else(|| {
            let (first, rest) = text.split_once('-')?;
            match first {
                "refused" => rest.parse().ok().map(Self::Refused),
                "killed" => moment(rest).map(Self::Killed),
                "down" => moment(rest).map(Self::Down),
                "stranger" => {
                    let (deed, word) = DEEDS.iter().find(|(_, word)| {
                        rest.strip_prefix(word).is_some_and(|rest| rest.starts_with("-it"))
                    })?;
                    let (whose, when) = rest[word.len() + 1..].rsplit_once('-')?;
                    Some(Self::Stranger(*deed, meaning(&WHOSE, whose)?, moment(when)?))
                }
                _ => None,
            }
        });
        found.ok_or_else(|| format!("there is no trouble {text:?}"))
    }
}

impl Trouble {
    /// Says what happens, for a story.
    pub(super) fn tell(self) -> String {
        match self {
            Self::Lost => "it never reaches the server".to_owned(),
            Self::ReplyLost => "it is carried out, and the reply is lost".to_owned(),
            Self::DoneLate => "the connection breaks, and it is carried out a moment later".to_owned(),
            Self::Slow => format!("it is answered after {SLOW:?}"),
            Self::Refused(code) => format!("the server refuses it with {code}"),
            Self::Killed(Moment::Before) => "the operator dies before it, and starts anew".to_owned(),
            Self::Killed(Moment::After) => "it is carried out, the operator dies, and starts anew".to_owned(),
            Self::Down(Moment::Before) => "the operator dies before it, and is down for a while".to_owned(),
            Self::Down(Moment::After) => {
                "it is carried out, the operator dies, and is down for a while".to_owned()
            }
            Self::Frozen => {
                format!("the operator freezes, another takes over, and the request arrives after {AWAY:?}")
            }
            Self::Stranger(deed, whose, moment) => {
                let whose = match whose {
                    Whose::Its => "the object",
                    Whose::Owners => "its owner",
                    Whose::Childs => "its child",
                };
                let deed = match deed {
                    Deed::Labels => format!("labels {whose}"),
                    Deed::EditsSpec => format!("edits {whose}"),
                    Deed::AddsCondition => format!("adds a condition to {whose}"),
                    Deed::AddsFinalizer => format!("adds a finalizer to {whose}"),
                    Deed::Orphans => format!("takes the owner references off {whose}"),
                    Deed::Deletes => format!("deletes {whose}"),
                    Deed::DeletesForeground => format!("deletes {whose} in the foreground"),
                    Deed::Remakes => format!("deletes {whose} and makes its like"),
                    Deed::TakesTheName => "makes an object of that name".to_owned(),
                };
                format!("just {} it, somebody else {deed}", word(&MOMENTS, &moment))
            }
            Self::Server(event) => match event {
                Event::WatchesCut => "just before it, all watches break".to_owned(),
                Event::WatchesSilent => "from just before it, the open watches bring nothing more".to_owned(),
                Event::WatchesLate => "from just before it, watches of the kind are 5 s late".to_owned(),
                Event::Restarts => "just before it, the server restarts".to_owned(),
                Event::ForgetsHistory => {
                    "just before it, the server restarts and knows nothing of the past".to_owned()
                }
                Event::Restored => "just before it, the server is restored to two writes earlier".to_owned(),
                Event::RightsTaken => format!("from just before it, the kind is forbidden for {AWAY:?}"),
                Event::Partitioned => format!("from just before it, the server is out of reach for {AWAY:?}"),
                Event::ClockAhead => "from just before it, the server's clock is an hour ahead".to_owned(),
            },
        }
    }

    /// Lists what can go wrong at a request.
    pub(super) fn at(info: &RequestInfo) -> Vec<Self> {
        let refused = |codes: &[u16]| codes.iter().map(|code| Self::Refused(*code)).collect::<Vec<_>>();
        let mut all = vec![Self::Lost];
        match info.verb {
            Some(Verb::Watch) => {
                all.extend(refused(&[403, 410, 429, 500, 503]));
                all.extend([Event::WatchesSilent, Event::Partitioned].map(Self::Server));
                all.push(Self::Killed(Moment::Before));
            }
            Some(verb) if verb.writes() => {
                all.extend([Self::ReplyLost, Self::DoneLate, Self::Slow, Self::Frozen]);
                all.extend(refused(&[403, 409, 422, 429, 500, 503]));
                // Of an object that is there no server says so, but of a namespace that goes.
                all.extend((verb == Verb::Create).then_some(Self::Refused(404)));
                for moment in [Moment::Before, Moment::After] {
                    all.extend([Self::Killed(moment), Self::Down(moment)]);
                }
                all.extend(EVENTS.map(|(event, _)| Self::Server(event)));
                all.extend(strangers(info));
            }
            Some(_) => {
                all.push(Self::Slow);
                all.extend(refused(&[403, 410, 429, 500, 503]));
                all.extend([Self::Killed(Moment::After), Self::Down(Moment::After)]);
                if info.name.is_some() {
                    for deed in [Deed::EditsSpec, Deed::Labels, Deed::Deletes, Deed::Remakes] {
                        all.push(Self::Stranger(deed, Whose::Its, Moment::After));
                    }
                }
            }
            None => all.extend(refused(&[500, 503])),
        }
        all
    }

    /// Returns whether a calm run's end can't be asked for afterwards.
    pub(super) fn changes_the_end(self) -> bool {
        matches!(self, Self::Server(Event::Restored))
    }
}

fn strangers(info: &RequestInfo) -> Vec<Trouble> {
    let mut all = Vec::new();
    for moment in [Moment::Before, Moment::After] {
        for (deed, _) in DEEDS {
            match deed {
                Deed::TakesTheName => {}
                _ => all.push(Trouble::Stranger(deed, Whose::Its, moment)),
            }
        }
        for deed in [Deed::EditsSpec, Deed::Deletes, Deed::Remakes] {
            all.push(Trouble::Stranger(deed, Whose::Owners, moment));
        }
        for deed in [Deed::EditsSpec, Deed::Deletes, Deed::Remakes] {
            all.push(Trouble::Stranger(deed, Whose::Childs, moment));
        }
    }
    if matches!(info.verb, Some(Verb::Create | Verb::Patch | Verb::Update)) && info.subresource.is_empty() {
        all.push(Trouble::Stranger(Deed::TakesTheName, Whose::Its, Moment::Before));
    }
    all
}

/// Where a trouble strikes: at the n-th request of a sort.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Place {
    /// The request in words, e.g. `patch websites/status shop/a`.
    pub(super) request: String,
    /// Counted from 1.
    pub(super) nth: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.request, self.nth)
    }
}

/// One trouble at one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Planned {
    pub(super) place: Place,
    pub(super) trouble: Trouble,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.trouble)
    }
}

impl FromStr for Planned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(": ").and_then(|(place, trouble)| {
            let (request, nth) = place.rsplit_once(" #")?;
            Some((request.trim().to_owned(), nth.parse().ok()?, trouble))
        });
        let (request, nth, trouble) =
            parts.ok_or_else(|| format!("{text:?} is not of the form \"REQUEST #N: TROUBLE\""))?;
        Ok(Self { place: Place { request, nth }, trouble: trouble.trim().parse()? })
    }
}

/// Says in words what a request asks, so that equal requests of two runs are equal.
pub(super) fn describe(method: &http::Method, info: &RequestInfo) -> String {
    let Some(verb) = info.verb else { return format!("{} {}", method.as_str().to_lowercase(), info.path) };
    let mut out = format!("{verb} {}", info.resource);
    if !info.subresource.is_empty() {
        out += &format!("/{}", info.subresource);
    }
    match (&info.namespace, &info.name) {
        (Some(namespace), Some(name)) => out += &format!(" {namespace}/{name}"),
        (None, Some(name)) => out += &format!(" {name}"),
        (Some(namespace), None) => out += &format!(" in {namespace}"),
        (None, None) => {}
    }
    out
}

/// Some troubles, and the steps of the script that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) planned: Vec<Planned>,
    /// Counted from 1.
    pub(super) without: Vec<usize>,
}

impl Case {
    pub(super) fn of(planned: Vec<Planned>) -> Self {
        Self { planned, without: Vec::new() }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let planned: Vec<String> = self.planned.iter().map(ToString::to_string).collect();
        f.write_str(&planned.join(" & "))?;
        if !self.without.is_empty() {
            let steps: Vec<String> = self.without.iter().map(ToString::to_string).collect();
            write!(f, " | without {}", steps.join(" "))?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (planned, without) = text.split_once(" | without ").unwrap_or((text, ""));
        let number = |word: &str| word.parse().map_err(|_| format!("{word:?} is no number of a step"));
        Ok(Self {
            planned: planned.split(" & ").map(str::parse).collect::<Result<_, _>>()?,
            without: without.split_whitespace().map(number).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::*;

    fn every_trouble() -> Vec<Trouble> {
        let info = |method: Method, uri: &'static str| RequestInfo::of(&method, &Uri::from_static(uri));
        let mut all = Trouble::at(&info(Method::POST, "/api/v1/namespaces/shop/configmaps"));
        all.extend(Trouble::at(&info(Method::PATCH, "/api/v1/namespaces/shop/configmaps/a")));
        all.extend(Trouble::at(&info(Method::GET, "/api/v1/namespaces/shop/configmaps/a")));
        all.extend(Trouble::at(&info(Method::GET, "/api/v1/configmaps?watch=1")));
        all.extend(Trouble::at(&info(Method::GET, "/version")));
        all
    }

    #[test]
    fn every_trouble_is_read_back_as_it_is_written() {
        let all = every_trouble();
        assert!(all.len() > 60);
        for trouble in all {
            assert_eq!(trouble.to_string().parse(), Ok(trouble));
            assert!(!trouble.tell().is_empty());
        }
    }

    #[test]
    fn a_case_is_read_back_as_it_is_written() {
        let text = "patch websites/status shop/a #2: reply-lost & create deployments in shop #1: \
                    stranger-adds-finalizer-to-its-owner-after | without 2 3";
        let case: Case = text.parse().expect("it is a case");
        assert_eq!(case.planned.len(), 2);
        assert_eq!(case.to_string(), text);
    }

    #[test]
    fn what_is_no_case_is_refused_with_what_is_wrong() {
        let refused = |text: &str| text.parse::<Case>().expect_err("it is none");
        assert!(refused("nonsense").contains("REQUEST #N: TROUBLE"));
        assert!(refused("get x #1: sunshine").contains("no trouble \"sunshine\""));
        assert!(refused("get x #1: lost | without two").contains("no number of a step"));
    }
}

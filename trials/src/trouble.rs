//! What can go wrong at one request, and the words for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::RequestInfo;

use crate::world::MACHINERY;

/// How long what is slow takes: less than what clients wait for an answer.
pub(crate) const SLOW: Duration = Duration::from_secs(8);
/// How long something that is taken away stays away.
pub(crate) const AWAY: Duration = Duration::from_secs(20);

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
    /// The operator is killed, and restarted at once.
    Killed(Moment),
    /// The operator is killed, and restarted after the user's next step, or 20 s.
    Down(Moment),
    /// The operator freezes with the request on its way, another takes over, and 20 s later the request arrives.
    ///
    /// So it goes when a leader's machine stalls: its last write comes after its successor's.
    Frozen,
    /// Somebody else changes or deletes an object.
    Stranger(ForeignChange, Whose, Moment),
    /// Something happens to the server or to watches, just before the request.
    Server(Event),
    /// The webhooks of the operator are in trouble for 20 s, from just before a request for which one is called.
    Webhooks(WebhookTrouble),
    /// One version of the operator takes over from the other; only in trials of an [upgrade](crate::Trials::upgrade).
    Replaced(Replacement),
}

/// How one version of an operator takes over from the other: the new one in an upgrade, the old one in a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Replacement {
    /// All is at rest.
    AtRest,
    /// It is killed around one of its requests.
    Killed(Moment),
    /// Both run until the user's second step from then on, or for a minute, as in a rolling update.
    Rolling,
}

/// What goes wrong with webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WebhookTrouble {
    /// They answer after 8 s, for which many configurations do not wait.
    Slow,
    /// Nobody answers.
    Down,
    /// They refuse everything.
    Refuse,
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
pub enum ForeignChange {
    /// Adds a label and an annotation, which must stay.
    Labels,
    /// Changes a field of the spec, or of the data.
    EditsSpec,
    /// Changes all fields of the spec or the data at once, in lists and maps too; numbers go to their limits.
    EditsMuch,
    /// Replaces it by a copy that is one change old, whatever has been written since.
    Replaces,
    /// Changes a field of the status, but for its conditions.
    EditsStatus,
    /// Adds a condition to the status, which must stay.
    AddsCondition,
    /// Adds a finalizer, and takes it off after 20 s.
    AddsFinalizer,
    /// Takes away all owner references: the operator may take it back, or leave it alone.
    Orphans,
    /// Deletes it.
    Deletes,
    /// Deletes it in the foreground: it goes after what depends on it.
    DeletesForeground,
    /// Deletes it, and creates a copy under the same name, in which a field of the spec or the data differs.
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
    /// The server restarts, and knows nothing of the past: watches must list again.
    ForgetsHistory,
    /// The server is restored to the state before the last two writes, between which others have written.
    Restored,
    /// The server restarts without its history, and lists come in pages whose tokens expire once.
    ListsExpire,
    /// The definition of this custom kind is deleted, and comes back after 20 s without its objects.
    DefinitionGone,
    /// The operator may do nothing with this kind for 20 s.
    RightsTaken,
    /// The server can't be reached for 20 s.
    Partitioned,
    /// The server's clock is an hour ahead from now on.
    ClockAhead,
}

const FOREIGN_CHANGES: [(ForeignChange, &str); 12] = [
    (ForeignChange::Labels, "labels"),
    (ForeignChange::EditsSpec, "edits"),
    (ForeignChange::EditsMuch, "edits-much-of"),
    (ForeignChange::Replaces, "replaces"),
    (ForeignChange::EditsStatus, "edits-status-of"),
    (ForeignChange::AddsCondition, "adds-condition-to"),
    (ForeignChange::AddsFinalizer, "adds-finalizer-to"),
    (ForeignChange::Orphans, "orphans"),
    (ForeignChange::Deletes, "deletes"),
    (ForeignChange::DeletesForeground, "deletes-in-foreground"),
    (ForeignChange::Remakes, "remakes"),
    (ForeignChange::TakesTheName, "takes-the-name-of"),
];
const WHOSE: [(Whose, &str); 3] =
    [(Whose::Its, "it"), (Whose::Owners, "its-owner"), (Whose::Childs, "its-child")];
const MOMENTS: [(Moment, &str); 2] = [(Moment::Before, "before"), (Moment::After, "after")];
const EVENTS: [(Event, &str); 11] = [
    (Event::WatchesCut, "watches-cut"),
    (Event::WatchesSilent, "watches-silent"),
    (Event::WatchesLate, "watches-late"),
    (Event::Restarts, "server-restarts"),
    (Event::ForgetsHistory, "history-forgotten"),
    (Event::Restored, "server-restored"),
    (Event::ListsExpire, "lists-expire"),
    (Event::DefinitionGone, "definition-gone"),
    (Event::RightsTaken, "rights-taken"),
    (Event::Partitioned, "partitioned"),
    (Event::ClockAhead, "clock-ahead"),
];

const WEBHOOKS: [(WebhookTrouble, &str); 3] = [
    (WebhookTrouble::Slow, "webhooks-slow"),
    (WebhookTrouble::Down, "webhooks-down"),
    (WebhookTrouble::Refuse, "webhooks-refuse"),
];

const REPLACEMENTS: [(Replacement, &str); 4] = [
    (Replacement::AtRest, "replaced"),
    (Replacement::Killed(Moment::Before), "replaced-before"),
    (Replacement::Killed(Moment::After), "replaced-after"),
    (Replacement::Rolling, "rolled"),
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
            Self::Stranger(change, whose, moment) => {
                let (change, whose) = (word(&FOREIGN_CHANGES, change), word(&WHOSE, whose));
                write!(f, "stranger-{change}-{whose}-{}", word(&MOMENTS, moment))
            }
            Self::Server(event) => f.write_str(word(&EVENTS, event)),
            Self::Webhooks(how) => f.write_str(word(&WEBHOOKS, how)),
            Self::Replaced(how) => f.write_str(word(&REPLACEMENTS, how)),
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
            _ => {
                let of_webhooks = || meaning(&WEBHOOKS, text).map(Self::Webhooks);
                let replaced = || meaning(&REPLACEMENTS, text).map(Self::Replaced);
                meaning(&EVENTS, text).map(Self::Server).or_else(of_webhooks).or_else(replaced)
            }
        };
        let found = plain.or_else(|| {
            let (first, rest) = text.split_once('-')?;
            match first {
                "refused" => rest.parse().ok().map(Self::Refused),
                "killed" => moment(rest).map(Self::Killed),
                "down" => moment(rest).map(Self::Down),
                "stranger" => {
                    let (change, word) = FOREIGN_CHANGES.iter().find(|(_, word)| {
                        rest.strip_prefix(word).is_some_and(|rest| rest.starts_with("-it"))
                    })?;
                    let (whose, when) = rest[word.len() + 1..].rsplit_once('-')?;
                    Some(Self::Stranger(*change, meaning(&WHOSE, whose)?, moment(when)?))
                }
                _ => None,
            }
        });
        found.ok_or_else(|| format!("there is no trouble {text:?}"))
    }
}

impl Trouble {
    /// Says what happens, for a story.
    pub(crate) fn tell(self) -> String {
        match self {
            Self::Lost => "it never reaches the server".to_owned(),
            Self::ReplyLost => "it is carried out, and the reply is lost".to_owned(),
            Self::DoneLate => "the connection breaks, and it is carried out a moment later".to_owned(),
            Self::Slow => format!("it is answered after {SLOW:?}"),
            Self::Refused(code) => format!("the server refuses it with {code}"),
            Self::Killed(Moment::Before) => "the operator dies before it, and restarts".to_owned(),
            Self::Killed(Moment::After) => "it is carried out, the operator dies, and restarts".to_owned(),
            Self::Down(Moment::Before) => "the operator dies before it, and is down for a while".to_owned(),
            Self::Down(Moment::After) => {
                "it is carried out, the operator dies, and is down for a while".to_owned()
            }
            Self::Frozen => {
                format!("the operator freezes, another takes over, and the request arrives after {AWAY:?}")
            }
            Self::Stranger(change, whose, moment) => {
                let whose = match whose {
                    Whose::Its => "the object",
                    Whose::Owners => "its owner",
                    Whose::Childs => "its child",
                };
                let change = match change {
                    ForeignChange::Labels => format!("labels {whose}"),
                    ForeignChange::EditsSpec => format!("edits {whose}"),
                    ForeignChange::EditsMuch => format!("edits all fields of {whose}"),
                    ForeignChange::Replaces => format!("replaces {whose} by an earlier copy of it"),
                    ForeignChange::EditsStatus => format!("edits the status of {whose}"),
                    ForeignChange::AddsCondition => format!("adds a condition to {whose}"),
                    ForeignChange::AddsFinalizer => format!("adds a finalizer to {whose}"),
                    ForeignChange::Orphans => format!("takes the owner references off {whose}"),
                    ForeignChange::Deletes => format!("deletes {whose}"),
                    ForeignChange::DeletesForeground => format!("deletes {whose} in the foreground"),
                    ForeignChange::Remakes => format!("deletes {whose} and makes its like, but for a field"),
                    ForeignChange::TakesTheName => "makes an object of that name".to_owned(),
                };
                format!("just {} it, somebody else {change}", word(&MOMENTS, &moment))
            }
            Self::Replaced(how) => match how {
                Replacement::AtRest => "this version is replaced by the other".to_owned(),
                Replacement::Killed(Moment::Before) => {
                    "this version dies before it, and the other takes over".to_owned()
                }
                Replacement::Killed(Moment::After) => {
                    "it is carried out, this version dies, and the other takes over".to_owned()
                }
                Replacement::Rolling => "the other version starts, and both run for a while".to_owned(),
            },
            Self::Webhooks(how) => match how {
                WebhookTrouble::Slow => {
                    format!("from just before it, webhooks answer after {SLOW:?}, for {AWAY:?}")
                }
                WebhookTrouble::Down => format!("from just before it, no webhook answers for {AWAY:?}"),
                WebhookTrouble::Refuse => {
                    format!("from just before it, webhooks refuse everything for {AWAY:?}")
                }
            },
            Self::Server(event) => match event {
                Event::WatchesCut => "just before it, all watches break".to_owned(),
                Event::WatchesSilent => "from just before it, the open watches bring nothing more".to_owned(),
                Event::WatchesLate => "from just before it, watches of the kind are 5 s late".to_owned(),
                Event::Restarts => "just before it, the server restarts".to_owned(),
                Event::ForgetsHistory => {
                    "just before it, the server restarts and knows nothing of the past".to_owned()
                }
                Event::Restored => "just before it, the server is restored to two writes earlier".to_owned(),
                Event::ListsExpire => {
                    "just before it, the server restarts without its history; pages of lists expire"
                        .to_owned()
                }
                Event::DefinitionGone => {
                    format!("just before it, the kind's definition is deleted; it comes back after {AWAY:?}")
                }
                Event::RightsTaken => format!("from just before it, the kind is forbidden for {AWAY:?}"),
                Event::Partitioned => format!("from just before it, the server is out of reach for {AWAY:?}"),
                Event::ClockAhead => "from just before it, the server's clock is an hour ahead".to_owned(),
            },
        }
    }

    /// Lists what can go wrong at a request, with what is there for somebody else to touch.
    pub(crate) fn at(info: &RequestInfo, there: &RequestTargets) -> Vec<Self> {
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
                // No server answers so about an object that exists, but about a namespace that is being deleted.
                all.extend((verb == Verb::Create).then_some(Self::Refused(404)));
                for moment in [Moment::Before, Moment::After] {
                    all.extend([Self::Killed(moment), Self::Down(moment)]);
                }
                let events = EVENTS.iter().map(|(event, _)| *event);
                let events = events.filter(|event| *event != Event::DefinitionGone || there.custom);
                all.extend(events.map(Self::Server));
                all.extend(WEBHOOKS.iter().filter(|_| there.hooked).map(|(how, _)| Self::Webhooks(*how)));
                all.extend(strangers(info, there));
            }
            Some(_) => {
                all.push(Self::Slow);
                all.extend(refused(&[403, 410, 429, 500, 503]));
                all.extend([Self::Killed(Moment::After), Self::Down(Moment::After)]);
                if info.name.is_some() && there.after.its {
                    all.extend(AFTER_A_READ.map(|change| Self::Stranger(change, Whose::Its, Moment::After)));
                }
            }
            // To another system, which may be asked to make something by any method but GET.
            None if info.path.starts_with("/external/") => {
                all.extend([Self::ReplyLost, Self::DoneLate, Self::Slow]);
                all.extend(refused(&[429, 500, 503]));
                for moment in [Moment::Before, Moment::After] {
                    all.extend([Self::Killed(moment), Self::Down(moment)]);
                }
            }
            None => all.extend(refused(&[500, 503])),
        }
        all
    }

    /// Returns whether the baseline run's end can't be asked for afterwards.
    pub(crate) fn changes_the_end(self) -> bool {
        matches!(self, Self::Server(Event::Restored))
    }
}

/// What somebody else does to an object that the operator has just read.
const AFTER_A_READ: [ForeignChange; 6] = [
    ForeignChange::EditsSpec,
    ForeignChange::EditsStatus,
    ForeignChange::AddsCondition,
    ForeignChange::Labels,
    ForeignChange::Deletes,
    ForeignChange::Remakes,
];

/// Which objects there are for somebody else to touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Targets {
    pub(crate) its: bool,
    pub(crate) owner: bool,
    pub(crate) child: bool,
    /// An earlier copy of it exists.
    pub(crate) its_copy: bool,
    /// An earlier copy of its owner exists.
    pub(crate) owners_copy: bool,
}

/// What is there around a request of the baseline run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTargets {
    pub(crate) before: Targets,
    pub(crate) after: Targets,
    /// The kind has a definition that can be deleted.
    pub(crate) custom: bool,
    /// A webhook was called for it.
    pub(crate) hooked: bool,
}

fn strangers(info: &RequestInfo, there: &RequestTargets) -> Vec<Trouble> {
    let mut all = Vec::new();
    for (moment, at) in [(Moment::Before, there.before), (Moment::After, there.after)] {
        for (whose, is_there) in [(Whose::Its, at.its), (Whose::Owners, at.owner), (Whose::Childs, at.child)]
        {
            let copied = match whose {
                Whose::Its => at.its_copy,
                Whose::Owners => at.owners_copy,
                Whose::Childs => false,
            };
            // Each once for a request: more would find nothing more. Leases are left to leader election.
            let is_machinery = MACHINERY.contains(&info.resource.as_str());
            let deeds = FOREIGN_CHANGES.iter().map(|(change, _)| *change).filter(|change| match change {
                ForeignChange::TakesTheName => false,
                ForeignChange::EditsMuch => is_there && !is_machinery && moment == Moment::After,
                ForeignChange::Replaces => copied && !is_machinery && moment == Moment::Before,
                _ => is_there,
            });
            all.extend(deeds.map(|change| Trouble::Stranger(change, whose, moment)));
        }
    }
    let makes = matches!(info.verb, Some(Verb::Create | Verb::Patch | Verb::Update));
    if makes && info.subresource.is_empty() && !there.before.its {
        all.push(Trouble::Stranger(ForeignChange::TakesTheName, Whose::Its, Moment::Before));
    }
    all
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::*;

    fn every_trouble() -> Vec<Trouble> {
        let info = |method: Method, uri: &'static str| RequestInfo::of(&method, &Uri::from_static(uri));
        let targets = Targets { its: true, owner: true, child: true, its_copy: true, owners_copy: true };
        let there = RequestTargets { before: targets, after: targets, custom: true, hooked: true };
        let mut all = Trouble::at(
            &info(Method::POST, "/api/v1/namespaces/shop/configmaps"),
            &RequestTargets { before: Targets::default(), ..there },
        );
        all.extend(Trouble::at(&info(Method::PATCH, "/api/v1/namespaces/shop/configmaps/a"), &there));
        all.extend(Trouble::at(&info(Method::GET, "/api/v1/namespaces/shop/configmaps/a"), &there));
        all.extend(Trouble::at(&info(Method::GET, "/api/v1/configmaps?watch=1"), &there));
        all.extend(Trouble::at(&info(Method::GET, "/version"), &there));
        all
    }

    #[test]
    fn every_trouble_is_read_back_as_it_is_written() {
        let all = every_trouble();
        assert!(all.len() > 100);
        for trouble in all {
            assert_eq!(trouble.to_string().parse(), Ok(trouble));
            assert!(!trouble.tell().is_empty());
        }
    }

    #[test]
    fn nobody_touches_what_is_not_there() {
        let info = RequestInfo::of(&Method::PATCH, &Uri::from_static("/api/v1/namespaces/shop/configmaps/a"));
        let all = Trouble::at(&info, &RequestTargets::default());
        let strangers: Vec<&Trouble> =
            all.iter().filter(|one| matches!(one, Trouble::Stranger(..))).collect();
        assert_eq!(strangers, [&Trouble::Stranger(ForeignChange::TakesTheName, Whose::Its, Moment::Before)]);
        assert!(!all.contains(&Trouble::Server(Event::DefinitionGone)), "it has none");
        assert!(!all.contains(&Trouble::Webhooks(WebhookTrouble::Down)), "none is called");
    }
}

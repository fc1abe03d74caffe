//! Where troubles strike, and the words by which a trial is replayed.

use std::fmt;
use std::str::FromStr;

use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::{RequestInfo, object};

use crate::life::Version;
use crate::trouble::Trouble;

/// Where a trouble strikes: at the n-th request of a sort.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RequestPoint {
    /// The request in words, e.g. `patch websites/status shop/a`.
    pub(crate) request: String,
    /// Counted from 1.
    pub(crate) nth: u32,
}

impl fmt::Display for RequestPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.request, self.nth)
    }
}

/// Where something is planned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// At a request of the operator.
    Request(RequestPoint),
    /// When all is at rest after a step of the script; 0: before the first.
    Step(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(point) => point.fmt(f),
            Self::Step(number) => write!(f, "{AFTER_STEP}{number}"),
        }
    }
}

/// How a place after a step begins.
const AFTER_STEP: &str = "after step ";

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(number) = text.strip_prefix(AFTER_STEP) {
            return Ok(Self::Step(number.parse().map_err(|_| ())?));
        }
        let (request, nth) = text.rsplit_once(" #").ok_or(())?;
        let nth = nth.parse().map_err(|_| ())?;
        Ok(Self::Request(RequestPoint { request: request.trim().to_owned(), nth }))
    }
}

/// One trouble at one place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PlannedTrouble {
    pub(crate) place: Place,
    pub(crate) trouble: Trouble,
}

impl fmt::Display for PlannedTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.trouble)
    }
}

impl FromStr for PlannedTrouble {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(": ").and_then(|(place, trouble)| Some((place.parse().ok()?, trouble)));
        let wrong =
            || format!("{text:?} is not of the form \"REQUEST #N: TROUBLE\" or \"after step N: TROUBLE\"");
        let (place, trouble) = parts.ok_or_else(wrong)?;
        Ok(Self { place, trouble: trouble.trim().parse()? })
    }
}

/// Says in words what a request asks, so that equal requests of two runs are equal.
pub(crate) fn describe(method: &http::Method, info: &RequestInfo, body: &[u8]) -> String {
    let Some(verb) = info.verb else { return format!("{} {}", method.as_str().to_lowercase(), info.path) };
    let mut out = format!("{verb} {}", info.resource);
    if !info.subresource.is_empty() {
        out += &format!("/{}", info.subresource);
    }
    let made = (verb == Verb::Create && info.name.is_none()).then(|| name_within(info, body)).flatten();
    match (&info.namespace, info.name.as_ref().or(made.as_ref())) {
        (Some(namespace), Some(name)) => out += &format!(" {namespace}/{name}"),
        (None, Some(name)) => out += &format!(" {name}"),
        (Some(namespace), None) => out += &format!(" in {namespace}"),
        (None, None) => {}
    }
    out
}

/// Reads the name of an object that is about to be made; one that the server is to choose ends in `*`.
pub(crate) fn name_within(info: &RequestInfo, body: &[u8]) -> Option<String> {
    // Names of events hold times.
    if info.resource == "events" {
        return None;
    }
    let object: serde_json::Value = serde_json::from_slice(body).ok()?;
    match (object::name(&object), object::text(&object, "generateName")) {
        ("", "") => None,
        ("", prefix) => Some(format!("{prefix}*")),
        (name, _) => Some(name.to_owned()),
    }
}

/// Some troubles, and the steps of the script that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) planned: Vec<PlannedTrouble>,
    /// Counted from 1.
    pub(crate) without: Vec<usize>,
    /// The version that is deployed at first.
    pub(crate) begins: Version,
}

impl Schedule {
    pub(crate) fn of(planned: Vec<PlannedTrouble>) -> Self {
        Self { planned, ..Self::default() }
    }

    /// Without any trouble, from this version on.
    pub(crate) fn calm(begins: Version) -> Self {
        Self { begins, ..Self::default() }
    }

    /// Returns whether nothing goes wrong: versions may be exchanged when all is at rest.
    pub(crate) fn is_calm(&self) -> bool {
        self.planned.iter().all(|one| matches!(one.place, Place::Step(_)))
    }
}

impl fmt::Display for Schedule {
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

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (planned, without) = text.split_once(" | without ").unwrap_or((text, ""));
        let number = |word: &str| word.parse().map_err(|_| format!("{word:?} is not the number of a step"));
        Ok(Self {
            planned: planned.split(" & ").map(str::parse).collect::<Result<_, _>>()?,
            without: without.split_whitespace().map(number).collect::<Result<_, _>>()?,
            begins: Version::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};

    use super::*;

    #[test]
    fn a_case_is_read_back_as_it_is_written() {
        let text = "patch websites/status shop/a #2: reply-lost & create deployments in shop #1: \
                    stranger-adds-finalizer-to-its-owner-after | without 2 3";
        let schedule: Schedule = text.parse().expect("it is a case");
        assert_eq!(schedule.planned.len(), 2);
        assert_eq!(schedule.to_string(), text);
        let text = "after step 2: replaced & new: patch websites/status shop/a #1: replaced-before";
        let schedule: Schedule = text.parse().expect("it is a case");
        assert_eq!(schedule.planned[0].place, Place::Step(2));
        assert_eq!(schedule.to_string(), text);
    }

    #[test]
    fn what_is_no_case_is_refused_with_what_is_wrong() {
        let refused = |text: &str| text.parse::<Schedule>().expect_err("it is none");
        assert!(refused("nonsense").contains("REQUEST #N: TROUBLE"));
        assert!(refused("get x #1: sunshine").contains("no trouble \"sunshine\""));
        assert!(refused("get x #1: lost | without two").contains("not the number of a step"));
    }

    #[test]
    fn what_is_made_is_told_apart_by_its_name() {
        let uri = Uri::from_static("/api/v1/namespaces/shop/configmaps");
        let described =
            |body: &str| describe(&Method::POST, &RequestInfo::of(&Method::POST, &uri), body.as_bytes());
        assert_eq!(described(r#"{"metadata":{"name":"a"}}"#), "create configmaps shop/a");
        assert_eq!(described(r#"{"metadata":{"generateName":"a-"}}"#), "create configmaps shop/a-*");
        assert_eq!(described("rubbish"), "create configmaps in shop");
    }
}

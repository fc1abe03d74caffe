//! The transcripts as they are written down.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::Value;
use serde_json::value::RawValue;

/// One scenario: what was sent to a real server in a row, and what it answered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// What it shows.
    #[serde(rename = "why")]
    _why: String,
    /// What a server must have for it.
    #[serde(rename = "requires")]
    _requires: Vec<String>,
    /// The version that answered.
    #[serde(rename = "server")]
    _server: String,
    /// What was done.
    pub(crate) steps: Vec<Step>,
    /// What a server that goes on living should delete afterwards.
    #[serde(default, rename = "cleanup")]
    _cleanup: Vec<String>,
}

/// One step; each has a `do` that names it.
#[derive(Debug)]
pub(crate) enum Step {
    /// Sends a request and reads the answer.
    Request(Request),
    /// Opens a stream.
    Watch(Watch),
    /// Reads from a stream.
    Events(Events),
    /// Closes a stream.
    Close(Close),
    /// Lets the server forget its history.
    Compact,
}

/// A request and the answer it got.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(rename = "do")]
    _do: String,
    #[serde(default, rename = "note")]
    _note: String,
    pub(crate) request: Call,
    pub(crate) response: Answer,
    /// The only paths of the body to compare.
    pub(crate) check: Option<Vec<String>>,
    /// The paths of the body not to compare.
    #[serde(default)]
    pub(crate) ignore: Vec<String>,
    /// What the answer must show before it counts.
    pub(crate) until: Option<Until>,
}

/// A stream and how its opening was answered.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Watch {
    #[serde(rename = "do")]
    _do: String,
    #[serde(default, rename = "note")]
    _note: String,
    /// The stream's name in later steps.
    pub(crate) watch: String,
    pub(crate) request: Call,
    pub(crate) response: Answer,
}

/// What a stream sends next.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Events {
    #[serde(rename = "do")]
    _do: String,
    #[serde(default, rename = "note")]
    _note: String,
    pub(crate) watch: String,
    pub(crate) events: Vec<Value>,
    /// The only paths of each event to compare.
    pub(crate) check: Option<Vec<String>>,
    /// The seconds for which nothing more comes.
    pub(crate) quiet: Option<f64>,
    /// Whether the stream ends.
    #[serde(default)]
    pub(crate) eof: bool,
}

/// Which stream to close.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Close {
    #[serde(rename = "do")]
    _do: String,
    pub(crate) watch: String,
}

/// What is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers instead of the usual ones; null leaves one out.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    /// A body in JSON, its keys in the order they are sent in.
    body: Option<Box<RawValue>>,
    /// A body that is sent as it stands.
    text: Option<String>,
    #[serde(default, rename = "as")]
    pub(crate) sender: Sender,
}

impl Call {
    /// Returns the body before its placeholders are filled.
    pub(crate) fn payload(&self) -> Option<&str> {
        self.text.as_deref().or(self.body.as_deref().map(RawValue::get))
    }
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sender {
    /// A user who may do everything.
    #[default]
    Admin,
    /// A user without rights.
    Viewer,
    /// Nobody: no token is sent.
    None,
    /// Somebody whose token nobody knows.
    Bad,
}

/// What came back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, Value>,
    /// The body, text where it isn't JSON.
    pub(crate) body: Option<Value>,
    /// The paths worth keeping of a long body.
    pub(crate) extract: Option<BTreeMap<String, Value>>,
}

/// What to wait for: a status, or a value in the body.
#[derive(Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(crate) enum Until {
    Status { status: u16 },
    Value { path: String, equals: Value },
}

impl<'de> Deserialize<'de> for Step {
    /// Reads the name of the step first: a tagged enum would lose the order of keys in bodies.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            r#do: String,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let Named { r#do: name } = serde_json::from_str(text).map_err(D::Error::custom)?;
        match name.as_str() {
            "request" => serde_json::from_str(text).map(Self::Request),
            "watch" => serde_json::from_str(text).map(Self::Watch),
            "events" => serde_json::from_str(text).map(Self::Events),
            "close" => serde_json::from_str(text).map(Self::Close),
            "compact" => Ok(Self::Compact),
            _ => return Err(D::Error::custom(format!("the step {name:?} is not replayed yet"))),
        }
        .map_err(D::Error::custom)
    }
}

impl Step {
    /// Names the step in a report.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Request(Request { request, .. }) => format!("{} {}", request.method, request.path),
            Self::Watch(Watch { request, .. }) => format!("watch {}", request.path),
            Self::Events(Events { watch, .. }) => format!("events {watch}"),
            Self::Close(Close { watch, .. }) => format!("close {watch}"),
            Self::Compact => "compact".to_owned(),
        }
    }
}

/// Reads a scenario by name.
pub(crate) fn read(name: &str) -> anyhow::Result<Scenario> {
    let scenario = parse(&text(name)?).with_context(|| format!("{name}.json"))?;
    anyhow::ensure!(scenario.name == name, "{name}.json holds {:?}", scenario.name);
    Ok(scenario)
}

/// Reads a scenario's text.
pub(crate) fn parse(text: &str) -> anyhow::Result<Scenario> {
    serde_json::from_str(text).context("not a scenario")
}

/// Returns the names of all scenarios, in order.
pub(crate) fn names() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder().read_dir().with_context(|| format!("no folder {:?}", folder()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the text of a scenario.
pub(crate) fn text(name: &str) -> anyhow::Result<String> {
    let path = folder().join(format!("{name}.json"));
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("wire")
}

//! Negotiation: which form of an answer a request accepts.

use http::{HeaderMap, header};

use crate::proto;
use crate::status::Status;

/// The encoding of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Kubernetes' binary form, of built-in kinds and of metadata.
    Protobuf,
}

/// The shape objects are shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Whole.
    Object,
    /// Metadata only.
    Partial(MetaVersion),
    /// Metadata only, as a list.
    PartialList(MetaVersion),
    /// Rows for people.
    Table(MetaVersion),
}

/// A version of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// Returns `meta.k8s.io/…`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The decision about what a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    /// The encoding.
    pub(crate) media: Media,
    /// The shape.
    pub(crate) shape: Shape,
}

/// Whose objects are answered with, for what can be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// A built-in kind's.
    BuiltIn,
    /// A custom kind's: only their metadata has a binary form.
    Custom,
}

/// The sort of answer, which decides what can be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// An object, a list or a status.
    Whole,
    /// A stream of events.
    Stream,
}

const OFFERED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMS: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// One alternative of an Accept header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parameter(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            Clause { media, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
        })
        .collect()
}

/// Returns whether plain JSON is requested and nothing else, as in most requests.
fn is_plain(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(header::ACCEPT).iter();
    let first = all.next().is_none_or(|value| value.as_bytes() == b"application/json");
    first && all.next().is_none()
}

fn media(name: &str) -> Option<Media> {
    match name {
        "application/json" | "*/*" => Some(Media::Json),
        "application/yaml" => Some(Media::Yaml),
        proto::MEDIA if cfg!(feature = "protobuf") => Some(Media::Protobuf),
        _ => None,
    }
}

fn shape(clause: &Clause<'_>) -> Option<Shape> {
    let Some(kind) = clause.parameter("as") else { return Some(Shape::Object) };
    if clause.parameter("g") != Some("meta.k8s.io") {
        return None;
    }
    let version = match clause.parameter("v")? {
        "v1" => MetaVersion::V1,
        "v1beta1" => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        "PartialObjectMetadata" => Some(Shape::Partial(version)),
        "PartialObjectMetadataList" => Some(Shape::PartialList(version)),
        "Table" if cfg!(feature = "tables") => Some(Shape::Table(version)),
        _ => None,
    }
}

/// Decides the form of an answer from the Accept header.
///
/// # Errors
/// 406: none of the requested forms is offered.
pub(crate) fn accept(headers: &HeaderMap, answer: AnswerKind, of: Of) -> Result<Accept, Status> {
    if is_plain(headers) {
        return Ok(Accept { media: Media::Json, shape: Shape::Object });
    }
    let all = clauses(headers);
    if all.is_empty() {
        return Ok(Accept { media: Media::Json, shape: Shape::Object });
    }
    let known: Vec<_> = all.iter().filter_map(|clause| Some((media(clause.media)?, clause))).collect();
    if known.is_empty() {
        let streams = if answer == AnswerKind::Stream { format!(", {STREAMS}") } else { String::new() };
        let message = format!("406: Not Acceptable\n\nAvailable representations: {OFFERED}{streams}");
        return Err(Status::new(406, Some("NotAcceptable"), message).with_details(serde_json::json!({})));
    }
    let found = known.into_iter().find_map(|(media, clause)| {
        if answer == AnswerKind::Stream && media == Media::Yaml {
            return None;
        }
        let shape = shape(clause)?;
        let binary = match shape {
            Shape::Object => of == Of::BuiltIn,
            Shape::Partial(_) | Shape::PartialList(_) => true,
            Shape::Table(_) => false,
        };
        (binary || media != Media::Protobuf).then_some(Accept { media, shape })
    });
    found.ok_or_else(|| Status::not_acceptable(if answer == AnswerKind::Stream { STREAMS } else { OFFERED }))
}

/// Decides the encoding of errors, which never fails.
pub(crate) fn error_media(headers: &HeaderMap) -> Media {
    if is_plain(headers) {
        return Media::Json;
    }
    clauses(headers).iter().find_map(|clause| media(clause.media)).unwrap_or(Media::Json)
}

/// Returns whether a clause requests the aggregated form of discovery, or refuses all forms.
///
/// # Errors
/// 406: none of the requested forms is offered.
pub(crate) fn discovery(headers: &HeaderMap) -> Result<Discovery, Status> {
    let all = clauses(headers);
    if all.is_empty() {
        return Ok(Discovery::Legacy);
    }
    let found = all.iter().find_map(|clause| {
        let media = media(clause.media)?;
        match (clause.parameter("g"), clause.parameter("v"), clause.parameter("as")) {
            (None, None, None) => Some(Discovery::Legacy),
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList"))
                if media != Media::Protobuf =>
            {
                Some(Discovery::Aggregated)
            }
            _ => None,
        }
    });
    found.ok_or_else(|| Status::not_acceptable(OFFERED))
}

/// A form of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discovery {
    /// Group lists and resource lists.
    Legacy,
    /// Everything in one list.
    Aggregated,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn ask(text: &str) -> Result<Accept, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_str(text).expect("value"));
        accept(&headers, AnswerKind::Whole, Of::BuiltIn)
    }

    // wire 019
    #[test]
    fn the_first_offered_alternative_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(ask(table).expect("fits").shape, Shape::Table(MetaVersion::V1));
        assert_eq!(ask("text/html, application/json;q=0.5").expect("fits").media, Media::Json);
        assert_eq!(
            ask("application/json;as=Bogus;v=v1;g=meta.k8s.io,application/json").expect("fits").shape,
            Shape::Object
        );
        assert_eq!(ask("application/yaml").expect("fits").media, Media::Yaml);
    }

    // wire 019
    #[test]
    fn what_is_not_offered_is_406() {
        for text in ["application/*", "text/html", "application/json;as=Bogus;v=v1;g=meta.k8s.io"] {
            assert_eq!(ask(text).expect_err("refused").code, 406, "{text}");
        }
    }
}

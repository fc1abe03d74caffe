//! Answers: objects and results as HTTP responses in the requested form.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use serde_json::Value;

use crate::encode::Encoder;
use crate::flow_control::Class;
use crate::kinds::Resource;
use crate::negotiate::{Media, Shape, error_media};
use crate::proto;
use crate::route::Query;
use crate::status::Status;
use crate::watch::WatchStream;
use crate::write::{Shown, Written};

/// The result of handling a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A whole answer.
    Full(Response<Bytes>),
    /// A stream of events.
    Watch(Box<WatchStream>),
    /// Handle it again once this version exists.
    Wait(u64),
}

/// Whether the wait for a version has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It may still come.
    Fresh,
    /// It did not come in time.
    Over,
}

/// Makes a JSON response.
pub(super) fn json(code: u16, body: Bytes) -> Response<Bytes> {
    typed(code, "application/json", body)
}

/// Makes a text response.
pub(super) fn text(code: u16, body: &'static str) -> Response<Bytes> {
    typed(code, "text/plain; charset=utf-8", Bytes::from_static(body.as_bytes()))
}

/// Makes a response of a media type.
pub(super) fn typed(code: u16, media: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Names the flow that a request belongs to.
pub(super) fn name_class(response: &mut Response<Bytes>, class: Option<Class>) {
    if let Some(Class { schema, level }) = class {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("x-kubernetes-pf-flowschema-uid"), schema);
        headers.insert(HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid"), level);
    }
}

/// Adds `Warning` headers, one a text.
pub(super) fn warn(response: &mut Response<Bytes>, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Refuses shapes that do not fit one object.
///
/// # Errors
/// 406: the client accepts only a list.
pub(super) fn fits_object(resource: &Resource, shape: Shape) -> Result<(), Status> {
    if let Shape::PartialList(_) = shape {
        if resource.is_custom() {
            return Err(Status::internal("content is not a list"));
        }
        let what = go_type(resource);
        let message = format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({what})"
        );
        return Err(Status::new(406, Some("NotAcceptable"), message));
    }
    Ok(())
}

/// Refuses shapes that do not fit a list.
///
/// # Errors
/// 406: the client accepts only one object.
pub(super) fn fits_list(resource: &Resource, shape: Shape) -> Result<(), Status> {
    if let Shape::Partial(_) = shape {
        let what = go_type(resource);
        let message =
            format!("you requested PartialObjectMetadata, but the requested object is a list ({what}List)");
        return Err(Status::new(406, Some("NotAcceptable"), message));
    }
    Ok(())
}

fn go_type(resource: &Resource) -> String {
    if resource.is_custom() {
        return "*unstructured.Unstructured".to_owned();
    }
    let package = resource.group().split('.').next().unwrap_or_default();
    format!("*{}.{}", if package.is_empty() { "core" } else { package }, resource.kind)
}

/// Writes what a write shows.
pub(super) fn written(written: &Written, encoder: &Encoder) -> Response<Bytes> {
    let body = match &written.shown {
        Shown::Stored(stored) => encoder.object(stored),
        Shown::Unstored(value) => encoder.value(value),
        Shown::Other(value) => Bytes::from(value.to_string()),
    };
    let mut response = json(written.code, body);
    warn(&mut response, &written.warnings);
    response
}

/// The width at which a line of YAML is broken.
const YAML_WIDTH: usize = 80;

/// Folds long lines of YAML as Go's writer does: at the first space behind the width, between two words.
fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let nested = line.trim_start_matches(' ').bytes().take_while(|byte| *byte == b'-').count().min(1) * 2;
        if block.is_some_and(|level| indent > level || line.trim().is_empty()) {
            out.push_str(line);
        } else {
            let is_block =
                ["|", "|-", "|+", ">", ">-", ">+"].iter().any(|mark| line.ends_with(&format!(": {mark}")));
            block = is_block.then_some(indent);
            fold_line(line, indent + nested + 2, &mut out);
        }
        out.push('\n');
    }
    out
}

fn fold_line(line: &str, indent: usize, out: &mut String) {
    let mut column = 0;
    let mut letters = line.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let between_words = before != ' ' && letters.peek().is_some_and(|next| *next != ' ');
        if letter == ' ' && column > YAML_WIDTH && between_words {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push(letter);
            column += 1;
        }
        before = letter;
    }
}

/// Encodes a finished response in the requested form: YAML, protobuf, or indented JSON.
pub(super) fn finish(mut response: Response<Bytes>, headers: &HeaderMap, uri: &Uri) -> Response<Bytes> {
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes() == b"application/json");
    if !is_json {
        return response;
    }
    let media = error_media(headers);
    let asked = uri.query().is_some_and(|query| query.contains("pretty"));
    let pretty = asked && Query::of(uri).get("pretty").is_some_and(|v| !matches!(v, "false" | "0"));
    if media == Media::Json && !pretty {
        return response;
    }
    let Ok(value) = serde_json::from_slice::<Value>(response.body()) else { return response };
    let (body, content_type) = match media {
        Media::Yaml => {
            let text = serde_yaml_ng::to_string(&value).ok();
            (text.map(|text| fold(&text).into_bytes()), "application/yaml")
        }
        // A body without a binary form stays JSON.
        Media::Protobuf => (proto::encode(&value), proto::MEDIA),
        Media::Json => (serde_json::to_vec_pretty(&value).ok(), "application/json"),
    };
    if let Some(body) = body {
        *response.body_mut() = Bytes::from(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    // wire 118
    #[test]
    fn long_lines_of_yaml_are_folded_between_words() {
        let words =
            "only the following media types are accepted: application/json;stream=watch, application/yaml";
        let folded = fold(&format!("message: '{words}'\n"));
        assert_eq!(folded, format!("message: '{}\n  application/yaml'\n", &words[..words.len() - 17]));
        let long = "x".repeat(100);
        let kept = format!("a: |-\n  {long} {long}\nb: {long}\n");
        assert_eq!(fold(&kept), kept);
        assert_eq!(fold(&format!("- a: {long} b\n")), format!("- a: {long}\n    b\n"));
    }
}

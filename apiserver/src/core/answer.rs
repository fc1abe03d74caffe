//! Answers: what was read or written, as HTTP responses in the form asked for.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use crate::encode::Encoder;
use crate::kinds::Resource;
use crate::negotiate::{Media, Shape, error_media};
use crate::proto;
use crate::route::Query;
use crate::status::Status;
use crate::watch::WatchStream;
use crate::write::{Shown, Written};

/// What handling came to.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A whole answer.
    Full(Response<Bytes>),
    /// A stream of events.
    Watch(Box<WatchStream>),
    /// Handle it again once this version is there.
    Wait(u64),
}

/// Whether waiting for a version is over.
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
/// 406: a list was asked for.
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
/// 406: one object was asked for.
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

/// Puts a finished response into the encoding asked for: YAML, protobuf, or indented JSON.
pub(super) fn finish(mut response: Response<Bytes>, headers: &HeaderMap, query: &Query) -> Response<Bytes> {
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes() == b"application/json");
    if !is_json {
        return response;
    }
    let media = error_media(headers);
    let pretty = query.get("pretty").is_some_and(|v| !matches!(v, "false" | "0"));
    if media == Media::Json && !pretty {
        return response;
    }
    let Ok(value) = serde_json::from_slice::<Value>(response.body()) else { return response };
    let (body, content_type) = match media {
        Media::Yaml => (serde_yaml_ng::to_string(&value).map(String::into_bytes).ok(), "application/yaml"),
        // What has no binary form stays JSON.
        Media::Protobuf => (proto::encode(&value), proto::MEDIA),
        Media::Json => (serde_json::to_vec_pretty(&value).ok(), "application/json"),
    };
    if let Some(body) = body {
        *response.body_mut() = Bytes::from(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

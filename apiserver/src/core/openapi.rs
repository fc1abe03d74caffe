//! OpenAPI over HTTP: the index as text, documents with their hash for caches, and an empty version 2.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;

use super::{ApiRequest, answer};
use crate::openapi::{Document, address};
use crate::route::{Query, RequestInfo};
use crate::state::State;
use crate::status::Status;

/// Answers requests below `/openapi`; `None` for all others.
///
/// # Errors
/// 404: no such document. 405: not a GET. 406: not wanted as JSON.
pub(super) fn document(
    state: &mut State,
    request: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Response<Bytes>>, Status> {
    let Some(rest) = info.path.strip_prefix("/openapi/") else { return Ok(None) };
    if request.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    if rest == "v2" {
        return Ok(Some(second_version(&request.headers)));
    }
    let rest = rest.strip_prefix("v3").ok_or_else(Status::page_not_found)?;
    if rest.is_empty() {
        let index = state.documents.index(&state.registry).to_string();
        // As the real server has it, whatever is asked for.
        return Ok(Some(answer::typed(200, "text/plain; charset=utf-8", Bytes::from(index))));
    }
    let name = rest.strip_prefix('/').ok_or_else(Status::page_not_found)?;
    let document = state.documents.find(&state.registry, name).ok_or_else(Status::page_not_found)?;
    if !takes_json(&request.headers) {
        return Err(Status::new(406, Some("NotAcceptable"), "documents are written as application/json"));
    }
    Ok(Some(answer_with(name, &document, request)))
}

/// Writes the document of version 2: an empty one.
///
/// `kubectl` asks for it before it writes a `List`, fails without it, and leaves the checks of what has no definition
/// in it to the server.
fn second_version(headers: &HeaderMap) -> Response<Bytes> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.flat_map(|value| value.split(',')).any(|clause| clause.trim() == PROTOBUF) {
        // Field by field: swagger, info (title, version), paths, definitions.
        const EMPTY: &[u8] = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.36.3\x42\x00\x4a\x00";
        let media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        return answer::typed(200, media, Bytes::from_static(EMPTY));
    }
    let info = json!({"title": "Kubernetes", "version": "v1.36.3"});
    let empty = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
    answer::json(200, Bytes::from(empty.to_string()))
}

fn answer_with(name: &str, document: &Document, request: &ApiRequest) -> Response<Bytes> {
    let query = Query::of(&request.uri);
    let mut response = answer::json(200, document.body.clone());
    match query.get("hash") {
        Some(hash) if hash == document.hash => {
            let forever = HeaderValue::from_static("public, immutable, max-age=31536000");
            response.headers_mut().insert(header::CACHE_CONTROL, forever);
        }
        Some(_) => {
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            response.body_mut().clear();
            if let Ok(there) = HeaderValue::from_str(&address(name, document)) {
                response.headers_mut().insert(header::LOCATION, there);
            }
            return response;
        }
        None => {}
    }
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", document.hash)) {
        if request.headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.body_mut().clear();
        }
        response.headers_mut().insert(header::ETAG, tag);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn takes_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    given.peek().is_none()
        || given.flat_map(|value| value.split(',')).any(|clause| {
            let media = clause.split(';').next().unwrap_or_default().trim();
            matches!(media, "application/json" | "application/*" | "*/*")
        })
}

//! OpenAPI over HTTP: the index as text, documents with their hash for caches, and version 2 as one document.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use super::{ApiRequest, answer};
use crate::openapi::{Document, address};
use crate::route::{Query, RequestInfo};
use crate::state::State;
use crate::status::Status;

/// Answers requests below `/openapi`; `None` for all others.
///
/// # Errors
/// 404: no such version. 405: not a GET. 406: not wanted as JSON.
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
        return Ok(Some(second_version(state, request)));
    }
    let rest = rest.strip_prefix("v3").ok_or_else(Status::page_not_found)?;
    if rest.is_empty() {
        let index = state.documents.index(&state.registry).to_string();
        // The real server answers this to every request.
        return Ok(Some(answer::typed(200, "text/plain; charset=utf-8", Bytes::from(index))));
    }
    let name = rest.strip_prefix('/').ok_or_else(Status::page_not_found)?;
    let Some(document) = state.documents.find(&state.registry, name) else { return Ok(Some(nothing())) };
    if !takes_json(&request.headers) {
        return Err(Status::new(406, Some("NotAcceptable"), "documents are written as application/json"));
    }
    Ok(Some(answer_with(name, &document, request)))
}

/// The media types that JSON is sent for.
const JSON: [&str; 3] = ["application/json", "application/*", "*/*"];

/// 404 without a word.
fn nothing() -> Response<Bytes> {
    let mut response = answer::json(404, Bytes::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

/// Writes the document of version 2, as text or in its binary form: clients in Go ask for that.
fn second_version(state: &mut State, request: &ApiRequest) -> Response<Bytes> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    // What is answered has a dot where what is asked for has an at sign.
    const ANSWERED: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let accepted = request.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut media = accepted
        .flat_map(|value| value.split(','))
        .map(|clause| clause.split(';').next().unwrap_or_default().trim())
        .peekable();
    let anything = media.peek().is_none();
    match media.find(|media| [PROTOBUF, ANSWERED].contains(media) || JSON.contains(media)) {
        None if !anything => {
            let mut response = nothing();
            *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
            return response;
        }
        Some(PROTOBUF | ANSWERED) => {}
        _ => {
            let document = state.documents.second(&state.registry);
            return answer_with("v2", &document, request);
        }
    }
    let document = state.documents.second_in_protobuf(&state.registry);
    let mut response = answer_with("v2", &document, request);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(ANSWERED));
    response
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
            JSON.contains(&media)
        })
}

#[cfg(test)]
mod tests {
    use http::Uri;

    use super::*;
    use crate::core::{Core, CoreConfig, Reply};
    use crate::identity::User;

    async fn ask(core: &Core, uri: &str, header: Option<(header::HeaderName, &str)>) -> Response<Bytes> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().expect("a value"));
        }
        let uri: Uri = uri.parse().expect("a uri");
        let request = ApiRequest { method: Method::GET, uri, headers, body: Bytes::new(), user: User::Admin };
        match core.serve(request).await {
            Reply::Full(response) => response,
            Reply::Stream { .. } => panic!("a stream where an answer was expected"),
        }
    }

    fn value<'a>(response: &'a Response<Bytes>, name: &header::HeaderName) -> &'a str {
        response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    // wire 603
    #[tokio::test(start_paused = true)]
    async fn the_index_is_text_and_documents_are_json() {
        let core = Core::new(CoreConfig::default());
        for accept in [None, Some((header::ACCEPT, "application/yaml"))] {
            let index = ask(&core, "/openapi/v3", accept).await;
            assert_eq!(value(&index, &header::CONTENT_TYPE), "text/plain; charset=utf-8");
        }
        let document = ask(&core, "/openapi/v3/api/v1", None).await;
        assert_eq!(value(&document, &header::CONTENT_TYPE), "application/json");
        let missing = ask(&core, "/openapi/v3/apis/none.example.com/v1", None).await;
        assert_eq!((missing.status().as_u16(), value(&missing, &header::CONTENT_TYPE)), (404, ""));
        let protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
        let refused = ask(&core, "/openapi/v3/api/v1", Some((header::ACCEPT, protobuf))).await;
        assert_eq!(refused.status(), 406);
    }

    // A18
    #[tokio::test(start_paused = true)]
    async fn the_document_of_version_2_is_binary_for_those_who_ask_for_that_first() {
        let core = Core::new(CoreConfig::default());
        let (asked, answered) = (
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        );
        let cases = [
            (asked.to_owned(), 200, answered),
            (answered.to_owned(), 200, answered),
            (format!("{asked},application/json"), 200, answered),
            (format!("application/json,{asked}"), 200, "application/json"),
            ("*/*".to_owned(), 200, "application/json"),
            ("text/html".to_owned(), 406, ""),
        ];
        let mut tags = Vec::new();
        for (accept, code, media) in cases {
            let response = ask(&core, "/openapi/v2", Some((header::ACCEPT, &accept))).await;
            let seen = (response.status().as_u16(), value(&response, &header::CONTENT_TYPE));
            assert_eq!(seen, (code, media), "{accept}");
            assert_eq!(response.body().is_empty(), code == 406, "{accept}");
            tags.push(value(&response, &header::ETAG).to_owned());
        }
        assert!(tags[0] == tags[1] && tags[0] != tags[3], "caches tell the forms apart");
    }

    #[tokio::test(start_paused = true)]
    async fn the_hash_of_a_document_serves_caches() {
        let core = Core::new(CoreConfig::default());
        let plain = ask(&core, "/openapi/v3/apis/apps/v1", None).await;
        let tag = value(&plain, &header::ETAG).to_owned();
        let there = format!("/openapi/v3/apis/apps/v1?hash={}", tag.trim_matches('"'));
        assert!(value(&ask(&core, &there, None).await, &header::CACHE_CONTROL).contains("immutable"));
        let known = ask(&core, "/openapi/v3/apis/apps/v1", Some((header::IF_NONE_MATCH, &tag))).await;
        assert_eq!((known.status().as_u16(), known.body().len()), (304, 0));
        let old = ask(&core, "/openapi/v3/apis/apps/v1?hash=OLD", None).await;
        assert_eq!((old.status().as_u16(), value(&old, &header::LOCATION)), (301, there.as_str()));
    }
}

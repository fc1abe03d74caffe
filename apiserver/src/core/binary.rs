//! Binary bodies: requests in protobuf, converted to JSON before anything else reads them.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderValue, Method, header};

use super::ApiRequest;
use crate::limits;
use crate::object;
use crate::proto::{self, ProtoError};
use crate::status::Status;
use crate::write::{Target, media_type};

/// The most bytes of a body that are shown when it can't be read.
const SHOWN: usize = 30;

/// Returns a request to a resource with its body as JSON.
///
/// # Errors
/// 400 for a body that is not an object, 413 for too many values, 415 for a custom one.
pub(super) fn in_json<'a>(request: &'a ApiRequest, target: &Target) -> Result<Cow<'a, ApiRequest>, Status> {
    let deletes = request.method == Method::DELETE;
    if target.resource.is_custom() && is_binary(request) && target.subresource != "scale" && !deletes {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json, application/yaml";
        return Err(Status::unsupported_media_type(message));
    }
    let (version, kind) = (target.served.api_version(), target.resource.kind.as_str());
    json_of(request, if deletes { ("v1", "DeleteOptions") } else { (&version, kind) })
}

/// Returns a request with its body as JSON; `expected` is the default version and kind of the body.
///
/// # Errors
/// 400 for a body that is not an object, 413 for too many values.
pub(super) fn json_of<'a>(
    request: &'a ApiRequest,
    expected: (&str, &str),
) -> Result<Cow<'a, ApiRequest>, Status> {
    if !is_binary(request) {
        return Ok(Cow::Borrowed(request));
    }
    let read = proto::decode(&request.body, expected);
    let object = read.map_err(|error| unreadable(&error, &request.body, expected.1))?;
    let mut json = request.clone();
    json.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    json.body = Bytes::from(object.to_string());
    Ok(Cow::Owned(json))
}

/// Returns whether a request has a body in protobuf; patches never have.
fn is_binary(request: &ApiRequest) -> bool {
    media_type(&request.headers) == proto::MEDIA
        && request.method != Method::PATCH
        && !request.body.is_empty()
}

fn unreadable(error: &ProtoError, body: &[u8], wanted: &str) -> Status {
    if *error == ProtoError::TooMany {
        return Status::too_large(limits::BODY);
    }
    if let ProtoError::Unknown { api_version, kind } = error {
        let (_, version) = object::group_version(api_version);
        return Status::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {wanted}: {error}"
        ));
    }
    let mut shown: String = body.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    if body.len() > SHOWN {
        shown.push_str(" ...");
    }
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {wanted}): {error} ({shown})"
    ))
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use http::{HeaderMap, Response, Uri};
    use serde_json::{Value, json};

    use super::*;
    use crate::core::{Core, CoreConfig, Reply};
    use crate::identity::User;

    async fn reply(core: &Core, method: Method, uri: &str, body: &[u8], types: [&str; 2]) -> Reply {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, types[0].parse().expect("a value"));
        headers.insert(header::ACCEPT, types[1].parse().expect("a value"));
        let uri: Uri = uri.parse().expect("a uri");
        let body = Bytes::copy_from_slice(body);
        core.serve(ApiRequest { method, uri, headers, body, user: User::Admin }).await
    }

    async fn ask(core: &Core, method: Method, uri: &str, body: &[u8], types: [&str; 2]) -> Response<Bytes> {
        match reply(core, method, uri, body, types).await {
            Reply::Full(response) => response,
            Reply::Stream { .. } => panic!("a stream where an answer was expected"),
        }
    }

    fn map(name: &str) -> Vec<u8> {
        let object =
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}});
        proto::encode(&object).expect("a built-in kind")
    }

    fn text(response: &Response<Bytes>) -> String {
        let status: Value = serde_json::from_slice(response.body()).expect("JSON");
        status["message"].as_str().unwrap_or_default().to_owned()
    }

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const JSON: &str = "application/json";

    // wire 020
    #[tokio::test(start_paused = true)]
    async fn built_in_kinds_are_written_and_read_in_protobuf() {
        let core = Core::new(CoreConfig::default());
        let made = ask(&core, Method::POST, MAPS, &map("a"), [proto::MEDIA, JSON]).await;
        let value: Value = serde_json::from_slice(made.body()).expect("JSON");
        assert_eq!((made.status().as_u16(), &value["data"]), (201, &json!({"k": "v"})));
        for accept in [proto::MEDIA, "application/vnd.kubernetes.protobuf,application/json"] {
            let read = ask(&core, Method::GET, &format!("{MAPS}/a"), b"", [JSON, accept]).await;
            assert_eq!(read.headers()[header::CONTENT_TYPE], proto::MEDIA);
            assert_eq!(proto::decode(read.body(), ("", "")).expect("an object"), value);
            let list = ask(&core, Method::GET, MAPS, b"", [JSON, accept]).await;
            let list = proto::decode(list.body(), ("", "")).expect("a list");
            assert_eq!((&list["kind"], &list["items"][0]["data"]), (&json!("ConfigMapList"), &value["data"]));
        }
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
        let options = proto::encode(&options).expect("options");
        let kept =
            ask(&core, Method::DELETE, &format!("{MAPS}/a"), &options, [proto::MEDIA, proto::MEDIA]).await;
        let status = proto::decode(kept.body(), ("", "")).expect("a status");
        assert_eq!((kept.status().as_u16(), &status["reason"]), (409, &json!("Conflict")));
    }

    #[tokio::test(start_paused = true)]
    async fn events_come_in_frames_of_protobuf() {
        let core = Core::new(CoreConfig::default());
        ask(&core, Method::POST, MAPS, &map("a"), [proto::MEDIA, JSON]).await;
        let watch = format!("{MAPS}?watch=1");
        let Reply::Stream { parts, mut events } =
            reply(&core, Method::GET, &watch, b"", [JSON, proto::MEDIA]).await
        else {
            panic!("an answer where a stream was expected")
        };
        assert_eq!(parts.headers[header::CONTENT_TYPE], proto::STREAM_MEDIA);
        let frame = events.next().await.expect("the object's event").bytes;
        assert_eq!(frame[..4], (frame.len() as u32 - 4).to_be_bytes());
        let start = frame.windows(4).position(|window| window == b"k8s\0").expect("an object in the event");
        let object = proto::decode(&frame[start..], ("", "")).expect("the object");
        assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("ConfigMap"), &json!("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn rubbish_in_protobuf_is_a_bad_request() {
        let core = Core::new(CoreConfig::default());
        let refused = ask(&core, Method::POST, MAPS, b"{}", [proto::MEDIA, JSON]).await;
        let wanted = "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be \
                      a protobuf message, expected prefix [107 56 115 0] (7b7d)";
        assert_eq!((refused.status().as_u16(), text(&refused).as_str()), (400, wanted));
        let secret = proto::encode(&json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}}));
        let refused = ask(&core, Method::POST, MAPS, &secret.expect("a kind"), [proto::MEDIA, JSON]).await;
        assert_eq!(refused.status(), 400);
    }

    // kube-apiserver panics here; this server refuses the request.
    #[tokio::test(start_paused = true)]
    async fn custom_resources_refuse_protobuf_but_not_its_delete_options() {
        let core = Core::new(CoreConfig::default());
        let definition = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let body = proto::encode(&definition).expect("a built-in kind");
        assert_eq!(ask(&core, Method::POST, crds, &body, [proto::MEDIA, JSON]).await.status(), 201);
        core.settle();
        let (widgets, widget) = ("/apis/example.com/v1/widgets", "/apis/example.com/v1/widgets/w");
        let object = br#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}"#;
        assert_eq!(ask(&core, Method::POST, widgets, object, [proto::MEDIA, JSON]).await.status(), 415);
        assert_eq!(ask(&core, Method::POST, widgets, object, [JSON, JSON]).await.status(), 201);
        assert_eq!(ask(&core, Method::GET, widget, b"", [JSON, proto::MEDIA]).await.status(), 406);
        let partial = format!("{};as=PartialObjectMetadata;g=meta.k8s.io;v=v1", proto::MEDIA);
        let metadata = ask(&core, Method::GET, widget, b"", [JSON, &partial]).await;
        let metadata = proto::decode(metadata.body(), ("", "")).expect("metadata");
        assert_eq!(metadata["metadata"]["name"], "w");
        let options = proto::encode(&json!({"kind": "DeleteOptions", "apiVersion": "v1"})).expect("options");
        assert_eq!(ask(&core, Method::DELETE, widget, &options, [proto::MEDIA, JSON]).await.status(), 200);
    }

    // A31
    #[tokio::test(start_paused = true)]
    async fn values_in_protobuf_are_counted() {
        let core = Core::new(CoreConfig::default());
        let pod = |containers: usize| {
            let object = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}});
            let mut body = proto::encode(&object).expect("a built-in kind");
            // A second envelope field wins: a pod with a specification of empty containers.
            let (mut raw, mut spec) = (Vec::new(), Vec::new());
            (0..containers).for_each(|_| spec.extend([0x12, 0]));
            proto::put_bytes(&mut raw, 2, &spec);
            proto::put_bytes(&mut body, 2, &raw);
            body
        };
        let pods = "/api/v1/namespaces/default/pods";
        let refused = ask(&core, Method::POST, pods, &pod(100_001), [proto::MEDIA, JSON]).await;
        assert_eq!(
            (refused.status().as_u16(), text(&refused).as_str()),
            (413, "Request entity too large: limit is 3145728")
        );
        let refused = ask(&core, Method::POST, pods, &pod(10), [proto::MEDIA, JSON]).await;
        assert_eq!(refused.status(), 422);
    }
}

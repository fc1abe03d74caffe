//! The statuses of components: what a real server says where its scheduler and controller manager answer nothing.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{ApiRequest, answer};
use crate::negotiate::{AnswerKind, MetaVersion, Of, Shape, accept};
use crate::object;
use crate::route::{PathShape, Query, RequestInfo};
use crate::selector::{FieldSelector, LabelSelector, Selector};
use crate::state::State;
use crate::status::Status;
use crate::table::{Columns, Header, IncludeObject, TableInput, table};

const DEPRECATED: &str = "v1 ComponentStatus is deprecated in v1.19+";

/// The components and ports that a real server checks; etcd is this server itself.
const COMPONENTS: [(&str, Option<u16>); 3] =
    [("controller-manager", Some(10257)), ("scheduler", Some(10259)), ("etcd-0", None)];

/// Answers a request for statuses; `None` for other requests.
///
/// # Errors
/// 405 for all verbs but reads, 404 for an unknown component, 400 for bad selectors.
pub(super) fn read(
    state: &State,
    request: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Response<Bytes>>, Status> {
    let asked = (info.group.as_str(), info.version.as_str(), info.resource.as_str());
    if asked != ("", "v1", "componentstatuses") {
        return Ok(None);
    }
    if info.namespace.is_some() || !info.subresource.is_empty() {
        return Err(Status::no_such_resource());
    }
    if request.method != Method::GET {
        return Err(Status::method_not_allowed());
    }
    let warning = [DEPRECATED.to_owned()];
    let body = answered(state, request, info).map_err(|refusal| refusal.with_warnings(&warning))?;
    let mut response = answer::json(200, Bytes::from(body.to_string()));
    answer::warn(&mut response, &warning);
    Ok(Some(response))
}

fn answered(state: &State, request: &ApiRequest, info: &RequestInfo) -> Result<Value, Status> {
    let one = info.shape == PathShape::Object;
    let shape = accept(&request.headers, AnswerKind::Whole, Of::BuiltIn)?.shape;
    let query = Query::of(&request.uri);
    if one {
        let name = info.name.as_deref().unwrap_or_default();
        let missing = || Status::not_found("", "componentstatus", name);
        let found = statuses().into_iter().find(|status| object::name(status) == name).ok_or_else(missing)?;
        let mut whole = found.clone();
        whole["kind"] = "ComponentStatus".into();
        whole["apiVersion"] = "v1".into();
        return Ok(shown(state, shape, &[found], whole));
    }
    if query.flag("watch") {
        let why = "watch is not supported on resources of kind \"componentstatuses\"";
        let details = crate::status::named("", "componentstatuses", "");
        return Err(Status::new(405, Some("MethodNotAllowed"), why).with_details(details));
    }
    let selector = selector(&query)?;
    let found: Vec<Value> = statuses()
        .into_iter()
        .filter(|status| selector.matches(status, |status, _| object::name(status).to_owned()))
        .collect();
    let list = json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": found});
    Ok(shown(state, shape, &found, list))
}

fn selector(query: &Query) -> Result<Selector, Status> {
    let labels = LabelSelector::parse(query.text("labelSelector")).map_err(|e| Status::bad_request(e.0))?;
    let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(|e| Status::bad_request(e.0))?;
    match fields.terms().iter().find(|term| term.path != "metadata.name") {
        Some(term) => Err(Status::bad_request(format!("field label not supported: {}", term.path))),
        None => Ok(Selector { labels, fields }),
    }
}

/// Shows statuses in the requested shape; `whole` is the content of the plain one.
fn shown(state: &State, shape: Shape, objects: &[Value], whole: Value) -> Value {
    let partial = |meta: MetaVersion, object: &Value| {
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": meta.api_version(), "metadata": object["metadata"],
        })
    };
    match shape {
        Shape::Object => whole,
        Shape::Partial(meta) => partial(meta, &whole),
        Shape::PartialList(meta) => {
            let items: Vec<Value> = objects.iter().map(|object| partial(meta, object)).collect();
            let api_version = meta.api_version();
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": api_version, "metadata": {}, "items": items,
            })
        }
        Shape::Table(meta) => table(TableInput {
            columns: &Columns::builtin("", "v1", "ComponentStatus"),
            metadata: json!({}),
            objects,
            include: IncludeObject::Metadata,
            header: Header::Shown,
            version: if meta == MetaVersion::V1Beta1 { "v1beta1" } else { "v1" },
            now: state.clock.now().as_second(),
        }),
    }
}

fn statuses() -> Vec<Value> {
    let one = |(name, port): (&str, Option<u16>)| {
        let (healthy, message) = match port {
            Some(port) => {
                let address = format!("127.0.0.1:{port}");
                let message = format!(
                    "Get \"https://{address}/healthz\": dial tcp {address}: connect: connection refused"
                );
                ("False", message)
            }
            None => ("True", "ok".to_owned()),
        };
        json!({
            "metadata": {"name": name},
            "conditions": [{"type": "Healthy", "status": healthy, "message": message}],
        })
    };
    COMPONENTS.into_iter().map(one).collect()
}

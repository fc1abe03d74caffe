//! Handling: from a request's path and verb to a read or a write.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::Value;

use super::answer::{self, Outcome, Patience};
use super::target::{find, makes, of, unknown};
use super::{
    ApiRequest, binary, binding, component_statuses, eviction, openapi, reading, reviews, service_tokens,
};
use crate::authz::{Attributes, check};
use crate::conversion;
use crate::crd;
use crate::discovery::{self, Half};
use crate::encode::Encoder;
use crate::kinds::Reach;
use crate::limits;
use crate::negotiate::{AnswerKind, Discovery, Shape, accept};
use crate::object;
use crate::read::{ListOptions, list_body};
use crate::route::{PathShape, Query, RequestInfo, Verb};
use crate::state::State;
use crate::status::Status;
use crate::store::View;
use crate::write::{
    Author, DeleteOptions, Shown, Target, WriteOptions, create, delete, delete_collection, patch,
    patch_scale, put, put_scale,
};

/// Handles one request; reads as a view has them.
///
/// # Errors
/// The status to answer with.
pub(super) fn handle(
    state: &mut State,
    request: &ApiRequest,
    (info, asked): (&RequestInfo, &Attributes),
    patience: Patience,
    view: Option<View>,
) -> Result<Outcome, Status> {
    limits::check_body(&request.body)?;
    if let Some(answer) = reviews::review(state, request, info)? {
        return Ok(Outcome::Full(answer));
    }
    check(state, &request.user, asked)?;
    let query = Query::of(&request.uri);
    check_timeout(&query)?;
    if info.shape == PathShape::Other {
        if let Some(answer) = openapi::document(state, request, info)? {
            return Ok(Outcome::Full(answer));
        }
        return other_path(state, request, info).map(Outcome::Full);
    }
    if let Some(answer) = component_statuses::read(state, request, info)? {
        return Ok(Outcome::Full(answer));
    }
    let target = match binding::of_older_kind(state, request, info)? {
        Some(pod) => pod,
        None => find(state, info)?,
    };
    let request = &*binary::in_json(request, &target)?;
    let head = (request.method == Method::HEAD && target.resource.is_custom()).then_some(match info.shape {
        PathShape::Object => Verb::Get,
        _ => Verb::List,
    });
    let verb = info.verb.or(head).ok_or_else(Status::method_not_allowed)?;
    if target.served.conversion.is_some() && verb != Verb::Watch {
        prepare(state, &target, verb)?;
    }
    let mut outcome = match verb {
        Verb::Get | Verb::List | Verb::Watch => {
            reading::read(state, request, &query, &target, verb, (patience, view))?
        }
        _ => write(state, request, asked, &query, &target, verb).map(Outcome::Full)?,
    };
    if let (Outcome::Full(response), Some(_)) = (&mut outcome, head) {
        *response.body_mut() = Bytes::new();
    }
    if let (Outcome::Full(response), Some(text)) = (&mut outcome, &target.served.deprecation) {
        answer::warn(response, std::slice::from_ref(text));
    }
    Ok(outcome)
}

/// Converts the objects that a request touches to the requested version, using the kind's conversion webhook.
fn prepare(state: &mut State, target: &Target, verb: Verb) -> Result<(), Status> {
    let id = &target.resource.storage;
    let objects: Vec<_> = match (verb, target.name.is_empty()) {
        (Verb::Create, _) => return Ok(()),
        (_, false) => state.store.get(id, &target.key()).cloned().into_iter().collect(),
        (_, true) if target.namespace.is_empty() => state.store.scan(id, "").cloned().collect(),
        (_, true) => state.store.in_namespace(id, &target.namespace).cloned().collect(),
    };
    conversion::prepare(state, &target.served, &objects)
}

fn check_timeout(query: &Query) -> Result<(), Status> {
    let Some(text) = query.get("timeout").filter(|text| !text.is_empty()) else { return Ok(()) };
    let units = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == 'µ');
    let is_duration =
        text == "0" || (units.len() < text.len() && units.starts_with(|c: char| c.is_ascii_digit()));
    if is_duration {
        return Ok(());
    }
    let why = format!("invalid timeout specified in the request URL - time: invalid duration {text:?}");
    Err(Status::bad_request(why))
}

fn other_path(state: &State, request: &ApiRequest, info: &RequestInfo) -> Result<Response<Bytes>, Status> {
    let registry = &state.registry;
    let parts: Vec<&str> = info.path.split('/').skip(1).collect();
    let body: Value = match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"] => {
            only_get(request)?;
            return Ok(answer::text(200, "ok"));
        }
        [""] => discovery::root(registry),
        ["version"] => discovery::version(),
        ["api"] | ["apis"] => {
            only_get(request)?;
            let half = if parts[0] == "api" { Half::Core } else { Half::Groups };
            if crate::negotiate::discovery(&request.headers)? == Discovery::Aggregated {
                let body = discovery::aggregated(registry, half).to_string();
                let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
                return Ok(answer::typed(200, media, Bytes::from(body)));
            }
            if half == Half::Core { discovery::core_versions() } else { discovery::groups(registry) }
        }
        ["apis", group] => discovery::group(registry, group).ok_or_else(Status::page_not_found)?,
        ["api", version] => {
            discovery::resources(registry, "", version).ok_or_else(Status::no_such_resource)?
        }
        ["apis", group, version] => {
            let missing = || unknown(state, group);
            discovery::resources(registry, group, version).ok_or_else(missing)?
        }
        _ => return Err(Status::page_not_found()),
    };
    only_get(request)?;
    Ok(answer::json(200, Bytes::from(body.to_string())))
}

fn only_get(request: &ApiRequest) -> Result<(), Status> {
    if request.method == Method::GET { Ok(()) } else { Err(Status::method_not_allowed()) }
}

fn write(
    state: &mut State,
    request: &ApiRequest,
    asked: &Attributes,
    query: &Query,
    target: &Target,
    verb: Verb,
) -> Result<Response<Bytes>, Status> {
    let shape = accept(&request.headers, AnswerKind::Whole, of(target))?.shape;
    allowed(target, verb)?;
    let encoder = Encoder::new(target.resource.clone(), target.served.clone(), shape);
    let agent = request
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let manager = Some(query.text("fieldManager")).filter(|manager| !manager.is_empty());
    let author =
        || Author { user: request.user.clone(), asked: asked.clone(), manager: manager.map(str::to_owned) };
    let options = |kind: &str| WriteOptions::read(query, agent, kind).map(|options| options.by(author()));
    let (headers, body) = (&request.headers, &request.body);
    let scale = target.subresource == "scale";
    let written = match verb {
        Verb::Create if target.subresource == "binding" => {
            binding::bind(state, target, &options("CreateOptions")?, body)?
        }
        Verb::Create if target.subresource == "eviction" => {
            eviction::evict(state, target, &options("CreateOptions")?, request, query)?
        }
        Verb::Create if target.subresource == "token" => {
            let options = options("CreateOptions")?;
            service_tokens::request(state, target, &options, body)?
        }
        Verb::Create => {
            if target.resource.is_custom() && crd::is_terminating(state, &target.resource) {
                return Err(going(target, body));
            }
            create(state, target, &options("CreateOptions")?, headers, body)?
        }
        Verb::Update if scale => put_scale(state, target, &options("UpdateOptions")?, body)?,
        Verb::Update => put(state, target, &options("UpdateOptions")?, headers, body)?,
        Verb::Patch if scale => patch_scale(state, target, &options("PatchOptions")?, headers, body)?,
        Verb::Patch => patch(state, target, &options("PatchOptions")?, query, headers, body)?,
        Verb::Delete => delete(state, target, &DeleteOptions::read(query, body)?.by(author()))?,
        Verb::DeleteCollection => {
            let delete_options = DeleteOptions::read(query, body)?.by(author());
            let selection = ListOptions::list(query, &target.resource, &target.served)?;
            let page = delete_collection(state, target, &selection, &delete_options)?;
            let shape = if let Shape::Partial(version) = shape { Shape::PartialList(version) } else { shape };
            let encoder = Encoder::new(target.resource.clone(), target.served.clone(), shape);
            return Ok(answer::json(200, list_body(&page, &encoder)));
        }
        Verb::Get | Verb::List | Verb::Watch => return Err(Status::method_not_allowed()),
    };
    let is_crd = target.resource.built_in().is_some_and(|row| row.kind == "CustomResourceDefinition");
    if is_crd && let Shown::Stored(stored) = &written.shown {
        let name = object::name(&stored.value()).to_owned();
        crd::changed(state, &name);
    }
    Ok(answer::written(&written, &encoder))
}

fn allowed(target: &Target, verb: Verb) -> Result<(), Status> {
    let on_object = !target.name.is_empty();
    let sub = target.subresource.as_str();
    let made = makes(target);
    let fits = match verb {
        Verb::Create => (!on_object && sub.is_empty()) || made,
        Verb::Patch if sub == "finalize" => false,
        Verb::Update | Verb::Patch => on_object && !made,
        Verb::Delete => on_object && sub.is_empty(),
        _ => !on_object && target.resource.built_in().is_none_or(|row| row.kind != "Namespace"),
    };
    let without_namespace = target.resource.reach == Reach::Namespaced && target.namespace.is_empty();
    if fits && !without_namespace {
        return Ok(());
    }
    if target.resource.is_custom() && !sub.is_empty() {
        let kind = crate::status::qualified(target.resource.group(), target.resource.plural());
        let message = format!("{verb} is not supported on resources of kind {kind:?}");
        let details = crate::status::named(target.resource.group(), target.resource.plural(), "");
        return Err(Status::new(405, Some("MethodNotAllowed"), message).with_details(details));
    }
    Err(Status::method_not_allowed())
}

/// 403: the definition of the kind is going away.
fn going(target: &Target, body: &[u8]) -> Status {
    let given: Value = serde_json::from_slice(body).unwrap_or_default();
    let why = "create not allowed while custom resource definition is terminating";
    Status::forbidden(target.resource.group(), target.resource.plural(), object::name(&given), why)
}

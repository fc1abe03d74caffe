//! Handling: from a request's path and verb to the read or write it asks for.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{ApiRequest, access, answer, binary, openapi, reviews, service_tokens};
use crate::crd;
use crate::discovery::{self, Half};
use crate::encode::{self, Encoder};
use crate::kinds::Reach;
use crate::negotiate::{Answer, Discovery, Of, Shape, accept};
use crate::object;
use crate::read::{ListOptions, Reached, get, list, list_body};
use crate::route::{Query, RequestInfo, Shape as PathShape, Verb};
use crate::state::State;
use crate::status::Status;
use crate::store::{Scope, View};
use crate::table::{Header, IncludeObject};
use crate::watch::{TableWriter, WatchSetup, WatchStream, open};
use crate::write::{
    DeleteOptions, Shown, Target, WriteOptions, Written, create, delete, delete_collection, get_scale, patch,
    patch_scale, put, put_scale,
};

/// The subresources of pods that only a cluster can offer.
const NOT_OFFERED: [&str; 6] = ["attach", "eviction", "exec", "log", "portforward", "proxy"];

/// The most bytes of a request's body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

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

/// Handles one request; reads as a view has them.
///
/// # Errors
/// The status to answer with.
pub(super) fn handle(
    state: &mut State,
    request: &ApiRequest,
    info: &RequestInfo,
    patience: Patience,
    view: Option<View>,
) -> Result<Outcome, Status> {
    if let Some(answer) = reviews::review(state, request, info)? {
        return Ok(Outcome::Full(answer));
    }
    access::check(state, &request.user, &request.method, info)?;
    if request.body.len() > BODY_LIMIT {
        return Err(Status::too_large(BODY_LIMIT));
    }
    let query = Query::of(&request.uri);
    check_timeout(&query)?;
    if info.shape == PathShape::Other {
        if let Some(answer) = openapi::document(state, request, info)? {
            return Ok(Outcome::Full(answer));
        }
        return other_path(state, request, info).map(Outcome::Full);
    }
    let target = find(state, info)?;
    let request = &*binary::in_json(request, &target)?;
    let head = (request.method == Method::HEAD && target.resource.is_custom()).then_some(match info.shape {
        PathShape::Object => Verb::Get,
        _ => Verb::List,
    });
    let verb = info.verb.or(head).ok_or_else(Status::method_not_allowed)?;
    let mut outcome = match verb {
        Verb::Get | Verb::List | Verb::Watch => {
            read(state, request, &query, &target, verb, (patience, view))?
        }
        _ => write(state, request, &query, &target, verb).map(Outcome::Full)?,
    };
    if let (Outcome::Full(response), Some(_)) = (&mut outcome, head) {
        *response.body_mut() = Bytes::new();
    }
    if let (Outcome::Full(response), Some(text)) = (&mut outcome, &target.served.deprecation) {
        answer::warn(response, std::slice::from_ref(text));
    }
    Ok(outcome)
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

/// 404 as the group deserves: text for groups nobody serves and for custom ones.
fn unknown(state: &State, group: &str) -> Status {
    if group.is_empty() || state.registry.is_built_in_group(group) {
        Status::no_such_resource()
    } else {
        Status::page_not_found()
    }
}

fn find(state: &State, info: &RequestInfo) -> Result<Target, Status> {
    let missing = || unknown(state, &info.group);
    let resource = state.registry.find(&info.group, &info.resource).ok_or_else(missing)?.clone();
    let served = resource.served(&info.version).ok_or_else(missing)?.clone();
    let is_namespaces = info.group.is_empty() && info.resource == "namespaces";
    let namespace = if is_namespaces { None } else { info.namespace.clone() };
    match (resource.reach, &namespace) {
        (Reach::Cluster, Some(_)) => return Err(missing()),
        (Reach::Namespaced, None) if info.shape == PathShape::Object => return Err(missing()),
        _ => {}
    }
    let name =
        if info.shape == PathShape::Object { info.name.clone().unwrap_or_default() } else { String::new() };
    let target = Target {
        resource,
        served,
        namespace: namespace.unwrap_or_default(),
        name,
        subresource: info.subresource.clone(),
    };
    let made = makes(&target);
    let sub = info.subresource.split('/').next().unwrap_or_default();
    if target.resource.built_in().is_some_and(|row| row.kind == "Pod") && NOT_OFFERED.contains(&sub) {
        let why = format!("{sub} needs a cluster: this server stores pods, and runs none");
        return Err(Status::new(501, Some("NotImplemented"), why).with_details(json!({})));
    }
    if !info.subresource.is_empty() && !target.served.offers(&info.subresource) && !made {
        return Err(if target.resource.is_custom() {
            target.not_found()
        } else {
            Status::no_such_resource()
        });
    }
    Ok(target)
}

fn read(
    state: &mut State,
    request: &ApiRequest,
    query: &Query,
    target: &Target,
    verb: Verb,
    (patience, view): (Patience, Option<View>),
) -> Result<Outcome, Status> {
    let kind = if verb == Verb::Watch { Answer::Stream } else { Answer::Whole };
    let accepted = accept(&request.headers, kind, of(target))?;
    let shape = accepted.shape;
    let encoder = Encoder::new(target.resource.clone(), target.served.clone(), shape);
    let info = request.info();
    let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
    if makes(target) || target.subresource == "finalize" {
        return Err(Status::method_not_allowed());
    }
    if target.subresource == "scale" {
        let scale = get_scale(state, target)?;
        return Ok(Outcome::Full(answer::json(200, Bytes::from(scale.to_string()))));
    }
    match verb {
        Verb::Get => {
            answer::fits_object(&target.resource, shape)?;
            let version = query.text("resourceVersion");
            match get(state, &target.resource, &target.key(), &target.name, version, view)? {
                Reached::At(version) => wait(state, target, version, patience, view),
                Reached::Now(stored) if matches!(shape, Shape::Table(_)) => {
                    let metadata = json!({"resourceVersion": stored.version.to_string()});
                    let rows = [encoder.show(&stored.value)];
                    let body = encoder.table(metadata, &rows, Header::Shown, included(query)?, now(state));
                    Ok(Outcome::Full(answer::json(200, body)))
                }
                Reached::Now(stored) => Ok(Outcome::Full(answer::json(200, encoder.object(&stored)))),
            }
        }
        Verb::List => {
            answer::fits_list(&target.resource, shape)?;
            let options = ListOptions::list(query, &target.resource, &target.served)?;
            let scope = Scope { namespace, name: None };
            match list(state, &target.resource, &target.served, scope, &options, view)? {
                Reached::At(version) => wait(state, target, version, patience, view),
                Reached::Now(page) if matches!(shape, Shape::Table(_)) => {
                    let rows: Vec<Value> =
                        page.items.iter().map(|stored| encoder.show(&stored.value)).collect();
                    let metadata = page.metadata(&target.resource, shape);
                    let body = encoder.table(metadata, &rows, Header::Shown, included(query)?, now(state));
                    Ok(Outcome::Full(answer::json(200, body)))
                }
                Reached::Now(page) => Ok(Outcome::Full(answer::json(200, list_body(&page, &encoder)))),
            }
        }
        _ => {
            let options = ListOptions::watch(query, &target.resource, &target.served)?;
            let name = if info.path.split('/').any(|part| part == "watch") { info.name } else { None };
            let encoder_for_tables = encoder.clone();
            let setup = WatchSetup {
                encoder,
                scope: Scope { namespace, name },
                bookmark_period: state.bookmark_period,
                waited: patience == Patience::Over,
                view,
                table: table_writer(state, &encoder_for_tables, shape, query)?,
                media: accepted.media,
            };
            match open(state, &options, setup)? {
                Reached::At(version) => Ok(Outcome::Wait(version)),
                Reached::Now(stream) => Ok(Outcome::Watch(Box::new(stream))),
            }
        }
    }
}

/// Returns whether a subresource only takes objects that are made below another.
fn makes(target: &Target) -> bool {
    let kind = target.resource.built_in().map(|row| row.kind);
    matches!(
        (kind, target.subresource.as_str()),
        (Some("Pod"), "binding") | (Some("ServiceAccount"), "token")
    )
}

fn of(target: &Target) -> Of {
    if target.resource.is_custom() { Of::Custom } else { Of::BuiltIn }
}

fn now(state: &State) -> i64 {
    state.clock.now().as_second()
}

fn included(query: &Query) -> Result<IncludeObject, Status> {
    match query.text("includeObject") {
        "" | "Metadata" => Ok(IncludeObject::Metadata),
        "Object" => Ok(IncludeObject::Object),
        "None" => Ok(IncludeObject::None),
        other => {
            let why = "must be 'Metadata', 'Object', 'None', or empty";
            let message = format!("includeObject: Invalid value: {other:?}: {why}");
            Err(Status::bad_request(format!("Unable to convert to Table as requested: {message}")))
        }
    }
}

fn table_writer(
    state: &State,
    encoder: &Encoder,
    shape: Shape,
    query: &Query,
) -> Result<Option<TableWriter>, Status> {
    if !matches!(shape, Shape::Table(_)) {
        return Ok(None);
    }
    let (include, clock, encoder) = (included(query)?, state.clock.clone(), encoder.clone());
    let mut header = Header::Shown;
    Ok(Some(Box::new(move |value, version| {
        let rows = [encode::at_version(&encoder.show(value), version)];
        let metadata = json!({"resourceVersion": version.to_string()});
        let bytes = encoder.table(metadata, &rows, header, include, clock.now().as_second());
        header = Header::Hidden;
        bytes
    })))
}

fn wait(
    state: &State,
    target: &Target,
    version: u64,
    patience: Patience,
    view: Option<View>,
) -> Result<Outcome, Status> {
    match patience {
        Patience::Fresh => Ok(Outcome::Wait(version)),
        Patience::Over => {
            let seen = state.store.seen(&target.resource.storage, view);
            Err(Status::version_too_large(version, seen))
        }
    }
}

/// Writes the named object as somebody else would: an annotation changes, and so does its version.
/// Reads the stored object that a request names.
pub(super) fn peek(state: &State, info: &RequestInfo) -> Option<serde_json::Value> {
    let target = find(state, info).ok().filter(|_| info.name.is_some())?;
    Some(state.store.get(&target.resource.storage, &target.key())?.value.clone())
}

pub(super) fn bump(state: &mut State, info: &RequestInfo) {
    let Ok(target) = find(state, info) else { return };
    let Some(stored) = state.store.get(&target.resource.storage, &target.key()).cloned() else { return };
    let mut value = stored.value.clone();
    let metadata = object::child_mut(object::map_mut(&mut value), "metadata");
    let annotations = object::child_mut(metadata, "annotations");
    annotations.insert("watchkeeper.dev/bumped-at".into(), stored.version.to_string().into());
    state.store.put(&target.resource.storage, &target.key(), value);
}

fn write(
    state: &mut State,
    request: &ApiRequest,
    query: &Query,
    target: &Target,
    verb: Verb,
) -> Result<Response<Bytes>, Status> {
    let shape = accept(&request.headers, Answer::Whole, of(target))?.shape;
    allowed(target, verb)?;
    let encoder = Encoder::new(target.resource.clone(), target.served.clone(), shape);
    let agent = request
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let options = |kind: &str| WriteOptions::read(query, agent, kind);
    let (headers, body) = (&request.headers, &request.body);
    let scale = target.subresource == "scale";
    let written = match verb {
        Verb::Create if target.subresource == "binding" => bind(state, target, body)?,
        Verb::Create if target.subresource == "token" => {
            let options = options("CreateOptions")?;
            service_tokens::request(state, target, &options.manager, body)?
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
        Verb::Delete => delete(state, target, &DeleteOptions::read(query, body)?)?,
        Verb::DeleteCollection => {
            let delete_options = DeleteOptions::read(query, body)?;
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
        let name = object::name(&stored.value).to_owned();
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

/// Binds a pod to a node.
fn bind(state: &mut State, target: &Target, body: &[u8]) -> Result<Written, Status> {
    let binding: Value = serde_json::from_slice(body).map_err(|e| Status::bad_request(e.to_string()))?;
    let stored =
        state.store.get(&target.resource.storage, &target.key()).ok_or_else(|| target.not_found())?;
    let mut pod = stored.value.clone();
    let node = object::at(&binding, "target.name").cloned().unwrap_or_default();
    object::child_mut(object::map_mut(&mut pod), "spec").insert("nodeName".into(), node);
    let condition = serde_json::json!({
        "type": "PodScheduled", "observedGeneration": object::meta(&pod, "generation").cloned().unwrap_or(1.into()),
        "status": "True", "lastProbeTime": null, "lastTransitionTime": state.clock.seconds(),
    });
    let status = object::child_mut(object::map_mut(&mut pod), "status");
    status.insert("conditions".into(), serde_json::json!([condition]));
    state.store.put(&target.resource.storage, &target.key(), pod);
    let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(Written::created(Shown::Other(status)))
}

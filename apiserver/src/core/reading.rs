//! Reads: get, list and watch, in the requested form.

use bytes::Bytes;
use serde_json::{Value, json};

use super::ApiRequest;
use super::answer::{self, Outcome, Patience};
use super::target::{makes, of};
use crate::conversion::{is_missing, prepare};
use crate::encode::{self, Encoder};
use crate::negotiate::{AnswerKind, Shape, accept};
use crate::read::{ListOptions, Reached, get, list, list_body};
use crate::route::{Query, Verb};
use crate::state::State;
use crate::status::Status;
use crate::store::{Scope, View};
use crate::table::{Header, IncludeObject};
use crate::watch::{TableWriter, WatchSetup, open};
use crate::write::{Target, get_scale};

/// Answers a read, as a view has the objects.
pub(super) fn read(
    state: &mut State,
    request: &ApiRequest,
    query: &Query,
    target: &Target,
    verb: Verb,
    (patience, view): (Patience, Option<View>),
) -> Result<Outcome, Status> {
    let kind = if verb == Verb::Watch { AnswerKind::Stream } else { AnswerKind::Whole };
    let accepted = accept(&request.headers, kind, of(target))?;
    let shape = accepted.shape;
    let encoder = Encoder::new(target.resource.clone(), target.served.clone(), shape);
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
                    let rows = [encoder.show(&stored)];
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
                // Those of the past: what is there now has been prepared.
                Reached::Now(page) if page.items.iter().any(|stored| is_missing(&target.served, stored)) => {
                    prepare(state, &target.served, &page.items)?;
                    read(state, request, query, target, verb, (patience, view))
                }
                Reached::Now(page) if matches!(shape, Shape::Table(_)) => {
                    let rows: Vec<Value> = page.items.iter().map(|stored| encoder.show(stored)).collect();
                    let metadata = page.metadata(&target.resource, shape);
                    let body = encoder.table(metadata, &rows, Header::Shown, included(query)?, now(state));
                    Ok(Outcome::Full(answer::json(200, body)))
                }
                Reached::Now(page) => Ok(Outcome::Full(answer::json(200, list_body(&page, &encoder)))),
            }
        }
        _ => {
            let options = ListOptions::watch(query, &target.resource, &target.served)?;
            let info = request.info();
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
                caller: state.caller.clone(),
            };
            match open(state, &options, setup)? {
                Reached::At(version) => Ok(Outcome::Wait(version)),
                Reached::Now(stream) => Ok(Outcome::Watch(Box::new(stream))),
            }
        }
    }
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
        let rows = [encode::at_version(value, version)];
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

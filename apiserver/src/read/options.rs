//! Options: how a list or a watch is to be read.

use crate::kinds::{Resource, Served, known_field};
use crate::route::Query;
use crate::selector::{FieldSelector, LabelSelector, Selector};
use crate::status::{Cause, Status};

/// How `resourceVersionMatch` wants the version met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// Not set.
    Unset,
    /// The version or a later one.
    NotOlderThan,
    /// The version itself.
    Exact,
}

/// The options of a list or watch, read and checked.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    /// The selected objects.
    pub(crate) selector: Selector,
    /// The version as given; empty if not set.
    pub(crate) version: String,
    /// How the version is to be met.
    pub(crate) matching: Match,
    /// The most items of a page; 0 for no limit.
    pub(crate) limit: usize,
    /// The continue token; empty if not set.
    pub(crate) go_on: String,
    /// Whether a watch is to begin with the state.
    pub(crate) initial_events: Option<bool>,
    /// Whether a watch is sent bookmarks.
    pub(crate) bookmarks: bool,
    /// The seconds after which a watch ends.
    pub(crate) timeout: Option<u64>,
}

impl ListOptions {
    /// Reads the options of a list.
    ///
    /// # Errors
    /// 400 or 422, in the server's words.
    pub(crate) fn list(query: &Query, resource: &Resource, served: &Served) -> Result<Self, Status> {
        let options = Self::parse(query, resource, served)?;
        let causes = options.list_causes(query);
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_list_options(&causes)) }
    }

    /// Reads the options of a watch.
    ///
    /// # Errors
    /// 400 or 422, in the server's words.
    pub(crate) fn watch(query: &Query, resource: &Resource, served: &Served) -> Result<Self, Status> {
        let options = Self::parse(query, resource, served)?;
        let causes = options.watch_causes(query);
        if causes.is_empty() { Ok(options) } else { Err(Status::invalid_list_options(&causes)) }
    }

    fn parse(query: &Query, resource: &Resource, served: &Served) -> Result<Self, Status> {
        let limit = number(query.text("limit"))?;
        let timeout = number(query.text("timeoutSeconds"))?;
        Ok(Self {
            selector: selector(query, resource, served)?,
            version: query.text("resourceVersion").to_owned(),
            matching: match query.text("resourceVersionMatch") {
                "Exact" => Match::Exact,
                "NotOlderThan" => Match::NotOlderThan,
                _ => Match::Unset,
            },
            limit: usize::try_from(limit.unwrap_or(0)).unwrap_or(0),
            go_on: query.text("continue").to_owned(),
            initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout: timeout.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
        })
    }

    fn list_causes(&self, query: &Query) -> Vec<Cause> {
        const FIELD: &str = "resourceVersionMatch";
        let mut causes = Vec::new();
        if self.initial_events.is_some() {
            return vec![Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")];
        }
        let given = query.text(FIELD);
        if given.is_empty() {
            return causes;
        }
        if self.version.is_empty() {
            causes.push(Cause::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !self.go_on.is_empty() {
            causes
                .push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if self.matching == Match::Unset {
            let message =
                format!("Unsupported value: {given:?}: supported values: \"Exact\", \"NotOlderThan\", \"\"");
            causes.push(Cause::new("FieldValueNotSupported", FIELD, message));
        }
        if self.matching == Match::Exact && self.version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(FIELD, why));
        }
        causes
    }

    fn watch_causes(&self, query: &Query) -> Vec<Cause> {
        const FIELD: &str = "resourceVersionMatch";
        let mut causes = Vec::new();
        let given = query.text(FIELD);
        if self.initial_events.is_none() {
            if !given.is_empty() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(Cause::forbidden(FIELD, why));
            }
        } else if self.matching != Match::NotOlderThan {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden(FIELD, why));
            if !given.is_empty() {
                let message = format!("Unsupported value: {given:?}: supported values: \"NotOlderThan\"");
                causes.push(Cause::new("FieldValueNotSupported", FIELD, message));
            }
        }
        if !self.go_on.is_empty() {
            causes
                .push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        causes
    }
}

fn number(text: &str) -> Result<Option<i64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
    text.parse().map(Some).map_err(|_| refused())
}

/// Reads the two selectors of a query.
///
/// # Errors
/// 400: malformed, or a field that does not support selection.
fn selector(query: &Query, resource: &Resource, served: &Served) -> Result<Selector, Status> {
    let labels = LabelSelector::parse(query.text("labelSelector")).map_err(|e| Status::bad_request(e.0))?;
    let fields = FieldSelector::parse(query.text("fieldSelector")).map_err(|e| Status::bad_request(e.0))?;
    for term in fields.terms() {
        known_field(resource, served, &term.path).map_err(Status::bad_request)?;
    }
    Ok(Selector { labels, fields })
}

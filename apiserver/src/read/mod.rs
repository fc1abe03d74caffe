//! Reads: one object, or a list at the right version, page by page.

mod options;

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::{Resource, Served, field_text};
use crate::negotiate::Shape;
use crate::selector::Selector;
use crate::state::State;
use crate::status::Status;
use crate::store::{Scope, Stored, View};

pub(crate) use options::{ListOptions, Match};

/// An answer, or the version that must be reached first.
#[derive(Debug)]
pub(crate) enum Reached<T> {
    /// The answer.
    Now(T),
    /// Retry once this version exists; after three seconds it is reported as too large.
    At(u64),
}

/// Reads a resource version; `None` if it is empty.
///
/// # Errors
/// The server's words for an invalid number.
pub(crate) fn parse_version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused = || {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    };
    if !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(refused());
    }
    text.parse().map(Some).map_err(|_| refused())
}

/// Returns whether a stored object is selected, as a version shows it.
pub(crate) fn selects(selector: &Selector, served: &Served, stored: &Stored) -> bool {
    if selector.is_empty() {
        return true;
    }
    let outlined = |path: &str| matches!(path, "metadata.name" | "metadata.namespace");
    if selector.fields.terms().iter().all(|term| outlined(&term.path)) {
        return selector.matches(&stored.outline(), field_text);
    }
    if served.conversion.is_some() {
        return selector.matches(&served.show_stored(stored), field_text);
    }
    let value = &*stored.value();
    if served.view != crate::kinds::VersionView::Same
        && selector.fields.terms().iter().any(|t| !t.path.starts_with("metadata."))
    {
        return selector.matches(&served.show(value), field_text);
    }
    selector.matches(value, field_text)
}

/// Narrows a scope by the name and namespace in a field selector.
pub(crate) fn narrow(mut scope: Scope, selector: &Selector) -> Scope {
    if let Some(namespace) = selector.fields.exact("metadata.namespace")
        && scope.namespace.is_none()
        && !namespace.is_empty()
    {
        scope.namespace = Some(namespace.to_owned());
    }
    if let Some(name) = selector.fields.exact("metadata.name")
        && scope.name.is_none()
    {
        scope.name = Some(name.to_owned());
    }
    scope
}

/// Reads one object of a view, at least as new as the requested version.
///
/// # Errors
/// 404, or 500 for a version that is not a number.
pub(crate) fn get(
    state: &State,
    resource: &Resource,
    key: &str,
    name: &str,
    version: &str,
    view: Option<View>,
) -> Result<Reached<Arc<Stored>>, Status> {
    let now = state.store.seen(&resource.storage, view.filter(|view| view.covers(version)));
    let version = parse_version(version).map_err(Status::internal)?.unwrap_or(0);
    if version > now {
        return Ok(Reached::At(version));
    }
    let found = if now < state.store.version() {
        let then = state.store.scan_at(&resource.storage, key, now).unwrap_or_default();
        then.into_iter().find(|stored| *stored.key == *key)
    } else {
        state.store.get(&resource.storage, key).cloned()
    };
    found.map(Reached::Now).ok_or_else(|| Status::not_found(resource.group(), resource.plural(), name))
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    /// The objects.
    pub(crate) items: Vec<Arc<Stored>>,
    /// The version the list shows.
    pub(crate) version: u64,
    /// The token of the next page.
    pub(crate) go_on: Option<String>,
    /// The number of objects after this page.
    pub(crate) remaining: Option<usize>,
}

impl Page {
    /// Writes the list's metadata; whole lists of custom resources always carry `continue`.
    pub(crate) fn metadata(&self, resource: &Resource, shape: Shape) -> Value {
        let mut out = json!({"resourceVersion": self.version.to_string()});
        if let Some(token) = &self.go_on {
            out["continue"] = token.clone().into();
        } else if resource.is_custom() && shape == Shape::Object {
            out["continue"] = "".into();
        }
        if let Some(remaining) = self.remaining {
            out["remainingItemCount"] = remaining.into();
        }
        out
    }
}

/// Reads a list, as a view has it.
///
/// # Errors
/// 400, 410 or 422 as the options deserve.
pub(crate) fn list(
    state: &State,
    resource: &Resource,
    served: &Served,
    scope: Scope,
    options: &ListOptions,
    view: Option<View>,
) -> Result<Reached<Page>, Status> {
    let view = view.filter(|view| options.go_on.is_empty() && view.covers(&options.version));
    let now = state.store.seen(&resource.storage, view);
    let scope = narrow(scope, &options.selector);
    let prefix = scope.prefix();
    let given = parse_version(&options.version)
        .map_err(|e| Status::bad_request(format!("invalid resource version: {e}")))?;
    let mut start = String::new();
    let mut at = None;
    let mut limit = options.limit;
    if options.go_on.is_empty() {
        let version = given.unwrap_or(0);
        if version > now {
            return Ok(Reached::At(version));
        }
        let legacy_exact = options.matching == Match::Unset && limit > 0 && version > 0;
        if options.matching == Match::Exact || legacy_exact {
            at = Some(version);
        }
        if given == Some(0) {
            limit = 0;
        }
    } else {
        if given.is_some_and(|version| version > 0) {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(why));
        }
        let token = ContinueToken::decode(&options.go_on)?;
        at = u64::try_from(token.version).ok();
        start = token.start;
    }
    let shown = at.unwrap_or(now);
    let from = format!("{prefix}{start}");
    let (taken, after) = if shown < state.store.version() {
        let then = match state.store.scan_at(&resource.storage, &prefix, shown) {
            Ok(then) => then,
            Err(_) if options.go_on.is_empty() => {
                return Err(Status::expired("The resourceVersion for the provided list is too old."));
            }
            Err(_) => return Err(expired_token(&start)),
        };
        let wanted = then.iter().filter(|stored| stored.key.as_ref() >= from.as_str());
        let mut wanted = wanted.filter(|stored| scope.holds(&stored.key));
        let taken = take(&mut wanted, limit, &options.selector, served);
        (taken, wanted.count())
    } else {
        let current = state.store.scan_from(&resource.storage, &prefix, &from);
        let mut wanted = current.filter(|stored| scope.holds(&stored.key));
        let taken = take(&mut wanted, limit, &options.selector, served);
        let after = match taken.last {
            None => 0,
            // The first page of everything is requested often, and need not be counted.
            Some(_) if from.is_empty() && scope == Scope::default() => {
                state.store.count(&resource.storage) - taken.seen
            }
            Some(_) => wanted.count(),
        };
        (taken, after)
    };
    let go_on = (after > 0).then(|| {
        let key = taken.last.as_deref().unwrap_or(&prefix);
        let version = i64::try_from(shown).unwrap_or(i64::MAX);
        ContinueToken { version, start: format!("{}\0", &key[prefix.len()..]) }.encode()
    });
    let remaining = (after > 0 && options.selector.is_empty()).then_some(after);
    Ok(Reached::Now(Page { items: taken.items, version: shown, go_on, remaining }))
}

/// The result of reading a page.
struct Taken {
    items: Vec<Arc<Stored>>,
    /// How many objects were looked at.
    seen: usize,
    /// The key of the last that was looked at.
    last: Option<Arc<str>>,
}

/// Takes the selected objects, up to the limit; the rest stays in the iterator.
fn take<'a>(
    wanted: &mut impl Iterator<Item = &'a Arc<Stored>>,
    limit: usize,
    selector: &Selector,
    served: &Served,
) -> Taken {
    let mut taken = Taken { items: Vec::new(), seen: 0, last: None };
    let filter = selector.labels.text_filter();
    while limit == 0 || taken.items.len() < limit {
        let Some(stored) = wanted.next() else { break };
        taken.seen += 1;
        taken.last = Some(stored.key.clone());
        if stored.may_fit(&filter) && selects(selector, served, stored) {
            taken.items.push(stored.clone());
        }
    }
    taken
}

/// 410 for an expired continue token, with a token that continues at the newest state.
pub(crate) fn expired_page(token: &str) -> Status {
    match ContinueToken::decode(token) {
        Ok(token) => expired_token(&token.start),
        Err(refused) => refused,
    }
}

/// Creates a token that continues after the last possible object.
pub(crate) fn token_past_the_end(version: i64) -> String {
    ContinueToken { version, start: char::MAX.to_string() }.encode()
}

fn expired_token(start: &str) -> Status {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let token = ContinueToken { version: -1, start: start.to_owned() }.encode();
    Status { go_on: Some(token.into()), ..Status::expired(message) }
}

/// Base64 as Go reads it: spare bits at the end are let pass.
const BASE64: GeneralPurpose = {
    let config = GeneralPurposeConfig::new().with_encode_padding(false).with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&URL_SAFE, config.with_decode_padding_mode(DecodePaddingMode::RequireNone))
};

/// The end of a page: the list's version and the next key, relative to the list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContinueToken {
    version: i64,
    start: String,
}

impl ContinueToken {
    fn encode(&self) -> String {
        let text = json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": format!("/{}", self.start)})
            .to_string();
        BASE64.encode(text)
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let refused = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = BASE64.decode(text).map_err(|e| refused(&e.to_string()))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| refused(&not_json(&bytes)))?;
        let version = value["v"].as_str().unwrap_or_default();
        if version != "meta.k8s.io/v1" {
            return Err(refused(&format!("server does not recognize this encoded version {version}")));
        }
        let start = value["start"].as_str().unwrap_or_default();
        if start.is_empty() {
            return Err(refused("missing fields"));
        }
        if start.split('/').any(|part| part == "..") {
            return Err(refused(start));
        }
        let start = start.strip_prefix('/').unwrap_or(start).to_owned();
        Ok(Self { version: value["rv"].as_i64().unwrap_or(0), start })
    }
}

fn not_json(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match bytes.first() {
        None => "unexpected end of JSON input".to_owned(),
        Some(&first) if first.is_ascii() => format!(
            "invalid character '{}' looking for beginning of value",
            text.chars().next().unwrap_or(' ')
        ),
        Some(&first) => format!("invalid character '{}' looking for beginning of value", char::from(first)),
    }
}

/// Writes a list's body.
pub(crate) fn list_body(page: &Page, encoder: &crate::encode::Encoder) -> Bytes {
    encoder.list(&page.metadata(&encoder.resource, encoder.shape()), &page.items)
}

#[cfg(test)]
mod tests {
    use super::*;

    // wire 009
    #[test]
    fn rubbish_tokens_are_refused() {
        let message = |text: &str| ContinueToken::decode(text).expect_err("refused").message;
        assert!(message("rubbish").ends_with("invalid character '\u{ae}' looking for beginning of value"));
        assert!(message("e30").ends_with("server does not recognize this encoded version "));
        let climbing = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9hXHUwMDAwIn0";
        assert!(message(climbing).ends_with("continue key is not valid: ../a\0"));
    }

    #[test]
    fn a_token_goes_there_and_back() {
        let token = ContinueToken { version: 7, start: "a/b\0".to_owned() };
        assert_eq!(ContinueToken::decode(&token.encode()).expect("reads"), token);
    }

    // wire 002
    #[test]
    fn versions_are_numbers() {
        assert_eq!(parse_version("12"), Ok(Some(12)));
        assert_eq!(parse_version(""), Ok(None));
        assert!(parse_version("-1").is_err());
        assert!(parse_version("abc").expect_err("refused").contains("strconv.ParseUint: parsing \"abc\""));
    }
}

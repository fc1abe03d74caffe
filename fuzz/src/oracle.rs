//! Says what a list or a watch must come to, from what `serde_json` reads in the same bytes.
//!
//! Nothing is accepted that `serde_json` rejects, nothing is lost, and no value reads otherwise. Bytes in which an
//! object says something twice are not judged.

use std::{borrow::Cow, fmt};

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use watchkeeper::{
    list_watch::{FetchedItem, InitialEventsMark, ItemForm, ListPage, ListWatchError, WatchEvent},
    object::{Kind, Object, ObjectKey},
};

use super::answer::Events;

/// What the oracle found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both read the bytes, and read the same.
    Accepted,
    /// Neither does.
    Rejected,
    /// Something is said twice, is nested deeper than `serde_json` goes, or is more than a `Value` holds.
    NotJudged,
}

/// A difference; its text says what differs.
pub type Judged = Result<Verdict, String>;

/// What `serde_json` reads.
enum Read {
    Value(Value),
    Nothing,
    NotJudged,
}

fn read(text: &[u8]) -> Read {
    match serde_json::from_slice::<Value>(text) {
        Err(error) if error.to_string().starts_with("recursion limit exceeded") => Read::NotJudged,
        // Well-formed, but with a number or half a surrogate pair that nothing holds: each type's own matter.
        Err(_) if serde_json::from_slice::<de::IgnoredAny>(text).is_ok() => Read::NotJudged,
        Err(_) => Read::Nothing,
        Ok(value) => match serde_json::from_slice::<Once>(text) {
            Ok(Once) => Read::Value(value),
            Err(_) => Read::NotJudged,
        },
    }
}

/// Judges what was listed.
///
/// # Errors
/// It is not what should have been.
pub fn list<K: Object + PartialEq>(
    kind: &Kind,
    form: ItemForm,
    body: &[u8],
    found: &Result<ListPage<K>, ListWatchError>,
) -> Judged {
    let value = match read(body) {
        Read::NotJudged => return Ok(Verdict::NotJudged),
        Read::Nothing => return no_list(found),
        Read::Value(value) => value,
    };
    let Some((version, token, items)) = head_and_items(&value) else { return no_list(found) };
    let page = found.as_ref().map_err(|error| format!("a list is refused: {error}"))?;
    same("the version", &page.resource_version, &version)?;
    same("the continue token", &page.continue_token, &token)?;
    same("the number of items", &page.items.len(), &items.len())?;
    let wanted = Wanted { kind, form };
    page.items.iter().zip(items).try_for_each(|(item, value)| wanted.item(item, value))?;
    Ok(Verdict::Accepted)
}

fn no_list<K: Object>(found: &Result<ListPage<K>, ListWatchError>) -> Judged {
    match found {
        Ok(page) => Err(format!("taken for a list of {} items", page.items.len())),
        Err(_) => Ok(Verdict::Rejected),
    }
}

/// Reads version, continue token and items; `None` if it is not a list.
fn head_and_items(list: &Value) -> Option<(String, Option<String>, &[Value])> {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(value) => value.as_str().map(str::to_owned),
    };
    let kind = text(list.get("kind"))?;
    let metadata = list.get("metadata")?;
    let metadata = metadata.as_object()?;
    let (version, token) = (metadata.get("resourceVersion"), metadata.get("continue"));
    let items = match list.get("items")? {
        Value::Null => &[],
        items => items.as_array()?.as_slice(),
    };
    let (version, token) = (text(version)?, text(token)?);
    (kind != "Status" && kind != "Table").then_some((
        version,
        Some(token).filter(|token| !token.is_empty()),
        items,
    ))
}

/// Judges what was watched.
///
/// # Errors
/// It is not what should have been.
pub fn watch<K: Object + PartialEq>(kind: &Kind, form: ItemForm, body: &[u8], found: &Events<K>) -> Judged {
    let wanted = Wanted { kind, form };
    let (mut found, mut verdict) = (found.iter(), Verdict::Accepted);
    for line in body.split(|byte| *byte == b'\n') {
        if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            continue;
        }
        let value = match read(line) {
            Read::NotJudged => return Ok(Verdict::NotJudged),
            Read::Value(value) => value,
            Read::Nothing => match found.next() {
                Some(Err(_)) => {
                    verdict = Verdict::Rejected;
                    break;
                }
                found => return Err(format!("a line that is not JSON became {found:?}")),
            },
        };
        let event = found.next().ok_or("an event is lost")?;
        wanted.event(event, &value)?;
        if event.is_err() {
            break;
        }
    }
    match found.next() {
        None => Ok(verdict),
        Some(event) => Err(format!("an event came out of nothing: {event:?}")),
    }
}

/// What was asked for.
struct Wanted<'a> {
    kind: &'a Kind,
    form: ItemForm,
}

impl Wanted<'_> {
    fn event<K: Object + PartialEq>(
        &self,
        found: &Result<WatchEvent<K>, ListWatchError>,
        line: &Value,
    ) -> Result<(), String> {
        let (sort, object) = (line.get("type").and_then(Value::as_str), line.get("object"));
        let (Some(sort), Some(object)) = (sort, object) else {
            let is_status = text(line, "kind") == Some("Status");
            return match found {
                Ok(WatchEvent::Error(_)) if is_status => Ok(()),
                Err(ListWatchError::Unreadable(_)) if !is_status => Ok(()),
                found => Err(format!("a line that is not an event became {found:?}")),
            };
        };
        match (sort, found) {
            ("ADDED", Ok(WatchEvent::Added(item)))
            | ("MODIFIED", Ok(WatchEvent::Modified(item)))
            | ("DELETED", Ok(WatchEvent::Deleted(item)))
                if !self.is_foreign(object) =>
            {
                self.item(item, object)
            }
            ("ADDED" | "MODIFIED" | "DELETED", Ok(WatchEvent::Unexpected(_))) if self.is_foreign(object) => {
                Ok(())
            }
            ("BOOKMARK", Ok(found)) => bookmark(found, object),
            ("ERROR", Ok(WatchEvent::Error(_))) => Ok(()),
            ("ADDED" | "MODIFIED" | "DELETED" | "ERROR", found) => Err(format!("{sort} became {found:?}")),
            (_, Ok(WatchEvent::Unexpected(_))) => Ok(()),
            (_, found) => Err(format!("an event of an unknown type became {found:?}")),
        }
    }

    fn is_foreign(&self, object: &Value) -> bool {
        let said = |name| object.as_object().and_then(|object| object.get(name)).and_then(Value::as_str);
        said("apiVersion").is_some_and(|said| said != self.kind.api_version())
            || said("kind").is_some_and(|said| said != self.kind.kind)
    }

    fn item<K: Object + PartialEq>(&self, found: &FetchedItem<K>, object: &Value) -> Result<(), String> {
        let metadata = object.as_object().and_then(|object| object.get("metadata"));
        let said = |name| metadata.and_then(|metadata| text(metadata, name));
        let key = key(metadata);
        same("the key", &found.key(), &key)?;
        match found {
            FetchedItem::Object(object_found) => {
                let expected = serde_json::from_value::<K>(self.lean(object));
                let expected =
                    expected.map_err(|error| format!("decoded, though it does not decode: {error}"))?;
                same_value(**object_found == expected && !self.is_foreign(object))
            }
            FetchedItem::Raw(raw) => {
                let json =
                    serde_json::from_str::<Value>(&raw.text.json()).map_err(|error| error.to_string())?;
                same("the UID", &raw.text.uid(), &said("uid").filter(|uid| !uid.is_empty()))?;
                let version = said("resourceVersion").filter(|version| !version.is_empty());
                same("the version", &raw.text.resource_version(), &version)?;
                same_value(json == self.lean(object) && !self.is_foreign(object))
            }
            FetchedItem::Unreadable(unreadable) => {
                same("the UID", &unreadable.identity.uid.as_deref(), &said("uid"))?;
                same(
                    "the version",
                    &unreadable.identity.resource_version.as_deref(),
                    &said("resourceVersion"),
                )?;
                let justified = key.is_none()
                    || self.is_foreign(object)
                    || match self.form {
                        ItemForm::Typed => serde_json::from_value::<K>(self.lean(object)).is_err(),
                        ItemForm::Bytes => false,
                    };
                if justified {
                    Ok(())
                } else {
                    Err(format!("unreadable without a reason: {}", unreadable.error))
                }
            }
        }
    }

    /// Leaves out managedFields, and fills in the type.
    fn lean(&self, object: &Value) -> Value {
        let mut lean = object.clone();
        if let Some(lean) = lean.as_object_mut()
            && let Some(metadata) = lean.get_mut("metadata")
        {
            metadata.as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
            lean.entry("apiVersion").or_insert_with(|| self.kind.api_version().into());
            lean.entry("kind").or_insert_with(|| self.kind.kind.as_ref().into());
        }
        lean
    }
}

fn bookmark<K: Object>(found: &WatchEvent<K>, object: &Value) -> Result<(), String> {
    let metadata = object.as_object().and_then(|object| object.get("metadata"));
    let version = metadata.and_then(|metadata| text(metadata, "resourceVersion"));
    let end = metadata.and_then(|metadata| metadata.as_object()?.get("annotations"));
    let end = end.and_then(|annotations| text(annotations, "k8s.io/initial-events-end")) == Some("true");
    match (found, version) {
        (WatchEvent::Bookmark { resource_version, initial_events }, Some(version)) => {
            same("the bookmark's version", resource_version.as_str(), version)?;
            same("the end of the initial events", &(*initial_events == InitialEventsMark::End), &end)
        }
        (WatchEvent::Unexpected(_), None) => Ok(()),
        (found, _) => Err(format!("a bookmark became {found:?}")),
    }
}

fn key(metadata: Option<&Value>) -> Option<ObjectKey> {
    let metadata = metadata?.as_object()?;
    let name = metadata.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => "",
        Some(namespace) => namespace.as_str()?,
    };
    Some(ObjectKey::new(namespace, name))
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.as_object()?.get(name)?.as_str()
}

fn same<T: PartialEq + fmt::Debug + ?Sized>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?}, not {expected:?}")) }
}

fn same_value(same: bool) -> Result<(), String> {
    if same { Ok(()) } else { Err("an object reads otherwise".to_owned()) }
}

/// Any value in which no object has one key twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Self;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element_seed(Self)?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut met = Map::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if met.insert(key.into_owned(), Value::Null).is_some() {
                return Err(de::Error::custom("a key stands twice"));
            }
            map.next_value_seed(Self)?;
        }
        Ok(self)
    }
}

//! What a fake API outside the cluster keeps: records of JSON, by path.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use watchkeeper_apiserver::inside::StoredObject;

/// How requests to it are named.
pub(crate) const NAME: &str = "external";

/// The records that an external API keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    /// By path. A generated name is remembered with the path of its collection.
    all: BTreeMap<String, Record>,
    made: usize,
    /// How often something was deleted, by the name under which it is compared.
    pub(crate) deleted: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    value: Value,
    is_generated: bool,
}

impl Records {
    /// Shows the records as objects, so that they are compared as these are.
    pub(crate) fn objects(&self) -> Vec<StoredObject> {
        let object = |(path, record): (&String, &Record)| {
            let name = path.trim_start_matches('/');
            let prefix = name.rsplit_once('/').map(|(collection, _)| format!("{collection}/"));
            let generated = prefix.filter(|_| record.is_generated);
            let value =
                json!({ "metadata": { "name": name, "generateName": generated }, "record": record.value });
            StoredObject { resource: NAME.to_owned(), path: format!("/{NAME}{path}"), value }
        };
        self.all.iter().map(object).collect()
    }

    /// Answers a request; says whether anything changed.
    pub(crate) fn serve(&mut self, method: &Method, path: &str, body: &[u8]) -> (Response<Bytes>, bool) {
        let before = self.all.clone();
        let answer = self.answer(method, path, body);
        let changed = before != self.all;
        (answer, changed)
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Response<Bytes> {
        let path = path.trim_end_matches('/');
        let sent = serde_json::from_slice::<Value>(body).ok().filter(Value::is_object);
        match (method, sent) {
            (&Method::GET, _) => match self.all.get(path) {
                Some(record) => answer(StatusCode::OK, &shown(path, &record.value)),
                None => self.list(path),
            },
            (&Method::DELETE, _) => match self.all.remove(path) {
                Some(record) => {
                    let name = if record.is_generated { collection(path) } else { path };
                    // A record that a late request made a second time is in use no more than once.
                    if !(record.is_generated && self.has_like(name, &record)) {
                        *self.deleted.entry(name.to_owned()).or_default() += 1;
                    }
                    answer(StatusCode::NO_CONTENT, &Value::Null)
                }
                None => refused(StatusCode::NOT_FOUND, "there is no such record"),
            },
            (&Method::PUT, Some(value)) => {
                let known = self.all.get(path);
                let code = if known.is_some() { StatusCode::OK } else { StatusCode::CREATED };
                let is_generated = known.is_some_and(|known| known.is_generated);
                self.all.insert(path.to_owned(), Record { value: value.clone(), is_generated });
                answer(code, &shown(path, &value))
            }
            (&Method::POST, Some(value)) => {
                self.made += 1;
                let path = format!("{path}/made-{:05}", self.made);
                self.all.insert(path.clone(), Record { value: value.clone(), is_generated: true });
                answer(StatusCode::CREATED, &shown(&path, &value))
            }
            (&Method::PUT | &Method::POST, None) => {
                refused(StatusCode::BAD_REQUEST, "the body is not a JSON object")
            }
            _ => refused(StatusCode::METHOD_NOT_ALLOWED, "only GET, POST, PUT and DELETE are known"),
        }
    }

    /// Returns whether a collection has a record under a generated name that equals this one.
    fn has_like(&self, of: &str, record: &Record) -> bool {
        self.all.iter().any(|(path, other)| collection(path) == of && other == record)
    }

    fn list(&self, path: &str) -> Response<Bytes> {
        let below = format!("{path}/");
        let found = self.all.iter().filter(|(path, _)| path.starts_with(&below));
        let found: Vec<Value> = found.map(|(path, record)| shown(path, &record.value)).collect();
        // A record is below a collection.
        match found.is_empty() && path.matches('/').count() > 1 {
            true => refused(StatusCode::NOT_FOUND, "there is no such record"),
            false => answer(StatusCode::OK, &found.into()),
        }
    }
}

fn collection(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(collection, _)| collection)
}

/// A record with its id.
fn shown(path: &str, value: &Value) -> Value {
    let mut value = value.clone();
    value["id"] = path.rsplit('/').next().into();
    value
}

fn answer(code: StatusCode, value: &Value) -> Response<Bytes> {
    let body = if value.is_null() { Bytes::new() } else { value.to_string().into() };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

pub(crate) fn refused(code: StatusCode, why: &str) -> Response<Bytes> {
    answer(code, &json!({ "error": why }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(records: &mut Records, method: Method, path: &str, body: &str) -> (u16, Value) {
        let answer = records.answer(&method, path, body.as_bytes());
        (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default())
    }

    // T29
    #[test]
    fn records_are_kept_by_path() {
        let mut records = Records::default();
        assert_eq!(ask(&mut records, Method::GET, "/domains", ""), (200, json!([])));
        assert_eq!(ask(&mut records, Method::GET, "/domains/a", "").0, 404);
        assert_eq!(
            ask(&mut records, Method::PUT, "/domains/a", r#"{"n":1}"#),
            (201, json!({"n": 1, "id": "a"}))
        );
        assert_eq!(ask(&mut records, Method::PUT, "/domains/a", r#"{"n":2}"#).0, 200);
        let (code, made) = ask(&mut records, Method::POST, "/domains", "{}");
        assert_eq!((code, &made["id"]), (201, &json!("made-00001")));
        assert_eq!(ask(&mut records, Method::GET, "/domains/", "").1.as_array().map(Vec::len), Some(2));
        assert_eq!(ask(&mut records, Method::PUT, "/domains/b", "rubbish").0, 400);
        assert_eq!(ask(&mut records, Method::PATCH, "/domains/a", "{}").0, 405);
        assert_eq!(ask(&mut records, Method::DELETE, "/domains/made-00001", "").0, 204);
        assert_eq!(ask(&mut records, Method::DELETE, "/domains/made-00001", "").0, 404);
        let names: Vec<String> = records.objects().iter().map(StoredObject::name).collect();
        assert_eq!(names, ["external domains/a"]);
        assert_eq!(records.deleted, BTreeMap::from([("/domains".to_owned(), 1)]));
        // If two are alike, only the deletion of the last one counts.
        for times in [1, 2] {
            let made = [(); 2].map(|()| ask(&mut records, Method::POST, "/zones", "{}").1["id"].clone());
            for id in made {
                let path = format!("/zones/{}", id.as_str().unwrap());
                assert_eq!(ask(&mut records, Method::DELETE, &path, "").0, 204);
            }
            assert_eq!(records.deleted["/zones"], times);
        }
    }
}

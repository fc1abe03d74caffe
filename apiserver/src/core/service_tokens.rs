//! Tokens of service accounts: issued on request, and recognised later.
//!
//! They look like the real ones: what is in them can be read, by client-go for one. Only this server can tell that they are
//! genuine, as it remembers them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::apply::{UpdateInput, track_update};
use crate::identity::{AUTHENTICATED, User, service_account_groups};
use crate::object;
use crate::schema::Schema;
use crate::state::{IssuedToken, State};
use crate::status::{Cause, Status};
use crate::write::{Shown, Target, WriteOptions, Written, admit_sent};

/// The default audience.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// The default lifetime, in seconds.
const HOUR: i64 = 3600;

/// Answers a request for a token.
///
/// # Errors
/// 404 for a missing account, 400 and 422 for invalid requests.
pub(super) fn request(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    body: &[u8],
) -> Result<Written, Status> {
    let account =
        state.store.get(&target.resource.storage, &target.key()).ok_or_else(|| target.not_found())?;
    let account = serde_json::Value::clone(&account.value());
    let mut given: Value = serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })?;
    admit_sent(state, target, options, &mut given)?;
    let seconds = given["spec"]["expirationSeconds"].as_i64().unwrap_or(HOUR);
    let why = match seconds {
        ..600 => Some("may not specify a duration less than 10 minutes"),
        4_294_967_297.. => Some("may not specify a duration larger than 2^32 seconds"),
        _ => None,
    };
    if let Some(why) = why {
        let cause = Cause::invalid("spec.expirationSeconds", &seconds.to_string(), why);
        return Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &[cause]));
    }
    let audiences = match given["spec"]["audiences"].as_array() {
        Some(asked) if !asked.is_empty() => Value::from(asked.clone()),
        _ => json!([AUDIENCE]),
    };
    bound_object(state, target, &given["spec"]["boundObjectRef"])?;
    let now = state.clock.now();
    let ends = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let token = written(state, &account, &audiences, (now, ends));
    let mut answer = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": target.name, "namespace": target.namespace, "uid": object::uid(&account),
            "creationTimestamp": state.clock.seconds(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": given["spec"]["boundObjectRef"]},
        "status": {},
    });
    let mut tracked =
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": given["spec"]});
    track(&mut tracked, &options.manager, &state.clock.seconds());
    object::carry(&tracked, &mut answer, "managedFields");
    let expires = ends.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    answer["status"] = json!({"token": token, "expirationTimestamp": expires});
    let (account, uid) = (target.key(), object::uid(&account).to_owned());
    state.issue(IssuedToken { token, account, uid, ends });
    Ok(Written::created(Shown::Other(answer)))
}

/// Looks for the object that a token is to be bound to.
///
/// # Errors
/// 404: it is not there. 409: it is another one by now. 422: no token is bound to objects of its kind.
fn bound_object(state: &State, target: &Target, bound: &Value) -> Result<(), Status> {
    if bound.is_null() {
        return Ok(());
    }
    let text = |key: &str| bound[key].as_str().unwrap_or_default();
    let (name, uid) = (text("name"), text("uid"));
    let (plural, key) = match text("kind") {
        "Pod" => ("pods", format!("{}/{name}", target.namespace)),
        "Secret" => ("secrets", format!("{}/{name}", target.namespace)),
        "Node" => ("nodes", name.to_owned()),
        _ => {
            let given = format!("{}, Kind={}", text("apiVersion"), text("kind"));
            return Err(Status::bad_request(format!("cannot bind token to object of type {given}")));
        }
    };
    let found = state.store.get(&crate::store::ResourceId::new("", plural), &key);
    let found = found.ok_or_else(|| Status::not_found("", plural, name))?.value();
    if uid.is_empty() || uid == object::uid(&found) {
        return Ok(());
    }
    let why = format!(
        "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    Err(Status::conflict("", plural, name, &why))
}

fn track(request: &mut Value, manager: &str, now: &str) {
    let Some(schema) = Schema::builtin("authentication.k8s.io", "v1", "TokenRequest") else { return };
    track_update(UpdateInput {
        live: None,
        new: request,
        manager,
        subresource: Some("token"),
        api_version: "authentication.k8s.io/v1",
        schema: &schema,
        ignored: &["status"],
        now,
    });
}

/// Writes a token: its claims, and a random part.
fn written(
    state: &mut State,
    account: &Value,
    audiences: &Value,
    (now, ends): (Timestamp, Timestamp),
) -> String {
    let (namespace, name) = (object::namespace(account), object::name(account));
    let claims = json!({
        "aud": audiences, "exp": ends.as_second(), "iat": now.as_second(), "nbf": now.as_second(), "iss": AUDIENCE,
        "jti": state.make_uid(), "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": object::uid(account)}},
    });
    let head = json!({"alg": "HS256", "kid": "watchkeeper"});
    let secret = [state.make_uid(), state.make_uid()].concat();
    [head.to_string(), claims.to_string(), secret].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

/// Finds the user of a token, if it is valid and its account exists.
pub(super) fn account_of(state: &State, token: &str) -> Option<User> {
    let user = holder(state, token)?;
    audiences(token).iter().any(|one| one == AUDIENCE).then_some(user)
}

/// Finds the user of a token, for any audience.
fn holder(state: &State, token: &str) -> Option<User> {
    let issued = state.issued.get(token).filter(|issued| state.clock.now() < issued.ends)?;
    let accounts = crate::store::ResourceId::new("", "serviceaccounts");
    let account = state.store.get(&accounts, &issued.account)?;
    let account = account.value();
    if object::uid(&account) != issued.uid {
        return None;
    }
    let (namespace, name) = (object::namespace(&account), object::name(&account));
    let mut groups = service_account_groups(namespace);
    groups.push(AUTHENTICATED.to_owned());
    let name = format!("system:serviceaccount:{namespace}:{name}");
    let id = format!("JTI={}", claims(token)["jti"].as_str().unwrap_or_default());
    let extra = BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), vec![id])]);
    Some(User::Named { name, groups, uid: issued.uid.clone(), extra })
}

/// The claims of a token.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    part.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Lists whom a token is for; the tokens of users are for this server.
fn audiences(token: &str) -> Vec<String> {
    let said = claims(token)["aud"].as_array().cloned().unwrap_or_else(|| vec![AUDIENCE.into()]);
    said.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Finds the user of a token, and which of the audiences it is valid for; by default this server.
///
/// # Errors
/// The reason why it is invalid, in a real server's words.
pub(super) fn reviewed(state: &State, token: &str, asked: &[&str]) -> Result<(User, Vec<String>), String> {
    const INVALID: &str = "invalid bearer token";
    let asked = if asked.is_empty() { &[AUDIENCE] } else { asked };
    let user = state.tokens.known(token);
    let is_account = user.is_none();
    let ended = state.issued.get(token).is_some_and(|issued| issued.ends <= state.clock.now());
    let expired = || format!("[{INVALID}, service account token has expired]");
    let missing = || if ended { expired() } else { INVALID.to_owned() };
    let user = user.or_else(|| holder(state, token)).ok_or_else(missing)?;
    let for_whom = audiences(token);
    let shared: Vec<String> = for_whom.iter().filter(|own| asked.contains(&own.as_str())).cloned().collect();
    if !shared.is_empty() {
        Ok((user, shared))
    } else if is_account {
        Err(format!(
            "[{INVALID}, token audiences {for_whom:?} is invalid for the target audiences {asked:?}]"
        ))
    } else {
        Err(INVALID.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::*;
    use crate::core::{ApiRequest, Core, CoreConfig, Reply};

    async fn ask(core: &Core, method: Method, path: &str, body: Value) -> (u16, Value) {
        let uri = format!("/api/v1/namespaces/default/serviceaccounts{path}").parse().expect("a uri");
        let body = bytes::Bytes::from(body.to_string());
        match core.serve(ApiRequest { method, uri, headers: HeaderMap::new(), body, user: User::Admin }).await
        {
            Reply::Full(response) => {
                (response.status().as_u16(), serde_json::from_slice(response.body()).expect("JSON"))
            }
            Reply::Stream { .. } => panic!("a stream where an answer was expected"),
        }
    }

    // A23, wire 606
    #[tokio::test(start_paused = true)]
    async fn a_token_is_its_accounts_until_it_expires_or_the_account_goes() {
        let core = Core::new(CoreConfig::default());
        assert_eq!(ask(&core, Method::POST, "/robot/token", json!({"spec": {}})).await.0, 404);
        ask(&core, Method::POST, "", json!({"metadata": {"name": "robot"}})).await;
        let asked = json!({"spec": {"expirationSeconds": 600}});
        let (code, answer) = ask(&core, Method::POST, "/robot/token", asked.clone()).await;
        assert_eq!((code, &answer["spec"]["audiences"]), (201, &json!([AUDIENCE])));
        let token = answer["status"]["token"].as_str().expect("a token").to_owned();
        let Some(User::Named { name, groups, .. }) = core.account_of(&token) else {
            panic!("nobody's token")
        };
        assert_eq!(name, "system:serviceaccount:default:robot");
        assert!(groups.contains(&"system:serviceaccounts:default".to_owned()));
        assert_eq!(core.account_of("other"), None);
        let claims =
            token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok()).expect("claims");
        let claims: Value = serde_json::from_slice(&claims).expect("JSON");
        assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
        tokio::time::advance(std::time::Duration::from_secs(601)).await;
        assert_eq!(core.account_of(&token), None, "it has expired");
        let (_, answer) = ask(&core, Method::POST, "/robot/token", asked).await;
        let token = answer["status"]["token"].as_str().expect("a token").to_owned();
        assert!(core.account_of(&token).is_some());
        ask(&core, Method::DELETE, "/robot", Value::Null).await;
        assert_eq!(core.account_of(&token), None, "its account is gone");
    }
}

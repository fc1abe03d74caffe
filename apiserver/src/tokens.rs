//! Authentication: which user a token is, and whom an administrator speaks for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, header};

use crate::core::User;
use crate::route::{RequestInfo, Shape};
use crate::status::Status;

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// The group of everyone who has shown a token.
const AUTHENTICATED: &str = "system:authenticated";

/// The tokens the server takes.
#[derive(Debug)]
pub(crate) struct Tokens {
    users: Mutex<BTreeMap<String, User>>,
}

impl Default for Tokens {
    /// Knows `admin-token` and `viewer-token`.
    fn default() -> Self {
        let users = [(token_of("admin"), User::Admin), (token_of("viewer"), named("viewer", Vec::new()))];
        Self { users: Mutex::new(BTreeMap::from(users)) }
    }
}

impl Tokens {
    /// Makes a user known and gives its token.
    pub(crate) fn issue(&self, user: &str) -> String {
        let token = token_of(user);
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(token.clone()).or_insert_with(|| named(user, Vec::new()));
        token
    }

    /// Finds the user a request is to be served as; `account` knows the tokens that the server has given out itself.
    ///
    /// # Errors
    ///
    /// 401 for a wrong token; 400 and 403 for impersonation that names nobody or isn't allowed.
    pub(crate) fn user(
        &self,
        headers: &HeaderMap,
        info: &RequestInfo,
        account: impl Fn(&str) -> Option<User>,
    ) -> Result<User, Status> {
        let user = self.bearer(headers, account)?;
        match Impersonation::of(headers)? {
            None => Ok(user),
            Some(wanted) if user == User::Admin => Ok(wanted.user()),
            Some(_) => Err(refused(&user, info)),
        }
    }

    /// Finds the user of a token; none is anonymous.
    fn bearer(&self, headers: &HeaderMap, account: impl Fn(&str) -> Option<User>) -> Result<User, Status> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = |(scheme, _): &(&str, &str)| scheme.eq_ignore_ascii_case("bearer");
        let token = value.and_then(|value| value.split_once(' ')).filter(bearer);
        match token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty()) {
            None => Ok(User::Anonymous),
            Some(token) => {
                let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
                users.get(token).cloned().or_else(|| account(token)).ok_or_else(Status::unauthorized)
            }
        }
    }
}

/// Gives a user's name as the API tells it.
pub(crate) fn name_of(user: &User) -> &str {
    match user {
        User::Admin => "admin",
        User::Named { name, .. } => name,
        User::Anonymous => "system:anonymous",
    }
}

fn token_of(user: &str) -> String {
    format!("{user}-token")
}

fn named(user: &str, mut groups: Vec<String>) -> User {
    groups.push(AUTHENTICATED.to_owned());
    User::Named { name: user.to_owned(), groups }
}

/// Whom the `Impersonate-…` headers name.
struct Impersonation {
    name: String,
    groups: Vec<String>,
}

impl Impersonation {
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let values = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let groups = values("impersonate-group");
        match values("impersonate-user").into_iter().next() {
            Some(name) => Ok(Some(Self { name, groups })),
            None if groups.is_empty() => Ok(None),
            None => {
                let message = format!(
                    "requested &user.DefaultInfo{{Name:\"\", UID:\"\", Groups:[]string{{{}}}, \
                     Extra:map[string][]string(nil)}} without impersonating a user name",
                    groups.iter().map(|group| format!("{group:?}")).collect::<Vec<_>>().join(", ")
                );
                Err(Status::bad_request(message))
            }
        }
    }

    fn user(self) -> User {
        if self.groups.iter().any(|group| group == MASTERS) {
            User::Admin
        } else {
            named(&self.name, self.groups)
        }
    }
}

/// 403 for a user who may not speak for others.
fn refused(user: &User, info: &RequestInfo) -> Status {
    let name = name_of(user);
    let Some(verb) = info.verb.filter(|_| info.shape != Shape::Other) else {
        return Status::forbidden_path(name, "impersonate", &info.path);
    };
    let place = match &info.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let (group, resource) = (&info.group, &info.resource);
    let what = format!(
        "User {name:?} cannot impersonate-on:user-info:{verb} resource {resource:?} in API group {group:?} {place}"
    );
    Status::forbidden(group, resource, info.name.as_deref().unwrap_or_default(), &what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(headers: &[(&'static str, &str)]) -> Result<User, Status> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let uri = "/api/v1/namespaces/a/configmaps".parse().unwrap();
        Tokens::default().user(&map, &RequestInfo::of(&http::Method::GET, &uri), |_| None)
    }

    #[test]
    fn a_token_is_a_user_and_none_is_anonymous() {
        assert_eq!(user(&[("authorization", "Bearer admin-token")]), Ok(User::Admin));
        assert_eq!(user(&[("authorization", "Bearer viewer-token")]), Ok(named("viewer", Vec::new())));
        assert_eq!(user(&[]), Ok(User::Anonymous));
        assert_eq!(user(&[("authorization", "Basic YTpi")]), Ok(User::Anonymous));
        assert_eq!(user(&[("authorization", "Bearer admin")]), Err(Status::unauthorized()));
    }

    #[test]
    fn an_administrator_speaks_for_others() {
        let admin = ("authorization", "Bearer admin-token");
        let jane = user(&[admin, ("impersonate-user", "jane"), ("impersonate-group", "g")]);
        assert_eq!(jane, Ok(named("jane", vec!["g".to_owned()])));
        assert_eq!(
            user(&[admin, ("impersonate-user", "jane"), ("impersonate-group", MASTERS)]),
            Ok(User::Admin)
        );
        assert_eq!(user(&[admin, ("impersonate-group", "g")]).unwrap_err().code, 400);
    }

    #[test]
    fn others_speak_for_nobody() {
        let refused =
            user(&[("authorization", "Bearer viewer-token"), ("impersonate-user", "admin")]).unwrap_err();
        assert_eq!(
            refused.message,
            "configmaps is forbidden: User \"viewer\" cannot impersonate-on:user-info:list resource \"configmaps\" \
             in API group \"\" in the namespace \"a\""
        );
    }
}

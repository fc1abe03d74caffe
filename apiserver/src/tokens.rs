//! Authentication: which user a token is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::{HeaderMap, header};

use crate::identity::{AUTHENTICATED, User};
use crate::status::Status;

/// The tokens the server takes.
#[derive(Debug)]
pub(crate) struct Tokens {
    users: Mutex<BTreeMap<String, User>>,
}

impl Default for Tokens {
    /// Knows `admin-token` and `viewer-token`.
    fn default() -> Self {
        let users = [(token_of("admin"), User::Admin), (token_of("viewer"), named("viewer"))];
        Self { users: Mutex::new(BTreeMap::from(users)) }
    }
}

impl Tokens {
    /// Registers a user and returns its token.
    pub(crate) fn issue(&self, user: &str) -> String {
        let token = token_of(user);
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(token.clone()).or_insert_with(|| named(user));
        token
    }

    /// Finds the user of a request's token; none is anonymous. `account` knows the tokens that the server has given
    /// out itself.
    ///
    /// # Errors
    ///
    /// 401 for a wrong token.
    pub(crate) fn user(
        &self,
        headers: &HeaderMap,
        account: impl Fn(&str) -> Option<User>,
    ) -> Result<User, Status> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = |(scheme, _): &(&str, &str)| scheme.eq_ignore_ascii_case("bearer");
        let token = value.and_then(|value| value.split_once(' ')).filter(bearer);
        match token.map(|(_, token)| token.trim()).filter(|token| !token.is_empty()) {
            None => Ok(User::Anonymous),
            Some(token) => self.known(token).or_else(|| account(token)).ok_or_else(Status::unauthorized),
        }
    }

    /// Finds the user of a token.
    pub(crate) fn known(&self, token: &str) -> Option<User> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }
}

fn token_of(user: &str) -> String {
    format!("{user}-token")
}

fn named(user: &str) -> User {
    User::named(user, vec![AUTHENTICATED.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(headers: &[(&'static str, &str)]) -> Result<User, Status> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        Tokens::default().user(&map, |_| None)
    }

    #[test]
    fn a_token_is_a_user_and_none_is_anonymous() {
        assert_eq!(user(&[("authorization", "Bearer admin-token")]), Ok(User::Admin));
        assert_eq!(user(&[("authorization", "Bearer viewer-token")]), Ok(named("viewer")));
        assert_eq!(user(&[]), Ok(User::Anonymous));
        assert_eq!(user(&[("authorization", "Basic YTpi")]), Ok(User::Anonymous));
        assert_eq!(user(&[("authorization", "Bearer admin")]), Err(Status::unauthorized()));
    }
}

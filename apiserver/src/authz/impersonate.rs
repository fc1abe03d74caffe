//! Impersonation: acting as another user, if the roles allow it.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::attributes::Attributes;
use super::decide::check;
use crate::identity::{
    ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED, User, service_account, service_account_groups,
};
use crate::route::decode;
use crate::state::State;
use crate::status::Status;

/// The prefix of the headers with extra information about a user.
const EXTRA: &str = "impersonate-extra-";

/// With at least this many values, one permission for all of them is looked for first.
const MANY: usize = 4;

/// The most users of whom it is remembered how they impersonate.
const MOST_REMEMBERED: usize = 10_000;

/// Whom the `Impersonate-…` headers name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedUser {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl WantedUser {
    /// Reads the headers; `None` if there are none.
    ///
    /// # Errors
    /// 400 if they do not name a user.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Status> {
        let values = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let first = |name: &str| values(name).into_iter().next().unwrap_or_default();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys().filter(|name| name.as_str().starts_with(EXTRA)) {
            let key = decode(&name.as_str()[EXTRA.len()..]);
            extra.entry(key).or_default().extend(values(name.as_str()));
        }
        let (name, uid) = (first("impersonate-user"), first("impersonate-uid"));
        let wanted = Self { name, uid, groups: values("impersonate-group"), extra };
        if !wanted.name.is_empty() {
            return Ok(Some(wanted));
        }
        if wanted == Self::default() {
            return Ok(None);
        }
        Err(Status::bad_request(format!("requested {} without impersonating a user name", wanted.in_go())))
    }

    /// Writes it as Go writes a struct.
    fn in_go(&self) -> String {
        let quoted = |list: &[String]| {
            if list.is_empty() {
                return "[]string(nil)".to_owned();
            }
            let quoted: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
            format!("[]string{{{}}}", quoted.join(", "))
        };
        let extra = if self.extra.is_empty() {
            "map[string][]string(nil)".to_owned()
        } else {
            let pairs: Vec<String> =
                self.extra.iter().map(|(key, values)| format!("{key:?}:{}", quoted(values))).collect();
            format!("map[string][]string{{{}}}", pairs.join(", "))
        };
        format!(
            "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:{extra}}}",
            self.name,
            self.uid,
            quoted(&self.groups)
        )
    }

    fn only_named(&self) -> bool {
        self.uid.is_empty() && self.groups.is_empty() && self.extra.is_empty()
    }

    fn node(&self) -> Option<&str> {
        self.name.strip_prefix("system:node:").filter(|node| !node.is_empty())
    }

    /// Returns the modes that can be tried, by the word in their verbs; the last is the old one.
    fn modes(&self) -> Vec<ImpersonationMode> {
        let mut modes = Vec::new();
        match (self.node(), service_account(&self.name)) {
            (Some(_), _) if self.only_named() => modes.push(ImpersonationMode::Constrained("arbitrary-node")),
            (_, Some(_)) if self.only_named() => modes.push(ImpersonationMode::Constrained("serviceaccount")),
            (None, None) => modes.push(ImpersonationMode::Constrained("user-info")),
            _ => {}
        }
        modes.push(ImpersonationMode::Legacy);
        modes
    }
}

/// A way to impersonate, each with its own permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpersonationMode {
    /// `impersonate:MODE` and `impersonate-on:MODE:VERB`.
    Constrained(&'static str),
    /// `impersonate`.
    Legacy,
}

/// Returns the user to continue as.
///
/// The way that worked last for a user is tried first, and a refusal is in the words of the first that was tried.
///
/// # Errors
/// 403 if the user is not allowed to.
pub(crate) fn impersonate(
    state: &mut State,
    user: &User,
    wanted: &WantedUser,
    request: &Attributes,
) -> Result<User, Status> {
    let mut modes = wanted.modes();
    if state.old_impersonators.contains(user.name()) {
        modes.rotate_right(1);
    }
    let mut first = None;
    for mode in modes {
        match try_mode(state, user, wanted, request, mode) {
            Ok(()) => {
                remember(state, user, mode);
                return Ok(become_user(wanted, mode));
            }
            Err(refused) => drop(first.get_or_insert(refused)),
        }
    }
    Err(first.unwrap_or_else(|| request.forbidden(user.name(), "")))
}

fn remember(state: &mut State, user: &User, mode: ImpersonationMode) {
    let known = &mut state.old_impersonators;
    if mode != ImpersonationMode::Legacy {
        known.remove(user.name());
    } else if known.len() < MOST_REMEMBERED {
        known.insert(user.name().to_owned());
    }
}

fn try_mode(
    state: &State,
    user: &User,
    wanted: &WantedUser,
    request: &Attributes,
    mode: ImpersonationMode,
) -> Result<(), Status> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let (verb, group) = match mode {
        ImpersonationMode::Legacy => ("impersonate".to_owned(), ""),
        ImpersonationMode::Constrained(word) => {
            let verb = format!("impersonate-on:{word}:{}", request.verb);
            check(state, user, &Attributes { verb, ..request.clone() })?;
            (format!("impersonate:{word}"), AUTHENTICATION)
        }
    };
    let asked = |group: &str, resource: &str, name: &str| Attributes {
        verb: verb.clone(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    let named = match (service_account(&wanted.name), wanted.node()) {
        (Some((namespace, name)), _) => {
            Attributes { namespace: namespace.to_owned(), ..asked(group, "serviceaccounts", name) }
        }
        (None, Some(node)) if mode != ImpersonationMode::Legacy => asked(group, "nodes", node),
        _ => asked(group, "users", &wanted.name),
    };
    check(state, user, &named)?;
    if !wanted.uid.is_empty() {
        check(state, user, &asked(AUTHENTICATION, "uids", &wanted.uid))?;
    }
    check_groups(state, user, wanted, mode, |name| asked(group, "groups", name))?;
    let extra = |key: &str, value: &str| Attributes {
        subresource: key.to_owned(),
        ..asked(AUTHENTICATION, "userextras", value)
    };
    let many = wanted.extra.values().map(Vec::len).sum::<usize>().max(wanted.extra.len()) >= MANY;
    if many && mode != ImpersonationMode::Legacy && check(state, user, &extra("*", "*")).is_ok() {
        return Ok(());
    }
    for (key, values) in &wanted.extra {
        for value in values {
            check(state, user, &extra(key, value))?;
        }
    }
    Ok(())
}

fn check_groups(
    state: &State,
    user: &User,
    wanted: &WantedUser,
    mode: ImpersonationMode,
    asked: impl Fn(&str) -> Attributes,
) -> Result<(), Status> {
    if mode != ImpersonationMode::Legacy {
        if wanted.groups.iter().any(String::is_empty) {
            let why = "impersonating the empty string group is not allowed";
            return Err(asked("").forbidden(user.name(), why));
        }
        if wanted.groups.iter().any(|group| group == MASTERS) {
            let why = "impersonating the system:masters group is not allowed";
            return Err(asked(MASTERS).forbidden(user.name(), why));
        }
        if wanted.groups.len() >= MANY && check(state, user, &asked("*")).is_ok() {
            return Ok(());
        }
    }
    wanted.groups.iter().try_for_each(|group| check(state, user, &asked(group)))
}

fn become_user(wanted: &WantedUser, mode: ImpersonationMode) -> User {
    let mut groups = wanted.groups.clone();
    if let (Some((namespace, _)), true) = (service_account(&wanted.name), groups.is_empty()) {
        groups = service_account_groups(namespace);
    } else if wanted.node().is_some() && mode != ImpersonationMode::Legacy {
        groups = vec!["system:nodes".to_owned()];
    }
    let has = |group: &str| groups.iter().any(|own| own == group);
    let own = if wanted.name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
    if !has(own) && !has(UNAUTHENTICATED) {
        groups.push(own.to_owned());
    }
    User::Named { name: wanted.name.clone(), groups, uid: wanted.uid.clone(), extra: wanted.extra.clone() }
}

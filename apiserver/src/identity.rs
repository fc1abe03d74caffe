//! Identities: the users that send requests.

use std::collections::BTreeMap;

/// The group whose members may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// The group of all users with a token.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of all users without a token.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of a user without a token.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// The sender of a request, as far as authentication has determined it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// May do everything.
    Admin,
    /// A user whose permissions are looked up.
    Named {
        /// The user's name, e.g. `viewer`.
        name: String,
        /// The groups of the user.
        groups: Vec<String>,
        /// The uid; may be empty.
        uid: String,
        /// Extra information about the user.
        extra: BTreeMap<String, Vec<String>>,
    },
    /// Sent no token.
    Anonymous,
}

impl User {
    /// Makes a user of a name and groups.
    pub(crate) fn named(name: impl Into<String>, groups: Vec<String>) -> Self {
        let name = name.into();
        Self::Named { uid: name.clone(), name, groups, extra: BTreeMap::new() }
    }

    /// Returns the name as messages have it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Admin => "admin",
            Self::Named { name, .. } => name,
            Self::Anonymous => ANONYMOUS,
        }
    }

    /// Returns the uid.
    pub(crate) fn uid(&self) -> &str {
        match self {
            Self::Named { uid, .. } => uid,
            Self::Admin | Self::Anonymous => self.name(),
        }
    }

    /// Returns the groups.
    pub(crate) fn groups(&self) -> Vec<&str> {
        match self {
            Self::Admin => vec![MASTERS, AUTHENTICATED],
            Self::Named { groups, .. } => groups.iter().map(String::as_str).collect(),
            Self::Anonymous => vec![UNAUTHENTICATED],
        }
    }

    /// Returns whether it is in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        match self {
            Self::Admin => group == MASTERS || group == AUTHENTICATED,
            Self::Named { groups, .. } => groups.iter().any(|own| own == group),
            Self::Anonymous => group == UNAUTHENTICATED,
        }
    }

    /// Returns extra information about the user.
    pub(crate) fn extra(&self) -> Option<&BTreeMap<String, Vec<String>>> {
        match self {
            Self::Named { extra, .. } if !extra.is_empty() => Some(extra),
            _ => None,
        }
    }

    /// Returns whether it may do everything, whatever roles say.
    pub(crate) fn is_superuser(&self) -> bool {
        match self {
            Self::Admin => true,
            Self::Named { groups, .. } => groups.iter().any(|group| group == MASTERS),
            Self::Anonymous => false,
        }
    }
}

/// Splits the name of a service account into namespace and name.
pub(crate) fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// Returns the groups of the service accounts of a namespace.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

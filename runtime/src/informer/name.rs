//! How messages, metrics and pages name what is watched.

use crate::object::Kind;

/// Names a kind as one word; of another cluster than the manager's own: `hub/configmaps`.
pub(crate) fn name_of(kind: &Kind, cluster: Option<&str>) -> String {
    match cluster {
        None => kind.to_string(),
        Some(cluster) => format!("{cluster}/{kind}"),
    }
}

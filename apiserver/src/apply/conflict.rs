//! Fields that another manager owns.

use std::collections::BTreeMap;

use super::managers::Identity;
use super::set::{FieldSet, show};

/// One field that an apply may not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Shows who owns the field, such as `"m" using v1`.
    pub(crate) manager: String,
    /// Shows the field, such as `.spec.replicas`.
    pub(crate) field: String,
}

impl Conflict {
    /// Writes the message of the conflict's cause.
    pub(crate) fn text(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// Lists conflicts by manager, then by field.
pub(super) fn list(conflicts: &BTreeMap<Identity, FieldSet>) -> Vec<Conflict> {
    let of_manager = |(identity, fields): (&Identity, &FieldSet)| {
        let manager = identity.show();
        let conflicts = fields
            .paths()
            .into_iter()
            .map(move |path| Conflict { manager: manager.clone(), field: show(&path) });
        conflicts.collect::<Vec<_>>()
    };
    conflicts.iter().flat_map(of_manager).collect()
}

/// Writes the message of a refused apply.
pub(super) fn message(conflicts: &[Conflict]) -> String {
    match conflicts {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.text(), one.field),
        many => {
            let mut text = format!("Apply failed with {} conflicts: ", many.len());
            for (index, conflict) in many.iter().enumerate() {
                let is_first = index == 0 || many[index - 1].manager != conflict.manager;
                if is_first {
                    let separator = if index == 0 { "" } else { "\n" };
                    text.push_str(&format!("{separator}conflicts with {}:", conflict.manager));
                }
                text.push_str(&format!("\n- {}", conflict.field));
            }
            text
        }
    }
}

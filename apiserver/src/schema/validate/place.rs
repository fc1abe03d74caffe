//! The place of a value in an object.

/// Names the place of a value.
#[derive(Clone, Copy)]
pub(super) struct ValuePlace<'a> {
    /// Leads to the checked root from outside of it, such as `status`.
    pub(super) prefix: &'a str,
    /// Leads from the root to the value, such as `conditions[0].type`.
    pub(super) name: &'a str,
}

impl ValuePlace<'_> {
    /// Names the field of an error here; the root has no path.
    pub(super) fn field(self) -> String {
        let path = join(self.prefix, self.name);
        if path.is_empty() { "<nil>".to_owned() } else { path }
    }

    /// Names the field of an error in a child of this value.
    pub(super) fn child(self, name: &str) -> String {
        join(&join(self.prefix, self.name), name)
    }

    /// Names the value in an error's text.
    pub(super) fn body(self) -> String {
        format!("{} in body", self.name)
    }
}

/// Joins two parts of a path.
pub(in crate::schema) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else if name.is_empty() || name.starts_with('[') {
        format!("{parent}{name}")
    } else {
        format!("{parent}.{name}")
    }
}

//! A row of the table of built-in kinds.

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each in one namespace.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
}

/// What increases `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Nothing: the kind has no generation.
    None,
    /// A change of the spec.
    Spec,
    /// A change of the spec or of the annotations.
    SpecAndAnnotations,
    /// A change of anything but metadata and status.
    Body,
    /// Nothing: it is one from the start.
    One,
}

/// The condition of a PUT on the object that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnPut {
    /// The object must be there.
    Lax,
    /// The object must be there, and its version be named.
    WantsVersion,
    /// The object is created if it is absent.
    Creates,
    /// As `Creates`, and the version of an existing object must be given.
    CreatesAndWantsVersion,
}

/// One built-in kind.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    /// The group, empty for core.
    pub(crate) group: &'static str,
    /// The version.
    pub(crate) version: &'static str,
    /// The kind.
    pub(crate) kind: &'static str,
    /// The plural.
    pub(crate) plural: &'static str,
    /// Short names.
    pub(crate) short: &'static [&'static str],
    /// Categories.
    pub(crate) categories: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub(crate) reach: Reach,
    /// The subresources that read and write the object itself.
    pub(crate) subresources: &'static [&'static str],
    /// What increases the generation.
    pub(crate) generation: Generation,
    /// The condition of a PUT.
    pub(crate) on_put: OnPut,
    /// The fields selectors may name besides name and namespace.
    pub(crate) fields: &'static [&'static str],
    /// The fields of an empty object besides metadata, as JSON; empty to follow the schema.
    pub(crate) empty: &'static str,
}

/// Builds a row with the values that most kinds share.
pub(super) const fn row(group: &'static str, kind: &'static str, plural: &'static str) -> BuiltIn {
    BuiltIn {
        group,
        version: "v1",
        kind,
        plural,
        short: &[],
        categories: &[],
        reach: Reach::Namespaced,
        subresources: &[],
        generation: Generation::None,
        on_put: OnPut::Lax,
        fields: &[],
        empty: "{}",
    }
}

pub(super) const STATUS: &[&str] = &["status"];
pub(super) const SCALE: &[&str] = &["scale", "status"];
pub(super) const ALL: &[&str] = &["all"];

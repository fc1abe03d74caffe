//! A row of the table of built-in kinds.

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each in one namespace.
    Namespaced,
    /// In none.
    Cluster,
}

/// What makes `metadata.generation` grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// Nothing: the kind has none.
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

/// What PUT asks of the object it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnPut {
    /// The object must be there.
    Lax,
    /// The object must be there, and its version be named.
    WantsVersion,
    /// The object is created if it is absent.
    Creates,
    /// As `Creates`, and an existing object's version must be named.
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
    /// What makes the generation grow.
    pub(crate) generation: Generation,
    /// What PUT asks.
    pub(crate) on_put: OnPut,
    /// The fields selectors may name besides name and namespace.
    pub(crate) fields: &'static [&'static str],
    /// What an empty object shows besides metadata, as JSON; empty for what the schema says.
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

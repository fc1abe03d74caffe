//! The expansion needs no import, no prelude and no name of its own.

use std::borrow::Cow;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use watchkeeper::informer::Watched;

/// Where a user keeps watchkeeper under another name.
mod facade {
    pub(crate) use ::watchkeeper as wk;
}

// M4
mod bare {
    //! A hand-written root where nothing of the prelude is in sight.
    #![no_implicit_prelude]

    #[derive(
        ::watchkeeper::Informer,
        ::std::clone::Clone,
        ::std::fmt::Debug,
        ::serde::Serialize,
        ::serde::Deserialize,
    )]
    #[informer(crate = super::facade::wk)]
    pub(crate) struct Settings {
        pub(crate) metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        #[informer(index)]
        pub(crate) owner: ::std::string::String,
        #[informer(index)]
        pub(crate) ports: ::std::option::Option<::std::vec::Vec<u16>>,
        #[informer(index)]
        pub(crate) r#type: ::std::boxed::Box<str>,
    }
}

// M4
mod shadowed {
    //! Names of the prelude, and of the expansion, mean something else here.
    #![expect(non_camel_case_types, dead_code, unused_macros, reason = "they are here to be in the way")]

    pub(crate) struct Vec;
    pub(crate) struct Option;
    pub(crate) struct Arc;
    pub(crate) struct Clone;
    pub(crate) struct Debug;
    pub(crate) struct From;
    pub(crate) struct Into;
    pub(crate) struct Lister;
    pub(crate) struct Watched;
    pub(crate) struct IndexValue;
    pub(crate) struct watchkeeper;
    macro_rules! vec {
        () => {
            compile_error!("the user's own");
        };
    }

    #[derive(
        ::watchkeeper::Informer,
        ::std::clone::Clone,
        ::std::fmt::Debug,
        ::serde::Serialize,
        ::serde::Deserialize,
    )]
    pub(crate) struct Gate {
        pub(crate) metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        #[informer(index)]
        pub(crate) open: bool,
        #[informer(index)]
        pub(crate) keys: ::std::vec::Vec<::std::string::String>,
    }
}

macro_rules! resource {
    ($ty:ty, $kind:literal, $plural:literal) => {
        impl kube::Resource for $ty {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "example.dev".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(bare::Settings, "Settings", "settings");
resource!(shadowed::Gate, "Gate", "gates");

macro_rules! custom_resource {
    ($name:ident, $field:ident: $ty:ty) => {
        #[derive(
            kube::CustomResource,
            watchkeeper::Informer,
            Clone,
            Debug,
            serde::Serialize,
            serde::Deserialize,
            schemars::JsonSchema,
        )]
        #[kube(group = "example.dev", version = "v1", kind = "Minted", namespaced)]
        struct $name {
            #[informer(index)]
            $field: $ty,
            #[informer(index)]
            other: Shade,
        }
    };
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Shade(String);

impl std::fmt::Display for Shade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

custom_resource!(MintedSpec, value: Option<String>);

// M4
#[test]
fn a_hand_written_root_without_a_prelude_is_watched() {
    let names: Vec<_> = bare::Settings::indexes().iter().map(|index| index.name().to_owned()).collect();
    assert_eq!(names, ["by_owner", "by_ports", "by_type"]);
    assert_eq!(bare::Settings::kind_of(&()).plural, "settings");
}

// M4
#[test]
fn shadowed_names_are_not_used() {
    assert_eq!(shadowed::Gate::indexes().len(), 2);
}

// M4
#[test]
fn a_struct_that_a_macro_wrote_is_watched() {
    assert_eq!(Minted::indexes().len(), 2);
}

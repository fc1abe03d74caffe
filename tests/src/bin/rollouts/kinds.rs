//! A website in three versions, as three releases of the operator know it.

use watchkeeper::prelude::*;

/// What the operator needs of a website, in any version.
pub(crate) trait Site: Resource<DynamicType = ()> {
    fn replicas(&self) -> i32;
    fn replicas_mut(&mut self) -> &mut i32;
}

macro_rules! site {
    ($kind:ty, $field:ident) => {
        impl Site for $kind {
            fn replicas(&self) -> i32 {
                self.spec.$field
            }

            fn replicas_mut(&mut self) -> &mut i32 {
                &mut self.spec.$field
            }
        }
    };
}

/// Converts between a hub and `v1beta1`, in both directions.
macro_rules! converts_v1beta1 {
    () => {
        impl From<v1beta1::Website> for Website {
            fn from(v1beta1::Website { metadata, spec }: v1beta1::Website) -> Self {
                Self {
                    metadata,
                    spec: WebsiteSpec { scale: spec.replicas, domain: spec.domain, paused: false },
                }
            }
        }

        impl From<Website> for v1beta1::Website {
            fn from(Website { metadata, spec }: Website) -> Self {
                Self { metadata, spec: v1beta1::WebsiteSpec { replicas: spec.scale, domain: spec.domain } }
            }
        }
    };
}

/// The first release knows this version alone; the second one still converts it.
pub(crate) mod v1alpha1 {
    use super::*;

    #[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rollouts.example.dev", version = "v1alpha1", kind = "Website", namespaced)]
    pub(crate) struct WebsiteSpec {
        #[serde(default)]
        pub(crate) replicas: i32,
    }

    site!(Website, replicas);
}

pub(crate) mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rollouts.example.dev", version = "v1beta1", kind = "Website", namespaced)]
    pub(crate) struct WebsiteSpec {
        #[serde(default)]
        pub(crate) replicas: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) domain: Option<String>,
    }
}

/// The hub of the second release.
pub(crate) mod v1 {
    use super::*;

    #[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rollouts.example.dev", version = "v1", kind = "Website", namespaced)]
    #[informer(versions(v1beta1::Website, v1alpha1::Website))]
    pub(crate) struct WebsiteSpec {
        #[serde(default)]
        pub(crate) scale: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) domain: Option<String>,
        #[serde(default)]
        pub(crate) paused: bool,
    }

    site!(Website, scale);

    impl From<v1alpha1::Website> for Website {
        fn from(v1alpha1::Website { metadata, spec }: v1alpha1::Website) -> Self {
            Self { metadata, spec: WebsiteSpec { scale: spec.replicas, domain: None, paused: false } }
        }
    }

    impl From<Website> for v1alpha1::Website {
        fn from(Website { metadata, spec }: Website) -> Self {
            Self { metadata, spec: v1alpha1::WebsiteSpec { replicas: spec.scale } }
        }
    }

    converts_v1beta1!();
}

/// The hub of the third release, which has left `v1alpha1` out.
pub(crate) mod last {
    use super::*;

    #[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "rollouts.example.dev", version = "v1", kind = "Website", namespaced)]
    #[informer(versions(v1beta1::Website))]
    pub(crate) struct WebsiteSpec {
        #[serde(default)]
        pub(crate) scale: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) domain: Option<String>,
        #[serde(default)]
        pub(crate) paused: bool,
    }

    site!(Website, scale);

    converts_v1beta1!();
}

//! A kind with three versions, for tests.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The hub.
#[derive(CustomResource, crate::Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "shops.dev", version = "v1", kind = "Shop", namespaced)]
#[informer(crate = crate, versions(v1beta1::Shop, v1alpha1::Shop))]
pub(crate) struct ShopSpec {
    pub(crate) size: Size,
    pub(crate) ports: Vec<Port>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Size {
    pub(crate) least: i32,
    pub(crate) most: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) app: Option<String>,
}

/// A version that has a field of its own, and whose conversion passes no metadata on.
pub(crate) mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "shops.dev", version = "v1beta1", kind = "Shop", namespaced)]
    pub(crate) struct ShopSpec {
        pub(crate) size: Size,
        pub(crate) ports: Vec<Port>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) note: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) legacy: Option<String>,
    }

    impl From<Shop> for super::Shop {
        fn from(shop: Shop) -> Self {
            let ShopSpec { size, ports, note, .. } = shop.spec;
            Self::new("", super::ShopSpec { size, ports, note })
        }
    }

    impl From<super::Shop> for Shop {
        fn from(shop: super::Shop) -> Self {
            let super::ShopSpec { size, ports, note } = shop.spec;
            Self::new("", ShopSpec { size, ports, note, legacy: None })
        }
    }
}

/// A version that knows less.
pub(crate) mod v1alpha1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "shops.dev", version = "v1alpha1", kind = "Shop", namespaced)]
    pub(crate) struct ShopSpec {
        pub(crate) size: i32,
        pub(crate) ports: Vec<OldPort>,
    }

    #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    pub(crate) struct OldPort {
        pub(crate) name: String,
        pub(crate) port: u16,
    }

    impl From<Shop> for super::Shop {
        fn from(shop: Shop) -> Self {
            let port = |port: OldPort| Port { name: port.name, port: port.port, app: None };
            let (size, ports) = (shop.spec.size, shop.spec.ports.into_iter().map(port).collect());
            let spec = super::ShopSpec { size: Size { least: size, most: size }, ports, note: None };
            Self { metadata: shop.metadata, spec }
        }
    }

    impl From<super::Shop> for Shop {
        fn from(shop: super::Shop) -> Self {
            assert_ne!(shop.spec.note.as_deref(), Some("panic"));
            let port = |port: Port| OldPort { name: port.name, port: port.port };
            let ports = shop.spec.ports.into_iter().map(port).collect();
            Self { metadata: shop.metadata, spec: ShopSpec { size: shop.spec.size.least, ports } }
        }
    }
}

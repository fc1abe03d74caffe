//! Names of the user's that resemble those of the expansion.

use std::sync::Arc;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{Informer, informer::Watched, list_watch::RawObject, store::Indexer};

/// A kind named as the part of a compact object could be.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Part", namespaced)]
#[informer(compact)]
struct PartSpec {
    #[informer(index)]
    maker: String,
}

/// A kind named as the indexed fields of a compact object could be.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Fields", plural = "fields")]
#[informer(compact)]
struct FieldsSpec {
    #[informer(index)]
    #[serde(default = "value_owner")]
    owner: String,
}

fn value_owner() -> String {
    "nobody".to_owned()
}

/// A kind whose narrowed lister must not be named as the lister of the next one.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Tenant", namespaced)]
struct TenantSpec {
    #[informer(index)]
    owner: String,
}

/// The next one.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "TenantNamespace", namespaced)]
struct TenantNamespaceSpec {
    #[informer(index)]
    tenant: String,
    #[informer(index = "by_index_value")]
    index: i32,
}

fn compact<W: Watched<DynamicType = ()>>(object: &str) -> W::Lister {
    let indexer = Indexer::with_indexes(W::indexes()).expect("look-ups have names of their own");
    indexer.upsert_raw(RawObject::new(object).expect("it has a name"));
    indexer.lister().into()
}

// M4
#[test]
fn kinds_named_as_what_is_generated_are_watched() {
    let parts: PartLister =
        compact::<Part>(r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"maker":"me"}}"#);
    assert_eq!(parts.by_maker("me").len(), 1);
    let fields: FieldsLister = compact::<Fields>(r#"{"metadata":{"name":"a"},"spec":{}}"#);
    assert_eq!(fields.by_owner("nobody").len(), 1);
}

// M4
#[test]
fn a_kind_and_its_namespace_stand_side_by_side() {
    let tenants = Indexer::<Tenant>::with_indexes(Tenant::indexes()).unwrap();
    let mut tenant = Tenant::new("a", TenantSpec { owner: "me".into() });
    tenant.metadata.namespace = Some("shop".into());
    tenants.replace([Arc::new(tenant)]);
    let lister: TenantLister = tenants.lister().into();
    let narrowed: TenantListerInNamespace = lister.namespace("shop");
    assert_eq!(narrowed.by_owner("me").len(), 1);

    let spaces = Indexer::<TenantNamespace>::with_indexes(TenantNamespace::indexes()).unwrap();
    let spec = TenantNamespaceSpec { tenant: "a".into(), index: 3 };
    spaces.replace([Arc::new(TenantNamespace::new("b", spec))]);
    let lister: TenantNamespaceLister = spaces.lister().into();
    assert_eq!((lister.by_tenant("a").len(), lister.by_index_value(3).len()), (1, 1));
    assert_eq!(lister.by_index("by_tenant", &"a".into()).len(), 1);
}

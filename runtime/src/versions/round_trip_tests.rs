//! The round trip finds what conversions lose, and nothing else.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{super::testing::Shop, *};

#[test]
fn versions_that_keep_everything_pass() {
    let trips = RoundTrip::<Shop>::new().objects(100).only_in("v1beta1", "spec.legacy").check();
    assert_eq!(trips, 3 * 2 * 100);
}

#[test]
fn a_field_that_the_hub_lacks_is_named() {
    let loss = RoundTrip::<Shop>::new().objects(50).run().unwrap_err();
    assert!(loss.starts_with("v1beta1 to v1 and back loses spec.legacy: it was \""), "{loss}");
    assert!(loss.contains("allow it by `.only_in(\"v1beta1\", \"spec.legacy\")`"), "{loss}");
}

/// A hub with all shapes that a schema has.
#[derive(CustomResource, crate::Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "boxes.dev", version = "v2", kind = "Crate", status = "CrateStatus")]
#[informer(crate = crate, versions(older::Crate))]
struct CrateSpec {
    #[serde(flatten)]
    shape: Shape,
    content: std::collections::BTreeMap<String, Vec<Option<i64>>>,
    tags: std::collections::BTreeSet<String>,
    weight: Option<f64>,
    sort: Sort,
    #[schemars(range(min = 3, max = 5))]
    count: u8,
    #[serde(default)]
    open: bool,
    made: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Shape {
    length: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Sort {
    Flat { colour: Option<String> },
    Deep(Shape),
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct CrateStatus {
    full: bool,
}

mod older {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "boxes.dev", version = "v1", kind = "Crate", status = "CrateStatus")]
    pub(super) struct CrateSpec {
        #[serde(flatten)]
        shape: Shape,
        content: std::collections::BTreeMap<String, Vec<Option<i64>>>,
        tags: Vec<String>,
        weight: Option<f64>,
        sort: Sort,
        #[schemars(range(min = 3, max = 5))]
        count: u8,
        #[serde(default)]
        open: bool,
        made: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    }

    impl From<Crate> for super::Crate {
        fn from(old: Crate) -> Self {
            let CrateSpec { shape, content, tags, weight, sort, count, open, made } = old.spec;
            // Planted: a rare value changes.
            let count = if count == 5 && open { 4 } else { count };
            let tags = tags.into_iter().collect();
            let spec = super::CrateSpec { shape, content, tags, weight, sort, count, open, made };
            Self { metadata: old.metadata, spec, status: old.status }
        }
    }

    impl From<super::Crate> for Crate {
        fn from(new: super::Crate) -> Self {
            let super::CrateSpec { shape, content, tags, weight, sort, count, open, made } = new.spec;
            let tags = tags.into_iter().collect();
            let spec = CrateSpec { shape, content, tags, weight, sort, count, open, made };
            Self { metadata: new.metadata, spec, status: new.status }
        }
    }
}

#[test]
fn a_planted_loss_is_found_with_its_path_and_both_values() {
    let loss = RoundTrip::<Crate>::new().run().unwrap_err();
    assert!(loss.contains("v2 to v1 and back loses spec.count: it was 5, and is 4"), "{loss}");
}

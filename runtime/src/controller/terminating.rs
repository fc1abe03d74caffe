//! The last readable state of an object whose latest state says no more than that it is to go.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use crate::{list_watch::Identity, object::Object};

/// Gives an earlier state the metadata of a later one, if that says the object is being deleted.
pub(crate) fn with_metadata_of<K: Object>(kept: &K, later: &Identity) -> Option<K> {
    let deletion: Timestamp = later.deletion_timestamp.as_deref()?.parse().ok()?;
    if kept.meta().uid != later.uid {
        return None;
    }
    let mut object = kept.clone();
    let meta = object.meta_mut();
    meta.resource_version.clone_from(&later.resource_version);
    meta.deletion_timestamp = Some(Time(deletion));
    meta.finalizers = Some(later.finalizers.clone());
    meta.owner_references = Some(later.owners.clone());
    Some(object)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    // C32
    #[test]
    fn only_a_readable_deletion_makes_an_outdated_state_one_to_clean_up() {
        let mut kept = ConfigMap::default();
        kept.metadata.name = Some("a".into());
        kept.metadata.uid = Some("1".into());
        let says = |deletion: Option<&str>| Identity {
            uid: Some("1".into()),
            resource_version: Some("9".into()),
            deletion_timestamp: deletion.map(str::to_owned),
            finalizers: vec!["example.dev/x".into()],
            ..Identity::default()
        };
        assert!(with_metadata_of(&kept, &says(None)).is_none());
        assert!(with_metadata_of(&kept, &says(Some("soon"))).is_none());
        let another = Identity { uid: Some("2".into()), ..says(Some("2026-01-02T03:04:05Z")) };
        assert!(with_metadata_of(&kept, &another).is_none());
        let made = with_metadata_of(&kept, &says(Some("2026-01-02T03:04:05Z"))).unwrap();
        assert!(made.metadata.deletion_timestamp.is_some());
        assert_eq!(made.metadata.resource_version.as_deref(), Some("9"));
        assert_eq!(made.metadata.finalizers.unwrap(), ["example.dev/x"]);
        assert_eq!(made.metadata.name.as_deref(), Some("a"), "the rest is as it was read");
    }
}

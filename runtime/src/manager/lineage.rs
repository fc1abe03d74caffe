//! Which of two definitions of a kind is the later one: each carries the fingerprints of those that it replaced.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;

/// The annotation with the fingerprints of a definition and of those before it, the newest first.
pub(super) const LINEAGE: &str = "watchkeeper.dev/definitions";
/// Most fingerprints that are kept.
const MOST: usize = 20;

/// What to do with a definition, given the one in the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Succession {
    /// Apply it, with this annotation.
    Apply(String),
    /// The one in the cluster has replaced it: leave that alone.
    Replaced,
    /// It can't replace the one in the cluster.
    Refuse(String),
}

/// Compares a definition with the one in the cluster. If it is of the whole kind, it has all versions of the program.
pub(super) fn succession(
    own: &CustomResourceDefinition,
    found: &CustomResourceDefinition,
    is_whole: bool,
) -> Succession {
    let before = found.annotations().get(LINEAGE).map(String::as_str).unwrap_or_default();
    let Some(lineage) = lineage_after(&fingerprint(own), before) else { return Succession::Replaced };
    let defines = |name: &str| own.spec.versions.iter().any(|version| version.name == name);
    let stored = found.status.iter().flat_map(|status| status.stored_versions.iter().flatten());
    let lost: Vec<&str> = stored.map(String::as_str).filter(|name| !defines(name)).collect();
    if !lost.is_empty() {
        return Succession::Refuse(format!(
            "objects may still be stored in {}, which this program does not define: let an older program migrate them, or \
             keep the version",
            lost.join(", ")
        ));
    }
    let converts = |of: &CustomResourceDefinition| {
        of.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook")
    };
    let served = found.spec.versions.iter().filter(|version| version.served);
    let ended: Vec<&str> =
        served.map(|version| version.name.as_str()).filter(|name| !defines(name)).collect();
    // What no program has installed is not for a program to drop.
    let may_end = is_whole && !before.is_empty();
    if !may_end && !ended.is_empty() && converts(found) && !converts(own) {
        return Succession::Refuse(format!(
            "the cluster serves {} as well, which a webhook converts: list it by `#[informer(versions(..))]` and install the \
             kind by `kind`, or stop serving it first",
            ended.join(", ")
        ));
    }
    Succession::Apply(lineage)
}

/// Adds a fingerprint to those before it; `None` if one of those has replaced it.
pub(super) fn lineage_after(own: &str, before: &str) -> Option<String> {
    let before: Vec<&str> = before.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    let is_newest = before.first().is_none_or(|newest| *newest == own);
    if !is_newest && before.contains(&own) {
        return None;
    }
    let others = before.into_iter().filter(|one| *one != own);
    Some([own].into_iter().chain(others).take(MOST).collect::<Vec<_>>().join(","))
}

/// Returns the fingerprint of a definition; where its conversion webhook is does not matter.
pub(super) fn fingerprint(definition: &CustomResourceDefinition) -> String {
    let mut spec = definition.spec.clone();
    spec.conversion = None;
    fingerprint_of(&serde_json::to_string(&spec).unwrap_or_default())
}

/// Returns the fingerprint of a text.
pub(super) fn fingerprint_of(text: &str) -> String {
    // FNV-1a, which is the same in every build.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn definition(versions: &[&str], lineage: &str, stored: &[&str]) -> CustomResourceDefinition {
        let version = |name: &&str| json!({"name": name, "served": true, "storage": false});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "shops.dev", "annotations": {LINEAGE: lineage}},
            "spec": {"group": "dev", "scope": "Namespaced", "names": {"kind": "Shop", "plural": "shops"},
                "versions": versions},
            "status": {"storedVersions": stored},
        }))
        .unwrap()
    }

    #[test]
    fn the_one_that_was_replaced_never_comes_back() {
        let (first, second) = (definition(&["v1"], "", &[]), definition(&["v1", "v2"], "", &[]));
        let (one, two) = (fingerprint(&first), fingerprint(&second));
        assert_ne!(one, two);
        for (own, in_cluster, lineage, wanted) in [
            (&first, &["v1"][..], String::new(), Succession::Apply(one.clone())),
            (&first, &["v1"], one.clone(), Succession::Apply(one.clone())),
            (&second, &["v1"], one.clone(), Succession::Apply(format!("{two},{one}"))),
            (&first, &["v1", "v2"], format!("{two},{one}"), Succession::Replaced),
            (&second, &["v1", "v2"], format!("{two},{one}"), Succession::Apply(format!("{two},{one}"))),
            // Somebody else's definition does not count.
            (&first, &["v1", "v2"], "x, y,".to_owned(), Succession::Apply(format!("{one},x,y"))),
        ] {
            assert_eq!(
                succession(own, &definition(in_cluster, &lineage, &["v1"]), true),
                wanted,
                "{lineage}"
            );
        }
        let many = vec!["x"; 50].join(",");
        let Succession::Apply(kept) = succession(&first, &definition(&["v1"], &many, &[]), true) else {
            panic!()
        };
        assert_eq!(kept.split(',').count(), MOST);
    }

    #[test]
    fn a_version_in_which_objects_are_stored_stays() {
        let own = definition(&["v2"], "", &[]);
        for is_whole in [false, true] {
            let of = |stored: &[&str]| succession(&own, &definition(&["v1", "v2"], "x", stored), is_whole);
            let Succession::Refuse(why) = of(&["v1", "v2"]) else { panic!() };
            assert!(why.starts_with("objects may still be stored in v1, which"), "{why}");
            assert!(matches!(of(&["v2"]), Succession::Apply(_)));
        }
    }

    #[test]
    fn a_version_that_a_webhook_converts_is_dropped_by_a_program_that_installs_the_whole_kind() {
        let own = definition(&["v2"], "", &[]);
        let of = |lineage: &str, stored: &[&str], is_whole: bool| {
            let mut converted = definition(&["v1", "v2"], lineage, stored);
            converted.spec.conversion = serde_json::from_value(json!({"strategy": "Webhook"})).unwrap();
            succession(&own, &converted, is_whole)
        };
        assert!(matches!(of("x", &["v2"], true), Succession::Apply(_)));
        for refused in [of("x", &["v2"], false), of("", &["v2"], true)] {
            let Succession::Refuse(why) = refused else { panic!("{refused:?}") };
            assert!(why.starts_with("the cluster serves v1 as well, which a webhook converts"), "{why}");
        }
        assert!(matches!(of("x", &["v1", "v2"], true), Succession::Refuse(_)), "it may still be stored");
    }
}

//! The configurations that tell an API server when to call, generated from the kinds.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceConversion, ServiceReference as ConversionService,
        WebhookClientConfig as ConversionClient, WebhookConversion,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};
use kube::core::ObjectMeta;

use super::{
    hooks::{AdmissionHook, CONVERSION_PATH, Purpose, STATUS},
    webhooks::Webhooks,
};
use crate::object::Scope;

/// The port of the Service.
const PORT: i32 = 443;
/// The label that every namespace has with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The annotation that has cert-manager write its authority into an object.
const INJECTION: &str = "cert-manager.io/inject-ca-from";

/// The configurations of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Configurations {
    pub(crate) mutating: Option<MutatingWebhookConfiguration>,
    pub(crate) validating: Option<ValidatingWebhookConfiguration>,
}

/// Generates the configurations of all admission webhooks, under one name.
///
/// Objects in the program's own namespace are never sent, so its Lease is not either: the program must be able to
/// start.
pub(crate) fn configurations(webhooks: &Webhooks, name: &str, bundle: Option<&str>) -> Configurations {
    let of = |purpose| webhooks.handlers.hooks.values().filter(move |hook| hook.purpose == purpose);
    let metadata = || ObjectMeta {
        name: Some(name.to_owned()),
        annotations: injection(webhooks),
        ..ObjectMeta::default()
    };
    let mutating: Vec<_> = of(Purpose::Defaults).map(|hook| mutating(webhooks, hook, bundle)).collect();
    let validating: Vec<_> = of(Purpose::Validates).map(|hook| validating(webhooks, hook, bundle)).collect();
    Configurations {
        mutating: (!mutating.is_empty())
            .then(|| MutatingWebhookConfiguration { metadata: metadata(), webhooks: Some(mutating) }),
        validating: (!validating.is_empty())
            .then(|| ValidatingWebhookConfiguration { metadata: metadata(), webhooks: Some(validating) }),
    }
}

/// Returns the annotation that has cert-manager write its authority into an object, if it is to.
pub(crate) fn injection(webhooks: &Webhooks) -> Option<BTreeMap<String, String>> {
    webhooks.certificate.as_ref().map(|name| [(INJECTION.to_owned(), name.clone())].into())
}

/// Returns what a definition says of its conversions.
pub(crate) fn conversion(webhooks: &Webhooks, bundle: Option<&str>) -> CustomResourceConversion {
    let service =
        webhooks.service.as_ref().filter(|_| webhooks.url.is_none()).map(|service| ConversionService {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            path: Some(CONVERSION_PATH.to_owned()),
            port: Some(PORT),
        });
    let client = ConversionClient {
        ca_bundle: bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec())),
        service,
        url: webhooks.url.as_ref().map(|url| format!("{url}{CONVERSION_PATH}")),
    };
    CustomResourceConversion {
        strategy: "Webhook".to_owned(),
        webhook: Some(WebhookConversion {
            client_config: Some(client),
            conversion_review_versions: vec!["v1".to_owned()],
        }),
    }
}

/// Returns the names that the certificate must be for: those of the Service, or the host of the URL.
pub(crate) fn names(webhooks: &Webhooks) -> Vec<String> {
    if let Some(url) = &webhooks.url {
        let uri = url.parse::<http::Uri>().ok();
        let host = uri.as_ref().and_then(http::Uri::host);
        return host.map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect();
    }
    let Some(service) = &webhooks.service else { return Vec::new() };
    let short = format!("{}.{}.svc", service.name, service.namespace);
    vec![short.clone(), format!("{short}.cluster.local")]
}

fn mutating(webhooks: &Webhooks, hook: &AdmissionHook, bundle: Option<&str>) -> MutatingWebhook {
    MutatingWebhook {
        name: hook.name(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client(webhooks, hook, bundle),
        failure_policy: Some(hook.calls.failure_policy.as_str().to_owned()),
        match_conditions: conditions(webhooks, hook),
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: namespaces(webhooks, hook),
        object_selector: None,
        // What another webhook sets later may need defaults as well.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(vec![rule(webhooks, hook)]),
        side_effects: "None".to_owned(),
        timeout_seconds: i32::try_from(hook.calls.timeout.as_secs()).ok(),
    }
}

fn validating(webhooks: &Webhooks, hook: &AdmissionHook, bundle: Option<&str>) -> ValidatingWebhook {
    ValidatingWebhook {
        name: hook.name(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client(webhooks, hook, bundle),
        failure_policy: Some(hook.calls.failure_policy.as_str().to_owned()),
        match_conditions: conditions(webhooks, hook),
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: namespaces(webhooks, hook),
        object_selector: None,
        rules: Some(vec![rule(webhooks, hook)]),
        side_effects: "None".to_owned(),
        timeout_seconds: i32::try_from(hook.calls.timeout.as_secs()).ok(),
    }
}

fn client(webhooks: &Webhooks, hook: &AdmissionHook, bundle: Option<&str>) -> WebhookClientConfig {
    let service =
        webhooks.service.as_ref().filter(|_| webhooks.url.is_none()).map(|service| ServiceReference {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
            path: Some(hook.path()),
            port: Some(PORT),
        });
    WebhookClientConfig {
        ca_bundle: bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec())),
        service,
        url: webhooks.url.as_ref().map(|url| format!("{url}{}", hook.path())),
    }
}

/// Leaves out the program's own namespace: the objects in it, and the Namespace itself.
fn namespaces(webhooks: &Webhooks, hook: &AdmissionHook) -> Option<LabelSelector> {
    let is_namespace = hook.kind.group.is_empty() && hook.kind.plural == "namespaces";
    let service =
        webhooks.service.as_ref().filter(|_| is_namespace || hook.kind.scope == Scope::Namespaced)?;
    let requirement = LabelSelectorRequirement {
        key: NAMESPACE_NAME.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![service.namespace.clone()]),
    };
    Some(LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None })
}

/// Returns the conditions of a webhook. One for Leases leaves out the program's own, which may be in another
/// namespace.
fn conditions(webhooks: &Webhooks, hook: &AdmissionHook) -> Option<Vec<MatchCondition>> {
    let condition = |name: &str, expression: &str| MatchCondition {
        name: name.to_owned(),
        expression: expression.to_owned(),
    };
    let is_of_leases = hook.kind.group == "coordination.k8s.io" && hook.kind.plural == "leases";
    let own = webhooks.lease.as_ref().filter(|_| is_of_leases).map(|lease| {
        let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name());
        let is_named = match webhooks.has_lease_each {
            false => format!("request.name != '{name}'"),
            true => format!("(request.name != '{name}' && !request.name.startsWith('{name}-'))"),
        };
        let expression = format!("request.namespace != '{namespace}' || {is_named}");
        condition("not-its-own-lease", &expression)
    });
    let said = hook.calls.conditions.iter().map(|(name, expression)| condition(name, expression));
    let all: Vec<_> = own.into_iter().chain(said).collect();
    (!all.is_empty()).then_some(all)
}

/// Returns what a webhook is called for: all versions that are converted, so that objects come as users wrote them.
fn rule(webhooks: &Webhooks, hook: &AdmissionHook) -> RuleWithOperations {
    let scope = match hook.kind.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let operations = hook.calls.operations.iter().map(|operation| operation.as_str().to_owned());
    let versions = match webhooks.handlers.conversion_of(&hook.kind.group, &hook.kind.kind) {
        Some(conversion) => conversion.versions().into_iter().map(str::to_owned).collect(),
        None => vec![hook.kind.version.to_string()],
    };
    let status = hook.calls.status.then(|| format!("{}/{STATUS}", hook.kind.plural));
    RuleWithOperations {
        api_groups: Some(vec![hook.kind.group.to_string()]),
        api_versions: Some(versions),
        operations: Some(operations.collect()),
        resources: Some([hook.kind.plural.to_string()].into_iter().chain(status).collect()),
        scope: Some(scope.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Namespace};
    use serde_json::json;

    use super::{
        super::{Calls, Change, Defaulter, Request, Review, Validator},
        *,
    };
    use crate::object::ObjectKey;

    struct Rules;

    impl<K: Sync + 'static> Validator<K> for Rules {
        async fn validate(&self, _: Change<'_, K>, _: &mut Review) {}
    }

    impl Defaulter<Deployment> for Rules {
        fn default(&self, _: &mut Deployment, _: &Request) {}
    }

    #[test]
    fn the_programs_own_lease_is_never_sent() {
        let webhooks = Webhooks::new(":9443").validates::<Lease>(Rules).validates::<Deployment>(Rules);
        let webhooks = Webhooks { lease: Some(ObjectKey::new("leases", "ops")), ..webhooks };
        let made = serde_json::to_value(configurations(&webhooks, "ops", None).validating.unwrap()).unwrap();
        let condition = json!([{"name": "not-its-own-lease",
            "expression": "request.namespace != 'leases' || request.name != 'ops'"}]);
        assert_eq!(made["webhooks"][1]["name"], "validates.leases.coordination.k8s.io");
        assert_eq!(made["webhooks"][1]["matchConditions"], condition);
        assert_eq!(made["webhooks"][0].get("matchConditions"), None);

        // Replicas that share the work have Leases of their own.
        let webhooks = Webhooks { has_lease_each: true, ..webhooks };
        let made = serde_json::to_value(configurations(&webhooks, "ops", None).validating.unwrap()).unwrap();
        let condition = json!([{"name": "not-its-own-lease",
            "expression": "request.namespace != 'leases' || (request.name != 'ops' && !request.name.startsWith('ops-'))"}]);
        assert_eq!(made["webhooks"][1]["matchConditions"], condition);
    }

    #[test]
    fn configurations_spell_out_everything() {
        let calls = Calls::new().deletions().ignore_failures().only_if("a", "true");
        let webhooks = Webhooks::new(":9443")
            .service("ops", "hooks")
            .defaults::<Deployment>(Rules)
            .validates_with::<Deployment>(calls, Rules)
            .validates_with::<Namespace>(Calls::new().status(), Rules);
        let made = configurations(&webhooks, "ops", Some("ca"));
        let found = serde_json::to_value(made.validating.unwrap()).unwrap();
        let webhook = json!({
            "name": "validates.deployments.apps.k8s.io", "admissionReviewVersions": ["v1"],
            "clientConfig": {"caBundle": "Y2E=", "service": {"namespace": "ops", "name": "hooks", "port": 443,
                "path": "/validates/apps/deployments"}},
            "failurePolicy": "Ignore", "matchConditions": [{"name": "a", "expression": "true"}],
            "matchPolicy": "Equivalent", "sideEffects": "None", "timeoutSeconds": 5,
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["ops"]}]},
            "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
                "resources": ["deployments"], "scope": "Namespaced"}],
        });
        assert_eq!(found["metadata"]["name"], "ops");
        assert_eq!(found["webhooks"][0], webhook);
        let of_namespaces = &found["webhooks"][1];
        assert_eq!(of_namespaces["name"], "validates.namespaces.core.k8s.io");
        // A Namespace is selected by its own labels.
        assert_eq!(of_namespaces["namespaceSelector"], webhook["namespaceSelector"]);
        assert_eq!(of_namespaces["failurePolicy"], "Fail");
        assert_eq!(of_namespaces["rules"][0]["resources"], json!(["namespaces", "namespaces/status"]));
        let mutating = serde_json::to_value(made.mutating.unwrap()).unwrap();
        assert_eq!(mutating["webhooks"][0]["reinvocationPolicy"], "IfNeeded");
        assert_eq!(mutating["webhooks"][0]["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!(names(&webhooks), ["hooks.ops.svc", "hooks.ops.svc.cluster.local"]);
    }

    #[test]
    fn the_certificate_is_for_the_host_of_the_url() {
        for (url, host) in [
            ("https://[::1]:9443/", "::1"),
            ("https://[fd00::5]", "fd00::5"),
            ("https://[fd00::5]/hooks", "fd00::5"),
            ("https://127.0.0.1:9443", "127.0.0.1"),
            ("https://hooks.example.dev", "hooks.example.dev"),
            ("hooks.example.dev:9443", "hooks.example.dev"),
        ] {
            assert_eq!(names(&Webhooks::new("").url(url)), [host], "{url}");
        }
    }
}

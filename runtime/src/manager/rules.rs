//! What a program must be allowed to do: the roles of its service account.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::{CustomResourceExt, ResourceExt as _, core::ObjectMeta};

use crate::{
    api_request::ApiVerb,
    controller::{Cluster, Plan},
    object::{Kind, ObjectKey, Scope},
    writes::Rights,
};

/// The least that a program must be allowed to do; made by [`Manager::rules`](super::Manager::rules).
///
/// A ClusterRole for what it does everywhere, and a Role for each namespace that it keeps to. Shown as YAML, ready for
/// `kubectl apply`. To be bound to the program's service account by a ClusterRoleBinding, and a RoleBinding for each
/// Role.
///
/// A controller that keeps to namespaces has its permissions for cluster-scoped kinds in the ClusterRole. Add by hand what
/// the program does through a client of its own, and what a controller writes outside its namespaces. A program that
/// writes roles or bindings needs the permissions that it gives away: declare [`Use::Bind`](crate::writes::Use::Bind) or
/// [`Use::Escalate`](crate::writes::Use::Escalate). If the server protects owners (admission plugin
/// `OwnerReferencesPermissionEnforcement`, as on OpenShift), also allow `update` of the reconciled kind's `finalizers`.
///
/// ```
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # use watchkeeper::prelude::*;
/// # fn print<R: Reconciler<ConfigMap>>(manager: Manager, reconciler: R) {
/// let manager = manager.controller(Controller::new(reconciler).owns::<Secret>());
/// println!("{}", manager.rules());
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    name: String,
    /// By namespace; `None`: everywhere.
    granted: BTreeMap<Option<Arc<str>>, BTreeMap<RuleResource, BTreeSet<ApiVerb>>>,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleResource {
    group: String,
    resource: String,
    /// The one object that is meant; `None`: all.
    name: Option<String>,
}

impl RuleResource {
    fn new(group: &str, resource: &str, name: Option<&str>) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), name: name.map(str::to_owned) }
    }
}

impl Rules {
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), granted: BTreeMap::new() }
    }

    /// Adds what one controller, or one cache, needs in some namespaces; in all if there are none. A name is that of the
    /// one object that is meant.
    pub(super) fn add(&mut self, rights: &Rights, namespaces: &[Arc<str>], name: Option<&str>) {
        for right in rights.iter() {
            let resource = RuleResource::new(&right.group, &right.resource, name);
            if namespaces.is_empty() || right.scope == Scope::Cluster {
                self.grant(None, resource, &[right.verb]);
                continue;
            }
            for namespace in namespaces {
                self.grant(Some(namespace.clone()), resource.clone(), &[right.verb]);
            }
        }
    }

    /// Adds what a controller needs.
    pub(super) fn add_plan(&mut self, plan: &Plan) {
        let (namespaces, definition) = (&plan.definition.settings.namespaces, &plan.definition);
        self.add(&definition.rights, namespaces, None);
        for (narrowing, rights) in &definition.narrowed {
            let own = narrowing.namespace.as_ref().map(std::slice::from_ref);
            self.add(rights, own.unwrap_or(namespaces), narrowing.name.as_deref());
        }
    }

    /// Adds what it takes to read what the program asked a cluster for.
    pub(super) fn add_reads(&mut self, cluster: &Cluster) {
        for (rights, namespaces, name) in cluster.rights() {
            self.add(&rights, &namespaces, name.as_deref());
        }
    }

    /// Adds what it takes to read a kind in all namespaces.
    pub(super) fn add_watch(&mut self, kind: &Kind) {
        let mut rights = Rights::default();
        rights.watch(kind);
        self.add(&rights, &[], None);
    }

    /// Adds what it takes to campaign: for one Lease, or for one of several, whose names are not known before.
    pub(super) fn campaign(&mut self, lease: &ObjectKey, is_shared: bool) {
        let of = |name| RuleResource::new("coordination.k8s.io", "leases", name);
        let place = lease.namespace().map(Arc::from);
        if is_shared {
            let verbs = [ApiVerb::Get, ApiVerb::List, ApiVerb::Watch, ApiVerb::Update, ApiVerb::Delete];
            self.grant(place.clone(), of(None), &verbs);
        } else {
            self.grant(place.clone(), of(Some(lease.name())), &[ApiVerb::Get, ApiVerb::Update]);
        }
        // What is not there yet can't be named.
        self.grant(place, of(None), &[ApiVerb::Create]);
    }

    /// Adds what it takes to ask who may see what.
    pub(super) fn review(&mut self) {
        let tokens = RuleResource::new("authentication.k8s.io", "tokenreviews", None);
        let accesses = RuleResource::new("authorization.k8s.io", "subjectaccessreviews", None);
        [tokens, accesses].into_iter().for_each(|asked| self.grant(None, asked, &[ApiVerb::Create]));
    }

    fn grant(&mut self, place: Option<Arc<str>>, resource: RuleResource, verbs: &[ApiVerb]) {
        self.granted.entry(place).or_default().entry(resource).or_default().extend(verbs);
    }

    /// Adds what it takes to install a definition, as [`Manager::install_crd`](super::Manager::install_crd) does.
    pub fn with_crd<K: CustomResourceExt>(mut self) -> Self {
        self.install(&K::crd().name_any());
        self
    }

    /// Adds what it takes to install a definition.
    pub(super) fn install(&mut self, name: &str) {
        let crd = RuleResource::new("apiextensions.k8s.io", "customresourcedefinitions", Some(name));
        self.grant(None, crd, &[ApiVerb::Get, ApiVerb::Create, ApiVerb::Patch]);
    }

    /// Adds what it takes to migrate the objects of a kind.
    #[cfg(feature = "webhooks")]
    pub(super) fn migrate(&mut self, name: &str) {
        let status =
            RuleResource::new("apiextensions.k8s.io", "customresourcedefinitions/status", Some(name));
        self.grant(None, status, &[ApiVerb::Update]);
        let migrations = RuleResource::new("storagemigration.k8s.io", "storageversionmigrations", None);
        self.grant(None, migrations, &[ApiVerb::Get, ApiVerb::Create, ApiVerb::Delete]);
        if let Some((plural, group)) = name.split_once('.') {
            let objects = RuleResource::new(group, plural, None);
            self.grant(None, objects, &[ApiVerb::Get, ApiVerb::List, ApiVerb::Update]);
        }
    }

    /// Adds what it takes to keep certificates, and to write them and the webhooks into configurations.
    #[cfg(feature = "webhooks")]
    pub(super) fn serve_webhooks(&mut self, namespace: &str, name: &str) {
        let place = Some(Arc::from(namespace));
        let secrets = |name| RuleResource::new("", "secrets", name);
        self.grant(place.clone(), secrets(Some(name)), &[ApiVerb::Get, ApiVerb::Update]);
        // What is not there yet can't be named.
        self.grant(place, secrets(None), &[ApiVerb::Create]);
        for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let named = |name| RuleResource::new("admissionregistration.k8s.io", plural, name);
            self.grant(None, named(Some(name)), &[ApiVerb::Get, ApiVerb::Patch]);
            self.grant(None, named(None), &[ApiVerb::Create]);
        }
    }

    /// Adds what it takes to install a policy or its binding.
    #[cfg(feature = "webhooks")]
    pub(super) fn install_policy(&mut self, policy: &crate::webhook::GeneratedPolicy) {
        let plural = policy.plural();
        let named = |name| RuleResource::new("admissionregistration.k8s.io", &plural, name);
        // The server demands this of anyone who installs a policy with parameters.
        if let Some((kind, listed)) = policy.read() {
            let params = || RuleResource::new(&kind.group, &kind.plural, None);
            self.grant(None, params(), &[ApiVerb::Get]);
            if let Some(namespace) = listed {
                self.grant(namespace.map(Arc::from), params(), &[ApiVerb::List]);
            }
        }
        self.grant(None, named(Some(&policy.name)), &[ApiVerb::Patch]);
        self.grant(None, named(None), &[ApiVerb::Create]);
    }

    /// Names the roles; after the program's first controller unless named.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns what is allowed everywhere; `None` where all is in some namespaces.
    pub fn cluster_role(&self) -> Option<ClusterRole> {
        let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        let rules = Some(policy(self.granted.get(&None)?));
        Some(ClusterRole { metadata, rules, ..ClusterRole::default() })
    }

    /// Returns what is allowed in single namespaces.
    pub fn roles(&self) -> Vec<Role> {
        let role = |(place, granted): (&Option<Arc<str>>, &BTreeMap<_, _>)| {
            let namespace = place.as_ref()?.to_string();
            let name = Some(self.name.clone());
            let metadata = ObjectMeta { name, namespace: Some(namespace), ..ObjectMeta::default() };
            Some(Role { metadata, rules: Some(policy(granted)) })
        };
        self.granted.iter().filter_map(role).collect()
    }
}

/// One rule for each resource, in order.
fn policy(granted: &BTreeMap<RuleResource, BTreeSet<ApiVerb>>) -> Vec<PolicyRule> {
    let rule = |(resource, verbs): (&RuleResource, &BTreeSet<ApiVerb>)| PolicyRule {
        api_groups: Some(vec![resource.group.clone()]),
        resources: Some(vec![resource.resource.clone()]),
        resource_names: resource.name.clone().map(|name| vec![name]),
        verbs: verbs.iter().map(|verb| verb.as_str().to_owned()).collect(),
        ..PolicyRule::default()
    };
    granted.iter().map(rule).collect()
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (place, granted)) in self.granted.iter().enumerate() {
            if at > 0 {
                f.write_str("---\n")?;
            }
            let kind = if place.is_some() { "Role" } else { "ClusterRole" };
            write!(f, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n")?;
            writeln!(f, "  name: {}", quoted(&self.name))?;
            if let Some(namespace) = place {
                writeln!(f, "  namespace: {}", quoted(namespace))?;
            }
            f.write_str("rules:\n")?;
            for (RuleResource { group, resource, name }, verbs) in granted {
                writeln!(f, "  - apiGroups: [{}]\n    resources: [{}]", quoted(group), quoted(resource))?;
                if let Some(name) = name {
                    writeln!(f, "    resourceNames: [{}]", quoted(name))?;
                }
                let verbs: Vec<_> = verbs.iter().map(|verb| quoted(verb.as_str())).collect();
                writeln!(f, "    verbs: [{}]", verbs.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Writes a text as YAML reads it as one, whatever it is: as JSON does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

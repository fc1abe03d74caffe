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
    controller::Cluster,
    object::{ObjectKey, Scope},
    writes::Rights,
};

/// The least that a program must be allowed to do; made by [`Manager::rules`](super::Manager::rules).
///
/// A ClusterRole for what it does everywhere, and a Role for each namespace that it keeps to. Shown as YAML, ready for
/// `kubectl apply`. To be bound to the program's service account by a ClusterRoleBinding, and a RoleBinding for each
/// Role.
///
/// What controllers that keep to namespaces do with kinds that have none is in the ClusterRole. Not known, and to be
/// added by hand, is what goes through a client of one's own, and what a controller writes in other namespaces than those
/// it keeps to. A program that writes roles, or binds some, gives away what it must be allowed to give: say
/// [`Use::Bind`](crate::writes::Use::Bind) or [`Use::Escalate`](crate::writes::Use::Escalate). Where the server protects owners (the admission plugin `OwnerReferencesPermissionEnforcement`, as on
/// OpenShift), `update` of the reconciled kind's `finalizers` is needed besides.
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

impl Rules {
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), granted: BTreeMap::new() }
    }

    /// Adds what one controller, or one cache, needs in some namespaces; in all if there are none. A name is that of the
    /// one object that is meant.
    pub(super) fn add(&mut self, rights: &Rights, namespaces: &[Arc<str>], name: Option<&str>) {
        let named = name.map(str::to_owned);
        for right in rights.iter() {
            let everywhere = namespaces.is_empty() || right.scope == Scope::Cluster;
            let places: Vec<_> = match everywhere {
                true => vec![None],
                false => namespaces.iter().cloned().map(Some).collect(),
            };
            let resource = RuleResource {
                group: right.group.to_string(),
                resource: right.resource.clone(),
                name: named.clone(),
            };
            places.into_iter().for_each(|place| self.grant(place, resource.clone(), &[right.verb]));
        }
    }

    /// Adds what it takes to read what the program asked a cluster for.
    pub(super) fn add_reads(&mut self, cluster: &Cluster) {
        for (rights, namespaces, name) in cluster.rights() {
            self.add(&rights, &namespaces, name.as_deref());
        }
    }

    /// Adds what it takes to lead by a Lease.
    pub(super) fn lead(&mut self, lease: &ObjectKey) {
        let of = |name| RuleResource {
            group: "coordination.k8s.io".to_owned(),
            resource: "leases".to_owned(),
            name,
        };
        let place = lease.namespace().map(Arc::from);
        self.grant(place.clone(), of(Some(lease.name().to_owned())), &[ApiVerb::Get, ApiVerb::Update]);
        // What is not there yet can't be named.
        self.grant(place, of(None), &[ApiVerb::Create]);
    }

    /// Adds what it takes to ask who may see what.
    pub(super) fn review(&mut self) {
        for (group, resource) in
            [("authentication.k8s.io", "tokenreviews"), ("authorization.k8s.io", "subjectaccessreviews")]
        {
            let (group, resource) = (group.to_owned(), resource.to_owned());
            self.grant(None, RuleResource { group, resource, name: None }, &[ApiVerb::Create]);
        }
    }

    fn grant(&mut self, place: Option<Arc<str>>, resource: RuleResource, verbs: &[ApiVerb]) {
        self.granted.entry(place).or_default().entry(resource).or_default().extend(verbs);
    }

    /// Adds what it takes to install a definition, as [`Manager::install_crd`](super::Manager::install_crd) does.
    pub fn with_crd<K: CustomResourceExt>(mut self) -> Self {
        let of = |name| RuleResource {
            group: "apiextensions.k8s.io".to_owned(),
            resource: "customresourcedefinitions".to_owned(),
            name,
        };
        self.grant(None, of(Some(K::crd().name_any())), &[ApiVerb::Get, ApiVerb::Create, ApiVerb::Patch]);
        self
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
        let cluster = self.cluster_role().map(|role| ("ClusterRole", role.metadata, role.rules));
        let roles = self.roles().into_iter().map(|role| ("Role", role.metadata, role.rules));
        for (at, (kind, metadata, rules)) in cluster.into_iter().chain(roles).enumerate() {
            if at > 0 {
                f.write_str("---\n")?;
            }
            write!(f, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n")?;
            writeln!(f, "  name: {}", quoted(&self.name))?;
            if let Some(namespace) = &metadata.namespace {
                writeln!(f, "  namespace: {}", quoted(namespace))?;
            }
            f.write_str("rules:\n")?;
            rules.iter().flatten().try_for_each(|rule| write_rule(f, rule))?;
        }
        Ok(())
    }
}

fn write_rule(f: &mut fmt::Formatter<'_>, rule: &PolicyRule) -> fmt::Result {
    let list = |texts: &[String]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ");
    let lists = [
        ("apiGroups", rule.api_groups.as_deref()),
        ("resources", rule.resources.as_deref()),
        ("resourceNames", rule.resource_names.as_deref()),
        ("verbs", Some(&*rule.verbs)),
    ];
    let present = lists.into_iter().filter_map(|(field, texts)| Some((field, texts?)));
    for (at, (field, texts)) in present.enumerate() {
        writeln!(f, "{}{field}: [{}]", if at == 0 { "  - " } else { "    " }, list(texts))?;
    }
    Ok(())
}

/// Writes a text as YAML reads it as one, whatever it is: as JSON does.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

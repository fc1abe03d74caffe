//! How one version of the operator takes over from the other, and what that alone must not change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::{RequestInfo, StoredObject, object};

use crate::harness::{Harness, Rest, in_short};
use crate::life::Version;
use crate::schedule::{Place, name_within};
use crate::timeline::Actor;
use crate::trouble::{Replacement, Trouble};
use crate::world::{self, Difference, Hidden, MACHINERY, World};

/// How long nothing must happen before and after one version replaces the other at rest.
const QUIET: Duration = Duration::from_secs(30);
/// How long two versions run at most.
const OVERLAP: Duration = Duration::from_secs(60);
/// How many steps of the user two versions see.
const STEPS: usize = 2;
/// Kinds that a program may write when it starts, whether it leads or not.
const WRITTEN_AT_START: [&str; 4] = [
    "customresourcedefinitions",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "secrets",
];

/// Lets one version take over from the other where that is planned after a step.
pub(crate) async fn after_step(harness: &Harness, step: usize, hidden: &Hidden) {
    loop {
        let struck = harness.state().strike(&Place::Step(step));
        let Some((at, trouble)) = struck else { return };
        take_over(harness, step, hidden, (at, trouble)).await;
    }
}

async fn take_over(harness: &Harness, step: usize, hidden: &Hidden, (at, trouble): (usize, Trouble)) {
    let from = harness.state().lives.at_work();
    if from == Version::Only || !matches!(trouble, Trouble::Replaced(_)) {
        return harness.inert(at);
    }
    let rest = async || harness.rest(Rest::OfAll, QUIET, harness.deadline(Instant::now())).await;
    rest().await;
    let before = View::of(harness, None).await;
    harness.tell(Actor::Trouble, || format!("{}: {}", Place::Step(step), trouble.tell()));
    replace(harness, from).await;
    rest().await;
    // A rollback may undo what the new version did.
    if from == Version::Old {
        let after = View::of(harness, Some(&before.versions)).await;
        let differences = after.differences(before, hidden);
        harness.state().changed_by_upgrade.extend(differences);
    }
}

/// Lets one version take over from the other at a request; whether the request is carried out is the caller's matter.
pub(crate) async fn at_request(harness: &Harness, from: Version, how: Replacement) {
    match how {
        Replacement::Rolling => roll(harness, from).await,
        Replacement::AtRest | Replacement::Killed(_) => replace(harness, from).await,
    }
}

async fn replace(harness: &Harness, from: Version) {
    install(harness, from).await;
    harness.tell(from.actor(), || "is stopped".to_owned());
    let mut state = harness.state();
    state.lives.remove(from);
    state.lives.deploy(from.other());
    drop(state);
    harness.disturb(|| "one version replaces the other".into());
}

/// Lets both run for a while.
async fn roll(harness: &Harness, from: Version) {
    install(harness, from).await;
    let until = Instant::now() + OVERLAP;
    let steps = {
        let mut state = harness.state();
        state.lives.deploy(from.other());
        state.steps + STEPS
    };
    harness.disturb(|| "a second version starts".into());
    let (harness, under_way) = (harness.clone(), harness.clone().fly(OVERLAP));
    tokio::spawn(async move {
        while Instant::now() < until && harness.state().steps < steps {
            tokio::select! {
                () = sleep_until(until) => {}
                () = harness.moved.notified() => {}
            }
        }
        harness.tell(from.actor(), || "is stopped".to_owned());
        harness.state().lives.remove(from);
        drop(under_way);
    });
}

/// Writes the definitions of the new version, as who installs it does; a rollback leaves them.
async fn install(harness: &Harness, from: Version) {
    if from != Version::Old {
        return;
    }
    for definition in harness.upgraded.iter() {
        let name = object::name(definition);
        if let Err(refused) = put(harness, name, definition.clone()).await {
            let text = format!("the new definition {name} is refused: {refused}");
            harness.tell(Actor::User, || text.clone());
            harness.state().refused_definitions.push(text);
        }
    }
}

async fn put(harness: &Harness, name: &str, mut definition: Value) -> Result<(), String> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    match get(harness, &path).await {
        Ok(there) => {
            harness.tell(Actor::User, || format!("installs the new definition {name}"));
            definition["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
            request(harness, Method::PUT, &path, &definition).await?;
        }
        Err(_) => {
            let collection = path.rsplit_once('/').map_or(path.as_str(), |(collection, _)| collection);
            request(harness, Method::POST, collection, &definition).await?;
        }
    }
    Ok(())
}

async fn get(harness: &Harness, path: &str) -> Result<Value, String> {
    request(harness, Method::GET, path, &Value::Null).await
}

async fn request(harness: &Harness, method: Method, path: &str, body: &Value) -> Result<Value, String> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/json").body(body);
    let request = request.map_err(|error| error.to_string())?;
    harness.stranger.request(request).await.map_err(|error| in_short(&error))
}

/// Records a write while two versions run; says whether the old one wrote what the new one has written.
pub(crate) fn both_write(harness: &Harness, of: Version, info: &RequestInfo, name: &str, body: &[u8]) {
    let mut state = harness.state();
    let is_setup = |kinds: &[&str]| kinds.contains(&info.resource.as_str());
    let writes = info.verb.is_some_and(Verb::writes);
    if !state.lives.overlap() || !writes || is_setup(&MACHINERY) || is_setup(&WRITTEN_AT_START) {
        return;
    }
    // What asks by POST writes nothing.
    if ["authentication.k8s.io", "authorization.k8s.io"].contains(&info.group.as_str()) {
        return;
    }
    let object = info.name.clone().or_else(|| name_within(info, body));
    // One under a name that the server chooses is nobody else's.
    if object.as_ref().is_some_and(|name| name.ends_with('*')) {
        return;
    }
    let key = |text: Option<&String>| text.cloned().unwrap_or_default();
    let written = (info.resource.clone(), key(info.namespace.as_ref()), key(object.as_ref()));
    if of == Version::New {
        state.written_by_new.insert(written);
    } else if state.written_by_new.contains(&written) {
        state.both_at_work.get_or_insert_with(|| name.to_owned());
    }
}

/// The version in which each kind is read.
pub(crate) type KindVersions = BTreeMap<String, String>;

/// All objects, as readers of some versions see them.
pub(crate) struct View {
    pub(crate) objects: Vec<StoredObject>,
    pub(crate) versions: KindVersions,
    unreadable: Vec<Difference>,
}

impl View {
    /// Reads each kind in the version given; else in that in which it is stored now.
    pub(crate) async fn of(harness: &Harness, versions: Option<&KindVersions>) -> Self {
        let mut view = Self { objects: Vec::new(), versions: KindVersions::new(), unreadable: Vec::new() };
        for mut found in world::everything(&harness.server) {
            let Some(stored) = version_in(&found.path).map(str::to_owned) else { continue };
            let version = versions.and_then(|versions| versions.get(&found.resource)).unwrap_or(&stored);
            view.versions.insert(found.resource.clone(), version.clone());
            let path = found.path.replacen(&format!("/{stored}/"), &format!("/{version}/"), 1);
            let has = found.value["apiVersion"].as_str().unwrap_or_default();
            if has.rsplit('/').next() != Some(version) {
                match get(harness, &path).await {
                    Ok(value) => found.value = value,
                    // Nobody reads a version that is not served.
                    Err(error) if error.starts_with("404") => continue,
                    Err(error) => view.unreadable.push(Difference::Field {
                        name: found.name(),
                        path: format!("(read in version {version})"),
                        expected: None,
                        found: Some(error.into()),
                    }),
                }
            }
            view.objects.push(found);
        }
        view
    }

    /// Lists what differs from an earlier view, and what was deleted and made again.
    fn differences(self, before: Self, hidden: &Hidden) -> Vec<Difference> {
        // Kinds that can't be read any more as before are left out.
        let readable: BTreeSet<String> = self.objects.iter().map(|found| found.resource.clone()).collect();
        let gone = |found: &StoredObject| {
            let served = self.versions.contains_key(&found.resource);
            served && !readable.contains(&found.resource)
        };
        let earlier: Vec<StoredObject> = before.objects.into_iter().filter(|found| !gone(found)).collect();
        let mut all = self.unreadable;
        let (was, is) = (World::hiding(&earlier, hidden), World::hiding(&self.objects, hidden));
        all.extend(is.differences(&was));
        all.extend(is.made_again(&was));
        all
    }
}

/// Returns the version that a path names.
fn version_in(path: &str) -> Option<&str> {
    let mut parts = path.trim_start_matches('/').split('/');
    match parts.next()? {
        "api" => parts.next(),
        _ => parts.nth(1),
    }
}

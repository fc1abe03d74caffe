//! Claims about what a real kube-apiserver refuses and takes, with its own answers.

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use regex::Regex;
use serde_json::{Value, json};

use super::*;

async fn call(core: &Core, method: Method, uri: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, "truth/1".parse().expect("value"));
    if method == Method::PATCH {
        headers.insert(header::CONTENT_TYPE, "application/merge-patch+json".parse().expect("value"));
    }
    let uri = uri.parse().expect("uri");
    match core.serve(ApiRequest { method, uri, headers, body, user: User::Admin }).await {
        Reply::Full(response) => {
            let value = serde_json::from_slice(response.body()).unwrap_or_default();
            (response.status().as_u16(), value)
        }
        Reply::Stream { .. } => panic!("a stream where an answer was expected"),
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn core() -> Core {
    Core::new(CoreConfig::default())
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
           "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

fn definition(plural: &str, schema: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {
                    "status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                },
            }],
        },
    })
}

/// Finds the path of a kind's collection.
fn collection(core: &Core, kind: &str) -> (String, String) {
    core.with_state(|state| {
        let mut found = state.registry.all().filter(|resource| resource.kind == kind);
        // Of two faces of one kind the stored one.
        let resource = found.find(|resource| resource.id == resource.storage).expect("a kind");
        let served = resource.versions.iter().find(|served| served.served).expect("a version");
        let version = served.api_version();
        let root = if resource.group().is_empty() { "api" } else { "apis" };
        let place = match resource.reach {
            crate::kinds::Reach::Namespaced => "namespaces/default/",
            crate::kinds::Reach::Cluster => "",
        };
        (format!("/{root}/{version}/{place}{}", resource.plural()), version)
    })
}

fn causes(answer: &Value) -> Vec<String> {
    let list = answer["details"]["causes"].as_array();
    let word = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    let line = |cause: &Value| {
        format!("{} | {} | {}", word(cause, "field"), word(cause, "reason"), word(cause, "message"))
    };
    match list {
        Some(list) => list.iter().map(line).collect(),
        None => vec![word(answer, "message")],
    }
}

/// Takes out the values that a server prints in its own internal form.
fn plain(mut causes: Vec<String>) -> Vec<String> {
    let shown = Regex::new(r"(Invalid|Unsupported) value: \{.*\}: ").expect("a pattern");
    for cause in &mut causes {
        *cause = shown.replace(cause, "$1 value: {}: ").into_owned();
    }
    causes.sort();
    causes
}

/// Leaves out what other parts of a cluster fill in.
fn known(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(spec) = value["spec"].as_object_mut() {
        for containers in ["containers", "initContainers"] {
            let containers = spec.get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten();
            for variable in containers.flat_map(|one| one["env"].as_array_mut().into_iter().flatten()) {
                if let Some(variable) = variable.as_object_mut() {
                    variable.retain(|_, value| *value != "");
                }
            }
        }
    }
    value
}

// A45, recorded from kube-apiserver 1.36.3
#[tokio::test(start_paused = true)]
async fn built_in_kinds_are_refused_and_filled_in_as_a_real_server_does() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("validation.json")).expect("JSON");
    let core = core();
    let mut wrong = Vec::new();
    for row in &recorded {
        let (kind, name) = (row["kind"].as_str().unwrap(), row["name"].as_str().unwrap());
        let (path, version) = collection(&core, kind);
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(row["object"].as_object().unwrap().clone());
        let (code, answer) = call(&core, Method::POST, &format!("{path}?dryRun=All"), object).await;
        if row["code"] != code {
            wrong.push(format!("{kind} {name}: {} became {code}: {:?}", row["code"], causes(&answer)));
        } else if code >= 300 {
            let wanted: Vec<String> = serde_json::from_value(row["causes"].clone()).unwrap();
            let (wanted, found) = (plain(wanted), plain(causes(&answer)));
            if wanted != found {
                wrong.push(format!("{kind} {name}: wanted {wanted:#?}, found {found:#?}"));
            }
        }
        for (field, made) in row["made"].as_object().into_iter().flatten() {
            let (made, found) = (json!({field: made}), json!({field: answer[field]}));
            if known(&made) != known(&found) {
                wrong.push(format!("{kind} {name}: wanted {made}, found {found}"));
            }
        }
    }
    assert!(recorded.len() > 240, "{}", recorded.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

// A45
#[tokio::test(start_paused = true)]
async fn keys_may_be_there_twice_in_lists_of_built_in_kinds() {
    let core = core();
    let mut twice = pod("p");
    twice["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    twice["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}, {"containerPort": 80}]);
    twice["spec"]["imagePullSecrets"] = json!([{"name": "a"}, {"name": "a"}]);
    let (code, answer) = call(&core, Method::POST, PODS, twice).await;
    assert_eq!(code, 201, "{answer}");
}

// A46
#[tokio::test(start_paused = true)]
async fn what_a_real_server_fixes_at_creation_stays() {
    let core = core();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}});
    assert_eq!(call(&core, Method::POST, jobs, job).await.0, 201);
    let changed = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}});
    let (code, answer) = call(&core, Method::PATCH, &format!("{jobs}/j"), changed).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.template")));
    // A patch without changes is accepted, and so is one of fields that may change.
    for fine in
        [json!({"spec": {"template": template}}), json!({"spec": {"suspend": true, "parallelism": 2}})]
    {
        let (code, answer) = call(&core, Method::PATCH, &format!("{jobs}/j"), fine).await;
        assert_eq!(code, 200, "{answer}");
    }
}

// A49
#[tokio::test(start_paused = true)]
async fn a_new_object_with_a_version_is_judged_first_and_may_be_tried() {
    let core = core();
    let mut given = config_map("a");
    given["metadata"]["resourceVersion"] = json!("5");
    let (code, answer) = call(&core, Method::POST, &format!("{MAPS}?dryRun=All"), given.clone()).await;
    assert_eq!((code, &answer["metadata"]["resourceVersion"]), (201, &json!("5")));
    assert_eq!(call(&core, Method::POST, MAPS, given.clone()).await.0, 500);
    given["data"] = json!({"a/b": "c"});
    assert_eq!(call(&core, Method::POST, MAPS, given).await.0, 422);
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/a"), Value::Null).await.0, 404);
}

// A50
#[tokio::test(start_paused = true)]
async fn a_write_of_the_status_writes_metadata_as_a_real_server_does() {
    let core = core();
    let given = json!({
        "metadata": {
            "annotations": {"x": "y"}, "labels": {"l": "m"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "u"}],
        },
        "spec": {"replicas": 7}, "status": {"observedGeneration": 3},
    });
    assert_eq!(call(&core, Method::POST, DEPLOYMENTS, deployment("d")).await.0, 201);
    let (code, made) = call(&core, Method::PATCH, &format!("{DEPLOYMENTS}/d/status"), given.clone()).await;
    assert_eq!(code, 200, "{made}");
    assert_eq!(made["metadata"]["annotations"]["x"], "y");
    assert_eq!(made["metadata"]["finalizers"], json!(["example.com/f"]));
    assert_eq!(made["metadata"]["labels"], Value::Null);
    assert_eq!((&made["spec"]["replicas"], &made["status"]["observedGeneration"]), (&json!(1), &json!(3)));
    assert_eq!(call(&core, Method::POST, PODS, pod("p")).await.0, 201);
    let (code, made) = call(&core, Method::PATCH, &format!("{PODS}/p/status"), given).await;
    assert_eq!(code, 200, "{made}");
    assert_eq!(
        (&made["metadata"]["labels"]["l"], &made["metadata"]["ownerReferences"]),
        (&json!("m"), &Value::Null)
    );
}

// A48
#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_as_its_budget_lets_it() {
    let core = core();
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    assert_eq!(call(&core, Method::POST, budgets, budget).await.0, 201);
    for name in ["waiting", "running"] {
        assert_eq!(call(&core, Method::POST, PODS, pod(name)).await.0, 201);
    }
    let at_work =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(call(&core, Method::PATCH, &format!("{PODS}/running/status"), at_work).await.0, 200);
    let evict = async |name: &str| {
        call(&core, Method::POST, &format!("{PODS}/{name}/eviction"), eviction(name)).await
    };
    assert_eq!(evict("nobody").await.0, 404);
    assert_eq!(evict("waiting").await.0, 201);
    assert_eq!(call(&core, Method::GET, &format!("{PODS}/waiting"), Value::Null).await.0, 404);
    let (code, answer) = evict("running").await;
    assert_eq!((code, &answer["details"]["retryAfterSeconds"]), (429, &json!(10)));
    let room = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}});
    assert_eq!(call(&core, Method::PATCH, &format!("{budgets}/b/status"), room).await.0, 200);
    let other = json!({"metadata": {"name": "other"}});
    assert_eq!(call(&core, Method::POST, &format!("{PODS}/running/eviction"), other).await.0, 400);
    let tried = format!("{PODS}/running/eviction?dryRun=All");
    assert_eq!(call(&core, Method::POST, &tried, eviction("running")).await.0, 201);
    assert_eq!(evict("running").await.0, 201);
    assert_eq!(call(&core, Method::GET, &format!("{PODS}/running"), Value::Null).await.0, 404);
    let (_, left) = call(&core, Method::GET, &format!("{budgets}/b"), Value::Null).await;
    assert_eq!(left["status"]["disruptionsAllowed"], 0);
}

// A51
#[tokio::test(start_paused = true)]
async fn every_cluster_has_its_service_and_its_priorities() {
    let core = core();
    for path in [
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps",
    ] {
        assert_eq!(call(&core, Method::GET, path, Value::Null).await.0, 200, "{path}");
    }
    core.restart(Restart::Empty).expect("it can");
    let service = "/api/v1/namespaces/default/services/kubernetes";
    assert_eq!(call(&core, Method::GET, service, Value::Null).await.0, 200);
}

// A52
#[tokio::test(start_paused = true)]
async fn without_controllers_garbage_and_namespaces_wait_for_somebody_else() {
    let core = Core::new(CoreConfig { controllers: Controllers::Off, ..CoreConfig::default() });
    let (_, owner) = call(&core, Method::POST, MAPS, config_map("owner")).await;
    let mut owned = config_map("owned");
    owned["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]);
    assert_eq!(call(&core, Method::POST, MAPS, owned).await.0, 201);
    assert_eq!(call(&core, Method::DELETE, &format!("{MAPS}/owner"), Value::Null).await.0, 200);
    core.settle();
    assert_eq!(call(&core, Method::GET, &format!("{MAPS}/owned"), Value::Null).await.0, 200);

    let namespace = "/api/v1/namespaces/n";
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(call(&core, Method::POST, "/api/v1/namespaces", named.clone()).await.0, 201);
    assert_eq!(call(&core, Method::DELETE, namespace, Value::Null).await.0, 200);
    core.settle();
    assert_eq!(call(&core, Method::GET, namespace, Value::Null).await.1["status"]["phase"], "Terminating");
    let mut finalized = named;
    finalized["spec"] = json!({"finalizers": []});
    assert_eq!(call(&core, Method::PUT, &format!("{namespace}/finalize"), finalized).await.0, 200);
    assert_eq!(call(&core, Method::GET, namespace, Value::Null).await.0, 404);
}

// A52
#[tokio::test(start_paused = true)]
async fn the_status_of_a_namespace_keeps_its_label_and_its_phase() {
    let core = core();
    let named = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(call(&core, Method::POST, "/api/v1/namespaces", named.clone()).await.0, 201);
    let condition =
        json!({"type": "NamespaceDeletionContentFailure", "status": "True", "reason": "x", "message": "m"});
    let status = "/api/v1/namespaces/n/status";
    let (code, made) =
        call(&core, Method::PATCH, status, json!({"status": {"conditions": [condition]}})).await;
    assert_eq!((code, &made["status"]["conditions"][0]["reason"]), (200, &json!("x")));
    let mut whole = named;
    whole["status"] = json!({"phase": "Active"});
    let (_, made) = call(&core, Method::PUT, status, whole).await;
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "n");
    let (code, _) = call(&core, Method::PATCH, status, json!({"status": {"phase": "Terminating"}})).await;
    assert_eq!(code, 422);
    let finalizers = json!({"spec": {"finalizers": []}});
    assert_eq!(call(&core, Method::PATCH, "/api/v1/namespaces/n/finalize", finalizers).await.0, 405);
}

// A53
#[tokio::test(start_paused = true)]
async fn a_new_definition_has_its_names_at_once_and_its_approval_once_it_is_served() {
    let core = core();
    let mut crd = definition("widgets", json!({"x-kubernetes-preserve-unknown-fields": true}));
    crd["spec"]["group"] = json!("example.k8s.io");
    crd["metadata"] =
        json!({"name": "widgets.example.k8s.io", "annotations": {"api-approved.kubernetes.io": "foo"}});
    assert_eq!(call(&core, Method::POST, CRDS, crd.clone()).await.0, 422);
    crd["metadata"]["annotations"]["api-approved.kubernetes.io"] = json!("unapproved, a test");
    let (code, made) = call(&core, Method::POST, CRDS, crd).await;
    assert_eq!((code, &made["status"]["conditions"]), (201, &Value::Null), "{made}");
    let path = format!("{CRDS}/widgets.example.k8s.io");
    let reasons = |crd: &Value| -> Vec<String> {
        let list = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        list.iter().map(|condition| condition["reason"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let (_, seen) = call(&core, Method::GET, &path, Value::Null).await;
    assert_eq!(reasons(&seen), ["NoConflicts", "Installing"]);
    core.settle();
    let (_, seen) = call(&core, Method::GET, &path, Value::Null).await;
    assert_eq!(reasons(&seen), ["NoConflicts", "InitialNamesAccepted", "UnapprovedAnnotation"]);
}

// A54
#[tokio::test(start_paused = true)]
async fn a_definition_that_somebody_holds_goes_when_they_let_go() {
    let core = core();
    let mut crd = definition("widgets", json!({"type": "object"}));
    crd["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let path = format!("{CRDS}/widgets.example.com");
    assert_eq!(call(&core, Method::POST, CRDS, crd).await.0, 201);
    core.settle();
    assert_eq!(call(&core, Method::DELETE, &path, Value::Null).await.0, 200);
    core.settle();
    let (_, held) = call(&core, Method::GET, &path, Value::Null).await;
    assert_eq!(held["metadata"]["finalizers"], json!(["example.com/hold"]));
    let freed = json!({"metadata": {"finalizers": null}});
    assert_eq!(call(&core, Method::PATCH, &path, freed).await.0, 200);
    core.settle();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    assert_eq!(call(&core, Method::GET, widgets, Value::Null).await.0, 404);
}

// A55, wire 309
#[tokio::test(start_paused = true)]
async fn a_write_of_a_custom_scale_has_no_time() {
    let core = core();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    assert_eq!(call(&core, Method::POST, CRDS, definition("widgets", schema)).await.0, 201);
    core.settle();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"n": 1}});
    assert_eq!(call(&core, Method::POST, path, widget).await.0, 201);
    let scale = json!({"spec": {"replicas": 2}});
    assert_eq!(call(&core, Method::PATCH, &format!("{path}/w/scale"), scale).await.0, 200);
    let (_, made) = call(&core, Method::GET, &format!("{path}/w"), Value::Null).await;
    for entry in made["metadata"]["managedFields"].as_array().expect("entries") {
        assert_eq!(entry.get("time").is_none(), entry["subresource"] == "scale", "{entry}");
    }
}

// A56
#[tokio::test(start_paused = true)]
async fn containers_are_added_to_a_pod_and_stay_as_they_are() {
    let core = core();
    assert_eq!(call(&core, Method::POST, PODS, pod("p")).await.0, 201);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let add = |list: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"ephemeralContainers": list}});
    let first = json!({"name": "debug", "image": "a", "targetContainerName": "c"});
    let (code, made) = call(&core, Method::PUT, &path, add(json!([first]))).await;
    assert_eq!(code, 200, "{made}");
    assert_eq!(made["spec"]["containers"][0]["image"], "i");
    let made = made["spec"]["ephemeralContainers"][0].clone();
    assert_eq!(made["imagePullPolicy"], "Always");
    for (list, field) in [
        (json!([]), "spec.ephemeralContainers"),
        (json!([{"name": "debug", "image": "b"}]), "spec.ephemeralContainers"),
        (
            json!([made, {"name": "more", "image": "b", "targetContainerName": "x"}]),
            "spec.ephemeralContainers[1].targetContainerName",
        ),
        (
            json!([made, {"name": "more", "image": "b", "ports": [{"containerPort": 1}]}]),
            "spec.ephemeralContainers[1].ports",
        ),
    ] {
        let (code, answer) = call(&core, Method::PUT, &path, add(list)).await;
        assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!(field)), "{answer}");
    }
}

// A57
#[tokio::test(start_paused = true)]
async fn limits_and_claims_are_filled_in_from_each_other() {
    let core = core();
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}]}});
    let (_, made) = call(&core, Method::POST, "/api/v1/namespaces/default/limitranges", limits).await;
    let limit = &made["spec"]["limits"][0];
    assert_eq!(limit["default"], json!({"cpu": "2"}));
    assert_eq!(limit["defaultRequest"], json!({"cpu": "2", "memory": "1Mi"}));
}

//! What an API server may send, and what comes back.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::{Instant, sleep};

use super::*;
use crate::{
    versions::testing::{Shop, v1alpha1},
    webhook::{
        Calls, Change, Defaulter, Request, Review, Validator, Webhooks, configuration::configurations,
    },
};

struct Rules;

impl Validator<ConfigMap> for Rules {
    async fn validate(&self, change: Change<'_, ConfigMap>, review: &mut Review) {
        let data = change.object().data.clone().unwrap_or_default();
        let has = |key: &str| data.contains_key(key);
        match () {
            () if has("panic") => panic!("rules"),
            () if has("slow") => sleep(Duration::from_secs(60)).await,
            () if has("refuse") => review.refuse("not today"),
            () => {}
        }
        if has("fields") {
            review.field("data.a").required();
            review.field("data.b").invalid(7, "must be even");
            review.field("data.c").not_supported("x", ["y", "z"]);
            review.field("data.d").duplicate(json!({"e": 1}));
            review.field("data.d").duplicate(json!({"e": 1}));
        }
        if let Change::Update { old, .. } = change
            && old.immutable == Some(true)
        {
            review.field("data").forbidden("is immutable");
        }
        if review.request().is_dry_run() {
            review.warn(format!(
                "only tried by {}",
                review.request().user().username.as_deref().unwrap_or("?")
            ));
        }
    }
}

impl Defaulter<ConfigMap> for Rules {
    fn default(&self, object: &mut ConfigMap, request: &Request) {
        let data = object.data.get_or_insert_default();
        assert!(!data.contains_key("panic"));
        data.entry("user".to_owned()).or_insert_with(|| request.user().username.clone().unwrap_or_default());
    }
}

const VALIDATES: &str = "/validates/core/configmaps";
const DEFAULTS: &str = "/defaults/core/configmaps";

fn webhooks(calls: Calls) -> Webhooks {
    let webhooks = Webhooks::new(":0").validates_with::<ConfigMap>(calls, Rules).defaults::<ConfigMap>(Rules);
    webhooks.caches_have_synced();
    webhooks.converts::<Shop>()
}

fn object(data: &[&str]) -> Value {
    let data: serde_json::Map<_, _> = data.iter().map(|key| ((*key).to_owned(), json!("x"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data, "newer": {"b": [1]}})
}

fn review(request: Value) -> Value {
    let mut whole = json!({
        "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "name": "a", "namespace": "shop",
        "operation": "CREATE", "userInfo": {"username": "ann"}, "object": object(&[]), "oldObject": null,
        "dryRun": false, "options": {"kind": "CreateOptions"},
    });
    for (name, value) in request.as_object().unwrap() {
        whole[name] = value.clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole})
}

/// Sends a request, and returns the response in the review.
async fn ask(webhooks: &Webhooks, path: &str, request: Value) -> Value {
    let answer = webhooks.handle(path, "timeout=5s", review(request).to_string().as_bytes()).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(answer.body["apiVersion"], "admission.k8s.io/v1");
    let response = answer.body["response"].clone();
    assert_eq!(response["uid"], "u-1", "{response}");
    response
}

#[tokio::test]
async fn what_is_not_a_review_is_an_error_and_never_allowed() {
    let webhooks = webhooks(Calls::new().ignore_failures());
    let of = |change: fn(&mut Value)| {
        let mut review = review(json!({}));
        change(&mut review);
        review.to_string()
    };
    let large = format!("{}{}", of(|_| {}), " ".repeat(MOST_OF_AN_OBJECT));
    for (path, body, code, why) in [
        (VALIDATES, "{".to_owned(), 400, "is not a review"),
        (VALIDATES, String::new(), 400, "is not a review"),
        (VALIDATES, "[]".to_owned(), 400, "this path takes admission.k8s.io/v1 AdmissionReview"),
        (VALIDATES, "\u{0}\u{1}".to_owned(), 400, "is not a review"),
        (VALIDATES, "[".repeat(100_000), 400, "is not a review"),
        (VALIDATES, of(|review| review["apiVersion"] = "admission.k8s.io/v1beta1".into()), 400, "v1beta1"),
        (VALIDATES, of(|review| review["kind"] = "ConversionReview".into()), 400, "ConversionReview"),
        (VALIDATES, of(|review| review["request"] = Value::Null), 400, "no request with a uid"),
        (VALIDATES, of(|review| review["request"]["uid"] = "".into()), 400, "no request with a uid"),
        (VALIDATES, of(|review| review["request"]["uid"] = 7.into()), 400, "no request with a uid"),
        (VALIDATES, large, 413, "8388608 bytes"),
        ("/validates/core/secrets", of(|_| {}), 404, "no webhook is at"),
        ("/", of(|_| {}), 404, "no webhook is at"),
        ("/convert", of(|_| {}), 400, "this path takes apiextensions.k8s.io/v1 ConversionReview"),
    ] {
        let answer = webhooks.handle(path, "", body.as_bytes()).await;
        let text = answer.body.as_str().unwrap_or_default();
        assert!(answer.code == code && text.contains(why), "{path}: {} {text}", answer.code);
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_gets_an_answer_with_its_uid() {
    let strict = webhooks(Calls::new().deletions());
    let lenient = webhooks(Calls::new().deletions().ignore_failures());
    let kind = json!({"group": "", "version": "v1", "kind": "Secret"});
    // The request, the code of the refusal, and whether the failure policy decides.
    let refused = [
        (json!({"kind": kind}), 400, false, "this webhook decides about v1 ConfigMap, not v1 Secret"),
        (json!({"operation": "CONNECT"}), 400, false, "does not decide about CONNECT"),
        (json!({"operation": "PATCH"}), 400, false, "the request can't be read: unknown variant `PATCH`"),
        (json!({"subResource": "status"}), 400, false, "does not decide about status"),
        (json!({"object": null}), 400, false, "the review has no object for CREATE"),
        (json!({"operation": "UPDATE"}), 400, false, "the review has no oldObject for UPDATE"),
        (
            json!({"operation": "DELETE", "object": null}),
            400,
            false,
            "the review has no oldObject for DELETE",
        ),
        (
            json!({"operation": "DELETE", "object": null, "oldObject": {"metadata": {}, "data": {"a": 7}}}),
            400,
            true,
            "invalid type: integer `7`, expected a string",
        ),
        (
            json!({"object": {"metadata": {}, "data": {"a": 7}}}),
            422,
            false,
            "invalid type: integer `7`, expected a string",
        ),
        (json!({"object": "x"}), 400, false, "object can't be read"),
        (json!({"object": object(&["panic"])}), 500, true, "the validator panicked"),
        (json!({"object": object(&["slow"])}), 504, true, "no answer within 4.5s"),
        (json!({"object": object(&["refuse"])}), 403, false, "configmaps \"a\" is forbidden: not today"),
    ];
    for (request, code, by_policy, why) in refused {
        let begun = Instant::now();
        let response = ask(&strict, VALIDATES, request.clone()).await;
        assert!(begun.elapsed() < Duration::from_secs(5));
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(code)),
            "{request}"
        );
        assert!(message.contains(why), "{message}");
        let response = ask(&lenient, VALIDATES, request).await;
        assert_eq!(response["allowed"], by_policy, "{response}");
        assert!(!by_policy || response["warnings"][0].as_str().unwrap().contains(why), "{response}");
    }
    let allowed = ask(&strict, VALIDATES, json!({"dryRun": true})).await;
    assert_eq!(allowed, json!({"uid": "u-1", "allowed": true, "warnings": ["only tried by ann"]}));
    let deleted = json!({"operation": "DELETE", "object": null, "oldObject": object(&[])});
    assert_eq!(ask(&strict, VALIDATES, deleted).await, json!({"uid": "u-1", "allowed": true}));
}

#[tokio::test]
async fn whoever_takes_a_finalizer_off_is_not_asked_for_anything_else() {
    let webhooks = webhooks(Calls::new());
    let of = |finalizers: &[&str]| {
        let mut object = object(&["refuse"]);
        object["metadata"]["finalizers"] = json!(finalizers);
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        object
    };
    let update = |new: &Value, old: &Value| json!({"operation": "UPDATE", "object": new, "oldObject": old});
    let (both, one) = (of(&["a", "b"]), of(&["b"]));
    for path in [VALIDATES, DEFAULTS] {
        let allowed = ask(&webhooks, path, update(&one, &both)).await;
        assert_eq!(allowed, json!({"uid": "u-1", "allowed": true}));
    }
    let edited = |change: fn(&mut Value)| {
        let mut object = one.clone();
        change(&mut object);
        object
    };
    let smuggled = [
        edited(|object| object["data"]["b"] = "x".into()),
        edited(|object| object["metadata"]["labels"] = json!({"a": "b"})),
        edited(|object| object["metadata"]["finalizers"] = json!(["c"])),
        edited(|object| object["metadata"]["ownerReferences"] = json!([{"name": "x"}])),
        both.clone(),
    ];
    for new in &smuggled {
        assert_eq!(ask(&webhooks, VALIDATES, update(new, &both)).await["allowed"], false, "{new}");
    }
    let mut stays = both.clone();
    stays["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    assert_eq!(ask(&webhooks, VALIDATES, update(&one, &stays)).await["allowed"], false);
}

/// Sees which subresource is changed.
struct Subresources;

impl Validator<ConfigMap> for Subresources {
    async fn validate(&self, _: Change<'_, ConfigMap>, review: &mut Review) {
        review.warn(format!("about {:?}", review.request().subresource()));
    }
}

impl Defaulter<ConfigMap> for Subresources {
    fn default(&self, object: &mut ConfigMap, request: &Request) {
        let subresource = request.subresource().unwrap_or("none").to_owned();
        object.data.get_or_insert_default().insert("subresource".to_owned(), subresource);
    }
}

#[tokio::test]
async fn status_is_sent_to_those_that_ask_for_it() {
    let webhooks = Webhooks::new(":0")
        .validates_with::<ConfigMap>(Calls::new().status(), Subresources)
        .defaults_with::<ConfigMap>(Calls::new().status(), Subresources);
    webhooks.caches_have_synced();
    let of = |subresource: &str| json!({"operation": "UPDATE", "subResource": subresource, "oldObject": object(&[])});
    let said = ask(&webhooks, VALIDATES, of("status")).await;
    assert_eq!(said, json!({"uid": "u-1", "allowed": true, "warnings": ["about Some(\"status\")"]}));
    let said = ask(&webhooks, VALIDATES, of("")).await;
    assert_eq!(said["warnings"], json!(["about None"]), "{said}");
    let said = ask(&webhooks, DEFAULTS, of("status")).await;
    let patch: ByteString = serde_json::from_value(said["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch.0).unwrap();
    assert_eq!(patch, json!([{"op": "add", "path": "/data/subresource", "value": "status"}]), "{said}");
    for (path, subresource) in [(VALIDATES, "scale"), (DEFAULTS, "scale"), (VALIDATES, "status/x")] {
        let said = ask(&webhooks, path, of(subresource)).await;
        let why = said["status"]["message"].as_str().unwrap_or_default();
        assert!(
            said["allowed"] == false && why.ends_with(&format!("does not decide about {subresource}")),
            "{said}"
        );
    }
    // A defaulter that can't read an object leaves it to a validator, which must be asked about the status as well.
    let wrong = json!({"operation": "UPDATE", "subResource": "status", "oldObject": object(&[]),
        "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": 7}}});
    assert_eq!(ask(&webhooks, DEFAULTS, wrong.clone()).await["allowed"], true);
    let unseen = Webhooks::new(":0")
        .validates::<ConfigMap>(Subresources)
        .defaults_with::<ConfigMap>(Calls::new().status(), Subresources);
    unseen.caches_have_synced();
    assert_eq!(ask(&unseen, DEFAULTS, wrong).await["allowed"], false);
}

#[tokio::test]
async fn errors_of_fields_are_as_the_api_server_writes_them() {
    let webhooks = webhooks(Calls::new());
    let response = ask(&webhooks, VALIDATES, json!({"object": object(&["fields"])})).await;
    let cause = |reason: &str, field: &str, message: &str| json!({"reason": reason, "field": field, "message": message});
    let status = &response["status"];
    assert_eq!(status["reason"], "Invalid");
    assert_eq!(status["code"], 422);
    assert_eq!(
        status["message"],
        "ConfigMap \"a\" is invalid: [data.a: Required value, data.b: Invalid value: 7: must be even, data.c: \
         Unsupported value: \"x\": supported values: \"y\", \"z\", data.d: Duplicate value: {\"e\":1}]"
    );
    assert_eq!(status["details"]["kind"], "ConfigMap");
    assert_eq!(
        status["details"]["causes"][1],
        cause("FieldValueInvalid", "data.b", "Invalid value: 7: must be even")
    );
    let mut old = object(&[]);
    old["immutable"] = true.into();
    let response = ask(&webhooks, VALIDATES, json!({"operation": "UPDATE", "oldObject": old})).await;
    assert_eq!(response["status"]["message"], "ConfigMap \"a\" is invalid: data: Forbidden: is immutable");
}

#[tokio::test]
async fn defaults_are_a_patch_of_the_raw_object() {
    let webhooks = webhooks(Calls::new());
    let response = ask(&webhooks, DEFAULTS, json!({"object": object(&["a"])})).await;
    assert_eq!((&response["allowed"], &response["patchType"]), (&json!(true), &json!("JSONPatch")));
    let patch: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&patch.0).unwrap();
    assert_eq!(patch, json!([{"op": "add", "path": "/data/user", "value": "ann"}]));
    let response = ask(&webhooks, DEFAULTS, json!({"object": object(&["user"])})).await;
    assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    let response = ask(&webhooks, DEFAULTS, json!({"object": object(&["panic"])})).await;
    assert_eq!(response["status"]["code"], 500);
}

#[tokio::test]
async fn an_object_that_can_t_be_read_names_the_field() {
    let webhooks = webhooks(Calls::new());
    for (object, message) in [
        (json!({"data": {"a": 7}}), "data.a: Invalid value: 7: invalid type: integer `7`, expected a string"),
        (json!({"data": {"a": {"b": "c"}}}), "data.a: Invalid value: invalid type: map, expected a string"),
    ] {
        let response = ask(&webhooks, VALIDATES, json!({"object": object})).await;
        let wanted = format!("ConfigMap \"a\" is invalid: {message}");
        assert_eq!(response["status"]["message"], wanted);
        assert_eq!(response["status"]["reason"], "Invalid");
    }
    // Otherwise nobody could put it right.
    let old = json!({"operation": "UPDATE", "oldObject": {"data": {"a": 7}}});
    let response = ask(&webhooks, VALIDATES, old).await;
    assert_eq!(response["allowed"], true, "{response}");
    assert!(response["warnings"][0].as_str().unwrap().contains("can't be read"), "{response}");
    let deleted = json!({"operation": "DELETE", "object": null, "oldObject": {"data": {"a": 7}}});
    assert_eq!(ask(&webhooks, VALIDATES, deleted).await["status"]["code"], 400);
    let webhooks = Webhooks::new(":0").validates::<Shop>(AtLeast(1)).converts::<Shop>();
    webhooks.caches_have_synced();
    for (version, wrong, right, message) in [
        (
            "v1",
            json!({"size": {"least": 1, "most": 1}}),
            json!({"size": {"least": 1, "most": 1}, "ports": []}),
            "spec.ports: Required value",
        ),
        (
            "v1alpha1",
            json!({"size": "x"}),
            json!({"size": 1, "ports": []}),
            "spec.size: Invalid value: \"x\": invalid type: string \"x\", expected i32",
        ),
    ] {
        let kind = json!({"group": "shops.dev", "version": version, "kind": "Shop"});
        let shop = |spec: &Value| {
            let api_version = format!("shops.dev/{version}");
            json!({"apiVersion": api_version, "kind": "Shop", "metadata": {"name": "a"}, "spec": spec})
        };
        let create = json!({"kind": kind, "object": shop(&wrong)});
        let response = ask(&webhooks, "/validates/shops.dev/shops", create).await;
        assert_eq!(response["status"]["message"], format!("Shop.shops.dev \"a\" is invalid: {message}"));
        let update =
            json!({"kind": kind, "operation": "UPDATE", "object": shop(&right), "oldObject": shop(&wrong)});
        let response = ask(&webhooks, "/validates/shops.dev/shops", update).await;
        assert_eq!(response["allowed"], true, "{response}");
    }
    let kind = json!({"group": "shops.dev", "version": "v1", "kind": "Shop"});
    let bare = json!({"kind": kind, "object": {}});
    let response = ask(&webhooks, "/validates/shops.dev/shops", bare).await;
    assert_eq!(response["status"]["message"], "Shop.shops.dev \"a\" is invalid: metadata: Required value");
}

// The API server's schema comes after defaulters and before validators, and names every mistake.
#[tokio::test]
async fn a_defaulter_leaves_an_object_that_it_can_t_read_to_those_that_come_after_it() {
    let unreadable = json!({"object": {"data": {"a": 7}}});
    let allowed = json!({"uid": "u-1", "allowed": true});
    assert_eq!(ask(&webhooks(Calls::new()), DEFAULTS, unreadable.clone()).await, allowed);
    for calls in [
        Calls::new().ignore_failures(),
        Calls::new().only_updates(),
        Calls::new().only_if("a", "object.metadata.name != 'a'"),
    ] {
        let response = ask(&webhooks(calls.clone()), DEFAULTS, unreadable.clone()).await;
        assert_eq!(response["status"]["code"], 422, "nobody must look at it later: {calls:?}");
    }
}

/// Refuses what its version calls too small, and warns in any case.
struct AtLeast(i32);

impl Validator<Shop> for AtLeast {
    async fn validate(&self, change: Change<'_, Shop>, review: &mut Review) {
        let least = change.object().spec.size.least;
        if least < self.0 {
            review.field("spec.size.least").invalid(least, format!("must be at least {}", self.0));
        }
        review.warn("seen");
    }
}

impl Validator<v1alpha1::Shop> for AtLeast {
    async fn validate(&self, change: Change<'_, v1alpha1::Shop>, review: &mut Review) {
        let size = change.object().spec.size;
        if size < self.0 {
            review.field("spec.size").invalid(size, format!("must be at least {}", self.0));
        }
        review.warn("seen");
    }
}

#[tokio::test]
async fn a_mistake_is_named_by_the_validators_of_the_version_that_the_user_wrote() {
    let webhooks = Webhooks::new(":0")
        .validates::<Shop>(AtLeast(5))
        .validates::<Shop>(AtLeast(3))
        .validates::<v1alpha1::Shop>(AtLeast(3))
        .converts::<Shop>();
    webhooks.caches_have_synced();
    let rules =
        configurations(&webhooks, "shops", None).validating.unwrap().webhooks.unwrap()[0].rules.clone();
    let versions = ["v1", "v1beta1", "v1alpha1"].map(str::to_owned).to_vec();
    assert_eq!(rules.unwrap()[0].api_versions, Some(versions), "objects come as they were written");
    let said = async |version: &str, size: Value| {
        let object = json!({"apiVersion": format!("shops.dev/{version}"), "kind": "Shop", "metadata": {"name": "a"},
            "spec": {"size": size, "ports": []}});
        let kind = json!({"group": "shops.dev", "version": version, "kind": "Shop"});
        let response =
            ask(&webhooks, "/validates/shops.dev/shops", json!({"kind": kind, "object": object})).await;
        assert_eq!(response["warnings"], json!(["seen"]), "{response}");
        let message = response["status"]["message"].as_str().unwrap_or("allowed");
        message.replace("Shop.shops.dev \"a\" is invalid: ", "")
    };
    let (five, three) = ("must be at least 5", "must be at least 3");
    for (version, size, wanted) in [
        ("v1alpha1", json!(2), format!("spec.size: Invalid value: 2: {three}")),
        ("v1alpha1", json!(4), format!("spec.size.least: Invalid value: 4: {five}")),
        ("v1alpha1", json!(5), "allowed".to_owned()),
        (
            "v1",
            json!({"least": 2, "most": 2}),
            format!(
                "[spec.size.least: Invalid value: 2: {five}, spec.size.least: Invalid value: 2: {three}]"
            ),
        ),
        ("v1beta1", json!({"least": 4, "most": 4}), format!("spec.size.least: Invalid value: 4: {five}")),
    ] {
        assert_eq!(said(version, size).await, wanted, "{version}");
    }
}

#[tokio::test]
async fn an_object_of_a_version_that_is_not_converted_is_refused() {
    let webhooks = Webhooks::new(":0").validates::<Shop>(AtLeast(3)).validates::<v1alpha1::Shop>(AtLeast(3));
    webhooks.caches_have_synced();
    let object = json!({"apiVersion": "shops.dev/v1", "kind": "Shop", "metadata": {"name": "a"},
        "spec": {"size": {"least": 9, "most": 9}, "ports": []}});
    let kind = json!({"group": "shops.dev", "version": "v1", "kind": "Shop"});
    let response =
        ask(&webhooks, "/validates/shops.dev/shops", json!({"kind": kind, "object": object})).await;
    let why = "the object is of shops.dev/v1, and this program does not convert it to shops.dev/v1alpha1";
    assert_eq!(response["status"]["message"], format!("validates.shops.shops.dev: {why}"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_waits_for_the_caches_and_a_conversion_does_not() {
    let webhooks = Webhooks::new(":0").validates::<ConfigMap>(Rules).converts::<Shop>();
    let response = ask(&webhooks, VALIDATES, json!({})).await;
    assert_eq!(response["status"]["message"], "validates.configmaps.core.k8s.io: caches have not synced yet");
    let shop = json!({"apiVersion": "shops.dev/v1alpha1", "kind": "Shop", "metadata": {"name": "a"},
        "spec": {"size": 3, "ports": []}});
    let begun = Instant::now();
    let review = |objects: Value, to: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u-2", "desiredAPIVersion": to, "objects": objects}})
    };
    let convert = async |objects: Value, to: &str| {
        let body = review(objects, to).to_string();
        let answer = webhooks.handle("/convert", "timeout=30s", body.as_bytes()).await;
        assert_eq!((answer.code.as_u16(), &answer.body["response"]["uid"]), (200, &json!("u-2")));
        answer.body["response"].clone()
    };
    let response = convert(json!([shop, shop]), "shops.dev/v1").await;
    assert_eq!(response["result"]["status"], "Success");
    assert_eq!(response["convertedObjects"][1]["spec"]["size"], json!({"least": 3, "most": 3}));
    let mut bad = shop.clone();
    bad["spec"]["size"] = "x".into();
    for (objects, to, why) in [
        (json!([shop, bad]), "shops.dev/v1", "Shop a of shops.dev/v1alpha1: spec.size: invalid type"),
        (json!([shop]), "shops.dev/v9", "is not a version of this program"),
        (json!([shop]), "other.dev/v1", "does not convert Shop of other.dev/v1"),
        (json!([7]), "shops.dev/v1", "does not convert  of shops.dev/v1"),
        (json!(null), "shops.dev/v1", "has no objects"),
    ] {
        let response = convert(objects, to).await;
        let message = response["result"]["message"].as_str().unwrap();
        assert!(response["result"]["status"] == "Failed" && message.contains(why), "{message}");
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    webhooks.caches_have_synced();
    assert_eq!(ask(&webhooks, VALIDATES, json!({})).await["allowed"], true);
}

#[tokio::test]
async fn an_object_that_lies_too_deep_is_named_and_its_review_is_read() {
    let webhooks = Webhooks::new(":0").converts::<Shop>();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let shop = |name: &str, note: &str| {
        format!(
            r#"{{"apiVersion": "shops.dev/v1alpha1", "kind": "Shop", "metadata": {{"name": "{name}", "namespace": "east"}},
                "spec": {{"size": 3, "ports": [], "note": {note}}}}}"#
        )
    };
    let answer = async |objects: String| {
        let body = format!(
            r#"{{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "request": {{"uid": "u-2", "desiredAPIVersion": "shops.dev/v1", "objects": [{objects}]}}}}"#
        );
        let answer = webhooks.handle("/convert", "", body.as_bytes()).await;
        assert_eq!((answer.code.as_u16(), &answer.body["response"]["uid"]), (200, &json!("u-2")));
        answer.body["response"]["result"].clone()
    };
    let result = answer(format!("{},{}", shop("a", "7"), shop("b", &deep))).await;
    let message = result["message"].as_str().unwrap();
    assert!(message.starts_with("Shop east/b of shops.dev/v1alpha1 can't be read: recursion"), "{message}");
    assert_eq!(answer(shop("a", "7")).await["status"], "Success");
}

#[test]
fn durations_are_read_as_go_writes_them() {
    let read = |text: &str| go_duration(text).map(|time| time.as_secs_f64());
    for (text, seconds) in [("10s", 10.0), ("1m30s", 90.0), ("500ms", 0.5), ("1.5s", 1.5), ("1h", 3_600.0)] {
        assert_eq!(read(text), Some(seconds));
    }
    for text in ["", "10", "s", "-1s", "1x", "1s2", "ten", "1e999s", "99999999999999999999h"] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_and_decisions_are_counted_and_a_call_that_is_dropped_is_not_in_flight() {
    let metrics = crate::metrics::Metrics::new();
    let webhooks = webhooks(Calls::new()).counted_in(WebhookMetrics::of(&metrics));
    let shows = |line: &str| {
        let page = metrics.encode();
        assert!(page.lines().any(|shown| shown == line), "{line}\n{page}");
    };
    for data in ["fine", "refuse", "panic"] {
        ask(&webhooks, VALIDATES, json!({"object": object(&[data])})).await;
    }
    webhooks.handle("/made-up", "", b"{}").await;
    webhooks.handle(VALIDATES, "", b"{").await;
    let review = review(json!({"object": object(&["slow"])})).to_string();
    {
        let mut call = std::pin::pin!(webhooks.handle(VALIDATES, "", review.as_bytes()));
        assert!(futures::poll!(&mut call).is_pending());
        shows(&format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATES}\"}} 1"));
    }
    shows(&format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{VALIDATES}\"}} 0"));
    shows(&format!("controller_runtime_webhook_requests_total{{webhook=\"{VALIDATES}\",code=\"200\"}} 3"));
    shows(&format!("controller_runtime_webhook_requests_total{{webhook=\"{VALIDATES}\",code=\"400\"}} 1"));
    for (decision, count) in [("allowed", 1), ("refused", 1), ("failed", 1)] {
        shows(&format!(
            "watchkeeper_webhook_decisions_total{{webhook=\"{VALIDATES}\",decision=\"{decision}\"}} {count}"
        ));
    }
    assert!(!metrics.encode().contains("made-up"));
}

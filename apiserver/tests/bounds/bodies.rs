//! The bodies: each family grows what it can grow, in depth, in size, or in the work that it asks for.

use http::Method;
use rand::Rng as _;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A request to send.
pub(crate) struct Sent {
    /// The family.
    pub(crate) what: &'static str,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) media: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    fn new(what: &'static str, method: Method, path: &str, media: &'static str, body: impl ToString) -> Self {
        Self { what, method, path: path.to_owned(), media, body: body.to_string().into_bytes() }
    }

    /// Returns what a fault shows of the body.
    pub(crate) fn beginning(&self) -> String {
        let shown = &self.body[..self.body.len().min(300)];
        String::from_utf8_lossy(shown).into_owned()
    }
}

fn things(client: u64) -> String {
    format!("/apis/c{client}.example.com/v1/namespaces/default/things")
}

/// The definition of a client's own kind: of `free` anything is kept, `spec` has a rule.
fn definition(client: u64, rule: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.c{client}.example.com")},
        "spec": {
            "group": format!("c{client}.example.com"), "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "free": {"x-kubernetes-preserve-unknown-fields": true},
                    "spec": {
                        "type": "object",
                        "properties": {
                            "text": {"type": "string"},
                            "list": {"type": "array", "items": {"type": "string"}},
                            "numbers": {"type": "array", "items": {"type": "integer"}},
                        },
                        "x-kubernetes-validations": [{"rule": rule}],
                    },
                },
            }}}],
        },
    })
}

fn thing(client: u64, name: &str) -> Value {
    json!({"apiVersion": format!("c{client}.example.com/v1"), "kind": "Thing", "metadata": {"name": name}})
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i"}]},
    })
}

/// What is to be there before hostile bodies come.
pub(crate) fn prepare(client: u64) -> Vec<Sent> {
    let mut free = thing(client, "t");
    free["free"] = json!({"a": {"b": {"c": "d"}}, "l": [1, 2, 3]});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("d{client}")},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template()},
    });
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{client}")}});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "metadata": {"name": format!("h{client}")},
        "webhooks": [{
            "name": "h.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
            "objectSelector": {"matchLabels": {"asked": format!("c{client}")}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
        }],
    });
    let post = |path: &str, body: Value| Sent::new("preparation", Method::POST, path, JSON, body);
    let established = std::iter::once(post(CRDS, definition(client, "true")));
    let policies = ["Validating", "Mutating"].into_iter().flat_map(|family| {
        let (name, spec) = (format!("p{client}"), policy_spec(client, family, json!([]), &harmless(family)));
        let object = |suffix: &str, spec: Value| {
            let kind = format!("{family}AdmissionPolicy{suffix}");
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
            })
        };
        let mut binding = json!({ "policyName": name });
        if family == "Validating" {
            binding["validationActions"] = json!(["Deny"]);
        }
        let family = family.to_lowercase();
        [
            post(&format!("{ADMISSION}/{family}admissionpolicies"), object("", spec)),
            post(&format!("{ADMISSION}/{family}admissionpolicybindings"), object("Binding", binding)),
        ]
    });
    established
        .chain([
            post("/apis/apps/v1/namespaces/default/deployments", deployment),
            post(MAPS, map),
            post(hooks, hook),
        ])
        .chain(policies)
        .collect()
}

/// What a policy of a family does that refuses and changes nothing.
fn harmless(family: &str) -> String {
    if family == "Validating" { "true".to_owned() } else { "[]".to_owned() }
}

/// A policy about the objects that are labelled for it.
fn policy_spec(client: u64, family: &str, variables: Value, expression: &str) -> Value {
    let mut spec = json!({
        "failurePolicy": "Fail", "variables": variables,
        "matchConstraints": {
            "objectSelector": {"matchLabels": {"asked": format!("p{client}")}},
            "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
            }],
        },
    });
    if family == "Validating" {
        spec["validations"] =
            json!([{"expression": expression, "messageExpression": "string(object.data.text)"}]);
    } else {
        spec["reinvocationPolicy"] = "IfNeeded".into();
        let is_list = expression.contains("JSONPatch") || expression.starts_with('[');
        spec["mutations"] = match is_list {
            true => json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]),
            false => {
                json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}])
            }
        };
    }
    spec
}

fn policy(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let of_maps = |rule: String| {
        rule.replace("self.text", "object.data.text").replace("self.list", "object.data.text.split('')")
    };
    // Each variable is twice the one before.
    let doublings = [0, 1, 10, 30, 60][random.random_range(0..5)];
    let doubled = |at: usize| match at {
        0 => json!({"name": "v0", "expression": "object.data.text"}),
        _ => {
            json!({"name": format!("v{at}"), "expression": format!("variables.v{0} + variables.v{0}", at - 1)})
        }
    };
    let variables: Vec<Value> = (0..=doublings).map(doubled).collect();
    let last = format!("variables.v{doublings}");
    let times = [1, 100, 10_000, u32::MAX][random.random_range(0..4)];
    let (family, expression) = match random.random_range(0..7) {
        0 | 1 => ("Validating", of_maps(truth(random))),
        2 => ("Validating", format!("size({last}) > 0")),
        3 => {
            let many = format!(
                "lists.range({times}).map(i, JSONPatch{{op: 'add', path: '/data/k' + string(i), value: {last}}})"
            );
            ("Mutating", many)
        }
        4 => ("Mutating", format!("[JSONPatch{{op: 'add', path: '/data/k', value: {last}}}]")),
        5 => ("Mutating", format!("Object{{data: Object.data{{k: {last}}}}}")),
        _ => {
            let depth = random.random_range(1..400);
            let deep = format!("{}1{}", "{'a': ".repeat(depth), "}".repeat(depth));
            ("Mutating", format!("[JSONPatch{{op: 'add', path: '/free', value: {deep}}}]"))
        }
    };
    let path = format!("{ADMISSION}/{}admissionpolicies/p{client}", family.to_lowercase());
    let spec = policy_spec(client, family, json!(variables), &expression);
    let change = json!([{"op": "replace", "path": "/spec", "value": spec}]);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "p-", "labels": {"asked": format!("p{client}")}},
        "data": {"text": "a".repeat(random.random_range(1..5_000))},
    });
    let other = if family == "Validating" { "Mutating" } else { "Validating" };
    let calm = policy_spec(client, other, json!([]), &harmless(other));
    let calm = json!([{"op": "replace", "path": "/spec", "value": calm}]);
    let of_other = format!("{ADMISSION}/{}admissionpolicies/p{client}", other.to_lowercase());
    vec![
        Sent::new("policy", Method::PATCH, &of_other, JSON_PATCH, calm),
        Sent::new("policy", Method::PATCH, &path, JSON_PATCH, change),
        Sent::new("object with a policy", Method::POST, &format!("{MAPS}?dryRun=All"), JSON, map),
    ]
}

/// Returns the next requests of a client.
pub(crate) fn next(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    match random.random_range(0..18) {
        0 | 1 => json_patch(random, client),
        2 => merge_patch(random, client),
        3 => strategic_patch(random, client),
        4 => apply(random, client),
        5..=7 => rule(random, client),
        8 => condition(random, client),
        9 | 10 => deep(random, client),
        11 => aliases(random, client),
        12 => binary(random),
        13 | 14 => built_in(random),
        15 | 16 => policy(random, client),
        _ => wide(random, client),
    }
}

fn path(random: &mut SmallRng) -> String {
    let parts = ["free", "a", "b", "l", "0", "-", "k", "", "metadata", "labels", "spec"];
    let length = random.random_range(1..5);
    let inner = (0..length).map(|_| format!("/{}", parts[random.random_range(0..parts.len())]));
    format!("/free{}", inner.collect::<String>())
}

fn json_patch(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let many = [10, 100, 800, 9_999, 10_001][random.random_range(0..5)];
    let copy = |from: String, path: String| json!({"op": "copy", "from": from, "path": path});
    let moved = |from: String, path: String| json!({"op": "move", "from": from, "path": path});
    let mut steps = vec![json!({"op": "add", "path": "/free", "value": {"a": {"b": "c"}, "l": [1, 2, 3]}})];
    match random.random_range(0..7) {
        0 => steps.extend((0..many).map(|_| copy("/free".into(), "/free/a".into()))),
        1 => steps.extend((0..many).map(|time| copy("/free".into(), format!("/free/k{time}")))),
        2 => steps.extend((0..many).flat_map(|time| {
            let (one, other) = if time % 2 == 0 { ("a", "b") } else { ("b", "a") };
            [
                json!({"op": "add", "path": format!("/free/{other}"), "value": {}}),
                moved(format!("/free/{one}"), format!("/free/{other}/{one}")),
            ]
        })),
        3 => {
            steps.push(json!({"op": "add", "path": "/free/l", "value": vec![0; 90_000]}));
            steps.extend((0..many).map(|_| moved("/free/l/0".into(), "/free/l/0".into())));
        }
        4 => {
            let value = nested("a", random.random_range(1..120));
            steps.extend((0..many.min(100)).map(|time| {
                let deeper = "/a".repeat(time % 60);
                json!({"op": "add", "path": format!("/free{deeper}/a"), "value": value})
            }));
        }
        5 => steps.extend((0..many).map(|_| json!({"op": "test", "path": "/free/a/b", "value": "c"}))),
        _ => steps.extend((0..many).map(|_| match random.random_range(0..5) {
            0 => copy(path(random), path(random)),
            1 => moved(path(random), path(random)),
            2 => json!({"op": "remove", "path": path(random)}),
            3 => json!({"op": "replace", "path": path(random), "value": {"a": [1]}}),
            _ => json!({"op": "add", "path": path(random), "value": {"a": {"l": []}}}),
        })),
    }
    let mut free = thing(client, "t");
    free["free"] = json!({"a": {"b": "c"}});
    let one = format!("{}/t", things(client));
    vec![
        Sent::new("create", Method::POST, &things(client), JSON, free),
        Sent::new("JSON patch", Method::PATCH, &one, JSON_PATCH, Value::Array(steps)),
    ]
}

fn nested(key: &str, times: usize) -> Value {
    (0..times).fold(json!(1), |below, _| json!({ key: below }))
}

fn merge_patch(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let body = match random.random_range(0..3) {
        0 => json!({"free": nested("n", random.random_range(1..126))}),
        1 => {
            let keys = (0..random.random_range(1..60_000)).map(|key| (format!("k{key}"), json!({})));
            json!({"free": keys.collect::<serde_json::Map<_, _>>()})
        }
        _ => {
            json!({"free": null, "metadata": {"annotations": {"a": "x".repeat(random.random_range(1..400_000))}}})
        }
    };
    let one = format!("{}/t", things(client));
    vec![Sent::new("merge patch", Method::PATCH, &one, "application/merge-patch+json", body)]
}

fn strategic_patch(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let count = [10, 1_000, 30_000][random.random_range(0..3)];
    let items: Vec<Value> = (0..count).map(|n| json!({"name": format!("c{n}"), "image": "i"})).collect();
    let order: Vec<Value> = (0..count).map(|n| json!({"name": format!("c{n}")})).collect();
    let body = match random.random_range(0..3) {
        0 => {
            json!({"spec": {"template": {"spec": {"containers": items, "$setElementOrder/containers": order}}}})
        }
        1 => {
            let names: Vec<String> = (0..count).map(|n| format!("example.com/{n}")).collect();
            json!({"metadata": {"finalizers": names, "$deleteFromPrimitiveList/finalizers": names}})
        }
        _ => {
            json!({"spec": {"template": {"spec": {"containers": items, "tolerations": vec![json!({}); count]}}}})
        }
    };
    let path = format!("/apis/apps/v1/namespaces/default/deployments/d{client}?dryRun=All");
    vec![Sent::new("strategic patch", Method::PATCH, &path, "application/strategic-merge-patch+json", body)]
}

fn apply(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let head = format!("apiVersion: c{client}.example.com/v1\nkind: Thing\nmetadata: {{name: applied}}\n");
    let body = match random.random_range(0..4) {
        0 => {
            let uses = "  - *a\n".repeat(random.random_range(1..100_000));
            format!("{head}free:\n  - &a {{k: {}}}\n{uses}", "x".repeat(random.random_range(1..10_000)))
        }
        1 => {
            let levels = (1..random.random_range(2..12))
                .map(|level| format!("  l{level}: &l{level} [{}]\n", format!("*l{},", level - 1).repeat(10)));
            format!("{head}free:\n  l0: &l0 [1, 2, 3]\n{}", levels.collect::<String>())
        }
        2 => {
            let depth = random.random_range(1..3_000);
            format!("{head}free: {}{}\n", "[".repeat(depth), "]".repeat(depth))
        }
        _ => {
            let keys = (0..random.random_range(1..30_000)).map(|key| format!("  k{key}: {{a: [1]}}\n"));
            format!("{head}free:\n{}", keys.collect::<String>())
        }
    };
    let path = format!("{}/applied?fieldManager=f&force=true", things(client));
    vec![Sent::new("apply", Method::PATCH, &path, "application/apply-patch+yaml", body)]
}

/// Writes an expression of a text, deeper and deeper.
fn text(random: &mut SmallRng, depth: u32) -> String {
    if depth == 0 {
        return ["self.text", "'aaaaaaaaaa'", "self.list[0]", "string(self.numbers.size())"]
            [random.random_range(0..4)]
        .to_owned();
    }
    let below = text(random, depth - 1);
    match random.random_range(0..9) {
        0 => format!("{below}.replace('a', 'aaaaaaaaaaaaaaaaaaaa')"),
        1 => format!("{below}.replace(self.text, {below})"),
        2 => format!("({below} + {below})"),
        3 => format!("{below}.split('').join('aaaaaaaa')"),
        4 => format!("'%s%s'.format([{below}, self.list])"),
        5 => format!("[{below}].map(x, x + x)[0]"),
        6 => format!("self.list.map(x, {below}).join(',')"),
        7 => format!("{below}.lowerAscii().upperAscii()"),
        _ => format!("{below}.findAll('a+').join({below})"),
    }
}

/// Writes an expression that is true or not.
fn truth(random: &mut SmallRng) -> String {
    let depth = random.random_range(0..8);
    let inner = text(random, depth);
    match random.random_range(0..8) {
        0 => format!("{inner} != ''"),
        1 => format!("self.list.all(a, self.list.exists(b, a == b || {inner} == b))"),
        2 => format!(
            "self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a + b + c >= 0 || {inner} == '')))"
        ),
        3 => format!("self.list.all(p, {inner}.matches(p))"),
        4 => format!("{inner}.matches('(\\\\w{{1,30}}){{1,30}}')"),
        5 => format!("sets.contains(self.list, {inner}.split('')) || self.list == self.list"),
        6 => format!("self.list.map(x, self.list.map(y, x + y + {inner})).size() >= 0"),
        _ => {
            let parts: Vec<String> =
                (0..random.random_range(1..2_000)).map(|n| format!("self.text != '{n}'")).collect();
            parts.join(" && ")
        }
    }
}

fn rule(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let mut own = thing(client, "");
    own["metadata"] = json!({"generateName": "r-"});
    let list: Vec<String> = (0..random.random_range(1..2_000)).map(|n| format!("a{n}")).collect();
    let numbers: Vec<u32> = (0..random.random_range(1..2_000)).collect();
    own["spec"] =
        json!({"text": "a".repeat(random.random_range(1..5_000)), "list": list, "numbers": numbers});
    let change = json!([{
        "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations",
        "value": [{"rule": truth(random)}],
    }]);
    let definition = format!("{CRDS}/things.c{client}.example.com");
    vec![
        Sent::new("rule", Method::PATCH, &definition, JSON_PATCH, change),
        Sent::new("object with a rule", Method::POST, &format!("{}?dryRun=All", things(client)), JSON, own),
    ]
}

fn condition(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let expression = match random.random_range(0..3) {
        0 => format!("lists.range({}).all(x, lists.range(1000).all(y, x + y >= 0))", random.random::<u32>()),
        1 => format!("'%.{}f'.format([1.5]) != ''", random.random::<u32>()),
        _ => truth(random)
            .replace("self.text", "object.data.text")
            .replace("self.list", "object.data.text.split('')"),
    };
    let change = json!([{
        "op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "c", "expression": expression}],
    }]);
    let hook = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/h{client}");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "c-", "labels": {"asked": format!("c{client}")}},
        "data": {"text": "a".repeat(random.random_range(1..5_000))},
    });
    vec![
        Sent::new("condition", Method::PATCH, &hook, JSON_PATCH, change),
        Sent::new("object with a condition", Method::POST, &format!("{MAPS}?dryRun=All"), JSON, map),
    ]
}

fn deep(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let depth = [100, 117, 118, 119, 120, 121, 125, 127, 128, 10_000, 1_000_000][random.random_range(0..11)];
    let (open, close) = [("{\"a\":", "}"), ("[", "]")][random.random_range(0..2)];
    let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let head = format!(
        "{{\"apiVersion\": \"c{client}.example.com/v1\", \"kind\": \"Thing\", \"metadata\": {{\"generateName\": \"deep-\"}}"
    );
    let body = format!("{head}, \"free\": {value}}}");
    if body.len() > 3 << 20 {
        return Vec::new();
    }
    let media = [JSON, "application/yaml"][random.random_range(0..2)];
    vec![Sent::new("deep object", Method::POST, &things(client), media, body)]
}

fn wide(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let unit = ["{\"\":1}", "[1]", "1", "{}", "\"\"", "[[[[1]]]]"][random.random_range(0..6)];
    let count = [1_000, 20_000, 49_000, 300_000][random.random_range(0..4)];
    let list = vec![unit; count].join(",");
    let head = format!(
        "{{\"apiVersion\": \"c{client}.example.com/v1\", \"kind\": \"Thing\", \"metadata\": {{\"generateName\": \"wide-\"}}"
    );
    let body = format!("{head}, \"free\": [{list}]}}");
    let path = format!("{}?dryRun=All", things(client));
    vec![
        Sent::new("wide object", Method::POST, &path, JSON, body),
        Sent::new(
            "other body",
            Method::DELETE,
            &format!("{MAPS}/none"),
            JSON,
            format!("{{\"a\": [{list}]}}"),
        ),
        Sent::new(
            "other body",
            Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            JSON,
            format!("[{list}]"),
        ),
    ]
}

/// YAML whose aliases expand to far more than it says.
fn aliases(random: &mut SmallRng, client: u64) -> Vec<Sent> {
    let (levels, each) = [(3, 10), (6, 12), (9, 10), (30, 2), (2, 1_000)][random.random_range(0..5)];
    let mut body = format!("l0: &l0 [{}]\n", vec!["1"; each].join(","));
    for level in 1..=levels {
        let below = vec![format!("*l{}", level - 1); each].join(",");
        body += &format!("l{level}: &l{level} [{below}]\n");
    }
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let pod = "/api/v1/namespaces/default/pods/none";
    let paths = [reviews, MAPS, &things(client), &format!("{pod}/eviction"), &format!("{pod}/binding")];
    let path = paths[random.random_range(0..paths.len())];
    vec![Sent::new("aliases", Method::POST, path, "application/yaml", body)]
}

/// A pod in protobuf with many empty messages.
fn binary(random: &mut SmallRng) -> Vec<Sent> {
    let count = [10, 1_000, 40_000, 400_000, 1_500_000][random.random_range(0..5)];
    let field = |number: u8, content: &[u8]| {
        let mut bytes = vec![number << 3 | 2];
        let mut length = content.len();
        while length >= 128 {
            bytes.push((length % 128) as u8 | 128);
            length /= 128;
        }
        bytes.push(length as u8);
        bytes.extend(content);
        bytes
    };
    // Volumes and containers are the fields 1 and 2 of a specification.
    let spec = [[0x0a_u8, 0], [0x12, 0]][random.random_range(0..2)].repeat(count);
    let name = field(1, &field(2, b"binary-"));
    let pod = [name, field(2, &spec)].concat();
    let meta = [field(1, b"v1"), field(2, b"Pod")].concat();
    let body = [b"k8s\0".to_vec(), field(1, &meta), field(2, &pod)].concat();
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let mut sent = Sent::new("protobuf", Method::POST, path, "application/vnd.kubernetes.protobuf", "");
    sent.body = body;
    vec![sent]
}

/// Objects of built-in kinds with many names that are checked against each other.
fn built_in(random: &mut SmallRng) -> Vec<Sent> {
    let count = [10, 500, 5_000, 20_000][random.random_range(0..4)];
    let numbered = |form: &dyn Fn(usize) -> Value| (0..count).map(form).collect::<Vec<Value>>();
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "pod-"}, "spec": {
        "containers": [{"name": "a", "image": "i"}],
    }});
    let mut path = "/api/v1/namespaces/default/pods";
    match random.random_range(0..6) {
        0 => {
            pod["spec"]["resourceClaims"] =
                json!(numbered(&|at| json!({"name": format!("claim-{at}"), "resourceClaimName": "c"})));
            pod["spec"]["containers"][0]["resources"]["claims"] =
                json!(numbered(&|at| json!({"name": format!("other-{at}")})));
        }
        1 => {
            pod["spec"]["volumes"] = json!(numbered(&|at| json!({"name": format!("v{at}"), "emptyDir": {}})));
            pod["spec"]["containers"][0]["volumeMounts"] =
                json!(numbered(&|at| json!({"name": format!("v{at}"), "mountPath": format!("/{at}")})));
        }
        2 => pod["spec"]["volumes"] = json!(numbered(&|_| json!({"name": "same", "emptyDir": {}}))),
        3 => {
            pod["spec"]["containers"] =
                json!(numbered(&|at| json!({"name": format!("c{}", at % 7), "image": "i"})));
        }
        4 => {
            pod["spec"]["tolerations"] =
                json!(numbered(&|at| json!({"key": format!("k{at}"), "operator": "None"})));
        }
        _ => {
            path = "/api/v1/namespaces/default/services";
            pod = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "service-"}, "spec": {
                "ports": numbered(&|at| json!({"name": format!("p{at}"), "port": at % 65_535 + 1})),
            }});
        }
    }
    // What is large is not kept, as it would fill the memory by itself.
    let path = if count > 10 { format!("{path}?dryRun=All") } else { path.to_owned() };
    vec![Sent::new("built-in kind", Method::POST, &path, JSON, pod)]
}

//! README's program is what is built here, and does what README says.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use watchkeeper_apiserver::ApiServer;

fn from_root(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path))
        .expect("the file is there")
}

/// The first block of README in a language.
fn block(language: &str) -> String {
    let readme = from_root("README.md");
    let after = readme.split_once(&format!("```{language}\n")).expect("README has such a block").1;
    after.split_once("```").expect("the block ends").0.to_owned()
}

#[test]
fn readme_shows_the_program_that_is_built() {
    assert_eq!(block("rust"), from_root("book/listings/src/bin/operator.rs"));
}

// What is pasted from README compiles with the crates that README names, and with no others.
#[test]
fn readmes_crates_are_those_that_its_program_names() {
    let named = |line: &str| Some(line.split_once(" = ")?.0.replace('-', "_"));
    let block = block("toml");
    let dependencies = block.split("[dev-dependencies]").next().unwrap();
    let dependencies: BTreeSet<String> = dependencies.lines().filter_map(named).collect();
    let program = from_root("book/listings/src/bin/operator.rs");
    // The derives of the prelude name these themselves.
    let of_derives = ["kube", "schemars", "serde", "serde_json"];
    for krate in &dependencies {
        let used = program.contains(&format!("{krate}::")) || of_derives.contains(&krate.as_str());
        assert!(used, "{krate} is named and not used");
    }
    for krate in of_derives.into_iter().chain(["k8s_openapi", "tokio", "tracing_subscriber", "watchkeeper"]) {
        assert!(dependencies.contains(krate), "{krate} is used and not named");
    }
    assert_eq!(block, from_root("book/listings/users-cargo.toml"), "the book names the same");
}

/// Ends the operator, whatever becomes of the test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn readmes_operator_makes_the_child() {
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = env::temp_dir().join(format!("readme-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    let operator = Command::new(env!("CARGO_BIN_EXE_operator"))
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _operator = Operator(operator);

    let website = ApiResource {
        group: "web.example.dev".to_owned(),
        version: "v1".to_owned(),
        api_version: "web.example.dev/v1".to_owned(),
        kind: "Website".to_owned(),
        plural: "websites".to_owned(),
    };
    let sites = Api::<DynamicObject>::namespaced_with(server.client(), "default", &website);
    let site = DynamicObject::new("a", &website)
        .data(serde_json::json!({ "spec": { "domain": "a.example", "replicas": 2 } }));
    // The operator installs the definition; until then there are no websites to create.
    let served = |definition: Option<&CustomResourceDefinition>| {
        let status = definition.and_then(|definition| definition.status.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    };
    server.eventually("websites.web.example.dev", served).await;
    sites.create(&PostParams::default(), &site).await.unwrap();
    let made = server.eventually::<Deployment>("default/a", |deployment| deployment.is_some()).await;
    let deployment = made.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    server.stop().await;
    fs::remove_dir_all(folder).unwrap();
}

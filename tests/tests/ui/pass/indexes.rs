//! Look-ups: by every sort of field, over the whole cache and within one namespace.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{
    Informer,
    informer::Watched,
    store::{IndexValue, Indexer},
};

/// A job with a field of every sort.
#[derive(CustomResource, Informer, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.dev", version = "v1", kind = "Job", namespaced)]
struct JobSpec {
    #[informer(index)]
    owner: String,
    #[informer(index)]
    #[serde(rename = "onBehalfOf")]
    sponsor: Option<String>,
    #[informer(index = "by_tag")]
    tags: Vec<String>,
    #[informer(index)]
    priority: i32,
    #[informer(index)]
    deadline: Option<u64>,
    #[informer(index)]
    ports: BTreeSet<u16>,
    #[informer(index)]
    paused: bool,
    #[informer(index)]
    phase: Phase,
    #[informer(index = "by_past_phase")]
    past: Option<Vec<Phase>>,
    #[informer(index)]
    grade: char,
    #[informer(index)]
    image: Box<str>,
    #[informer(index = "by_nested")]
    nested: Box<Option<Arc<String>>>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
enum Phase {
    #[default]
    Pending,
    #[serde(rename = "IN_PROGRESS")]
    Running,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Running => "running",
        })
    }
}

fn job(namespace: &str, name: &str, spec: JobSpec) -> Arc<Job> {
    let mut job = Job::new(name, spec);
    job.metadata.namespace = Some(namespace.into());
    Arc::new(job)
}

/// A cache as an informer would hold it.
fn cache(jobs: impl IntoIterator<Item = Arc<Job>>) -> JobLister {
    let indexer = Indexer::new();
    for index in Job::indexes() {
        indexer.add_index(index).expect("look-ups have names of their own");
    }
    indexer.replace(jobs);
    indexer.lister().into()
}

fn one_of_two(spec: JobSpec) -> JobLister {
    let other = JobSpec { owner: "other".into(), grade: '-', image: "other".into(), ..JobSpec::default() };
    cache([job("shop", "a", spec), job("shop", "b", JobSpec { priority: -1, paused: true, ..other })])
}

fn names(jobs: &[Arc<Job>]) -> Vec<&str> {
    jobs.iter().filter_map(|job| job.metadata.name.as_deref()).collect()
}

// M2
#[test]
fn text_is_looked_up_by_str() {
    let jobs = one_of_two(JobSpec {
        owner: "me".into(),
        sponsor: Some("them".into()),
        image: "nginx".into(),
        nested: Box::new(Some(Arc::new("deep".into()))),
        ..JobSpec::default()
    });
    assert_eq!(names(&jobs.by_owner("me")), ["a"]);
    assert_eq!(names(&jobs.by_sponsor("them")), ["a"]);
    assert_eq!(names(&jobs.by_image("nginx")), ["a"]);
    assert_eq!(names(&jobs.by_nested("deep")), ["a"]);
    assert!(jobs.by_owner("nobody").is_empty());
    assert!(jobs.by_sponsor("").is_empty(), "an absent value is not indexed");
}

// M2
#[test]
fn each_element_is_a_value_once() {
    let tags = vec!["x".to_owned(), "y".to_owned(), "x".to_owned()];
    let jobs = one_of_two(JobSpec { tags, ..JobSpec::default() });
    assert_eq!(names(&jobs.by_tag("x")), ["a"]);
    assert_eq!(names(&jobs.by_tag("y")), ["a"]);
    assert!(jobs.by_tag("").is_empty());
}

// M2
#[test]
fn integers_and_truth_values_are_looked_up_by_value() {
    let ports = BTreeSet::from([80, 443]);
    let jobs = one_of_two(JobSpec { priority: 7, deadline: Some(u64::MAX), ports, ..JobSpec::default() });
    assert_eq!(names(&jobs.by_priority(7)), ["a"]);
    assert_eq!(names(&jobs.by_priority(-1)), ["b"]);
    assert_eq!(names(&jobs.by_deadline(u64::MAX)), ["a"]);
    assert_eq!(names(&jobs.by_ports(443)), ["a"]);
    assert_eq!(names(&jobs.by_paused(true)), ["b"]);
    assert_eq!(names(&jobs.by_paused(false)), ["a"]);
}

// M2
#[test]
fn what_displays_itself_is_looked_up_by_reference() {
    let past = Some(vec![Phase::Pending, Phase::Running]);
    let jobs = one_of_two(JobSpec { phase: Phase::Running, past, grade: 'A', ..JobSpec::default() });
    assert_eq!(names(&jobs.by_phase(&Phase::Running)), ["a"]);
    assert_eq!(names(&jobs.by_phase(&Phase::Pending)), ["b"]);
    assert_eq!(names(&jobs.by_past_phase(&Phase::Running)), ["a"]);
    assert_eq!(names(&jobs.by_grade(&'A')), ["a"]);
}

// M2
#[test]
fn a_namespace_lister_sees_its_namespace_only() {
    let mine = || JobSpec { owner: "me".into(), ..JobSpec::default() };
    let jobs = cache([job("shop", "a", mine()), job("lab", "b", mine())]);
    let lab: JobListerInNamespace = jobs.namespace("lab");
    assert_eq!(names(&lab.by_owner("me")), ["b"]);
    assert_eq!(names(&lab.list()), ["b"]);
    assert_eq!(jobs.by_owner("me").len(), 2);
}

// M2
#[test]
fn a_typed_lister_is_a_lister_too() {
    let jobs = one_of_two(JobSpec { priority: 7, ..JobSpec::default() });
    assert_eq!(jobs.list().len(), 2);
    assert_eq!(jobs.by_index("by_priority", &IndexValue::from(7)).len(), 1);
    let same = jobs.clone();
    assert!(format!("{same:?}").starts_with("JobLister"));
}

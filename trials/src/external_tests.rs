//! Trials of operators that call an API outside the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::tests::{change, source};
use crate::{ConnectionBroke, External, Report, Trials, Trouble, Violation, Visit};

/// What an operator does wrong with its domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// It makes a record for each domain that it does not remember.
    MakesTwice,
    /// It does so a minute after an error.
    MakesTwiceLate,
    /// It makes records under names that the other system chooses, and removes those that are too many.
    RemovesSurplus,
    /// It removes the records of domains that it has seen.
    Leaks,
    /// It begins from nothing after an error.
    BeginsAgain,
}

struct Registrar {
    external: External,
    wrong: Wrong,
    known: BTreeSet<String>,
}

impl Registrar {
    async fn ask(&self, method: Method, path: &str, body: Value) -> Result<Value, ConnectionBroke> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut()) = (method, path.parse().unwrap());
        let answer = self.external.send(request).await?;
        match answer.status().as_u16() {
            200..300 | 404 => Ok(serde_json::from_slice(answer.body()).unwrap_or_default()),
            // It tries again in both cases.
            _ => Err(ConnectionBroke),
        }
    }

    async fn there(&self) -> Result<BTreeSet<String>, ConnectionBroke> {
        let all = self.ask(Method::GET, "/domains", Value::Null).await?;
        let all = all.as_array().cloned().unwrap_or_default();
        Ok(all.iter().filter_map(|one| one["id"].as_str()).map(str::to_owned).collect())
    }

    async fn keep(&mut self, wanted: &BTreeSet<String>) -> Result<(), ConnectionBroke> {
        for name in wanted {
            match self.wrong {
                Wrong::MakesTwice | Wrong::MakesTwiceLate if self.known.contains(name) => {}
                Wrong::MakesTwice | Wrong::MakesTwiceLate => {
                    self.ask(Method::POST, "/domains", json!({ "name": name })).await?;
                }
                _ => {
                    self.ask(Method::PUT, &format!("/domains/{name}"), json!({ "name": name })).await?;
                }
            }
            self.known.insert(name.clone());
        }
        let there = match self.wrong {
            Wrong::MakesTwice | Wrong::MakesTwiceLate => return Ok(()),
            Wrong::Leaks => self.known.clone(),
            _ => self.there().await?,
        };
        for name in there.difference(wanted) {
            self.ask(Method::DELETE, &format!("/domains/{name}"), Value::Null).await?;
        }
        self.known = wanted.clone();
        Ok(())
    }

    /// Keeps one record for each name, under paths that the other system chooses.
    async fn keep_one_of_each(&self, wanted: &BTreeSet<String>) -> Result<(), ConnectionBroke> {
        let (all, mut missing) = (self.ask(Method::GET, "/domains", Value::Null).await?, wanted.clone());
        for one in all.as_array().into_iter().flatten() {
            if !missing.remove(one["name"].as_str().unwrap()) {
                let path = format!("/domains/{}", one["id"].as_str().unwrap());
                self.ask(Method::DELETE, &path, Value::Null).await?;
            }
        }
        for name in missing {
            self.ask(Method::POST, "/domains", json!({ "name": name })).await?;
        }
        Ok(())
    }

    async fn begin_again(&mut self) -> Result<(), ConnectionBroke> {
        for name in self.there().await? {
            self.ask(Method::DELETE, &format!("/domains/{name}"), Value::Null).await?;
        }
        Ok(())
    }
}

async fn domains(client: kube::Client, external: External, wrong: Wrong) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut registrar = Registrar { external, wrong, known: BTreeSet::new() };
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let names = list.items.iter().filter_map(|map| map.metadata.name.clone());
        let wanted = names.filter(|name| name.len() == 1).collect();
        let kept = match wrong {
            Wrong::RemovesSurplus => registrar.keep_one_of_each(&wanted).await,
            _ => registrar.keep(&wanted).await,
        };
        if kept.is_err() {
            sleep(Duration::from_secs(if wrong == Wrong::MakesTwiceLate { 60 } else { 1 })).await;
            if wrong == Wrong::BeginsAgain {
                let _tried_again_later = registrar.begin_again().await;
            }
        } else {
            change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
        }
    }
}

fn tried(wrong: Wrong) -> Trials {
    Trials::of_calling(move |client, external| domains(client, external, wrong)).visitor(
        async move |visit: Visit| {
            visit.create(&source("a")).await;
            visit.create(&source("b")).await;
            if !matches!(wrong, Wrong::MakesTwice | Wrong::RemovesSurplus) {
                visit.delete::<ConfigMap>("a").await;
            }
        },
    )
}

fn told(report: &Report) -> String {
    report.failures.first().map(ToString::to_string).unwrap_or_else(|| panic!("nothing is found: {report}"))
}

// T28
#[test]
fn an_operator_that_keeps_its_records_right_holds() {
    tried(Wrong::Nothing).check();
}

// T28
#[test]
fn what_is_made_twice_in_another_system_is_found() {
    let told = told(&tried(Wrong::MakesTwice).run());
    assert!(told.contains("external domains/*: 3, not 2"), "{told}");
    assert!(told.contains("external/domains"), "{told}");
}

// T28
#[test]
fn what_is_made_twice_long_after_an_error_is_found() {
    let late = tried(Wrong::MakesTwiceLate).visitor(async |visit: Visit| visit.create(&source("a")).await);
    let told = told(&late.only(|trouble| trouble == Trouble::ReplyLost).run());
    assert!(told.contains("external domains/*: 2, not 1"), "{told}");
}

// T28
#[test]
fn a_record_that_is_there_twice_may_be_deleted_once() {
    tried(Wrong::RemovesSurplus).check();
}

// T28
#[test]
fn what_leaks_in_another_system_is_found() {
    let told = told(&tried(Wrong::Leaks).run());
    assert!(told.contains("+ external domains/a (1 too many)"), "{told}");
}

// T28
#[test]
fn what_is_deleted_while_in_use_is_found() {
    let report = tried(Wrong::BeginsAgain).run();
    let told = told(&report);
    assert!(matches!(report.failures[0].faults[0], Violation::DeletedInUse(_)), "{told}");
    assert!(told.contains("/domains/b") || told.contains("/domains/a"), "{told}");
    // The baseline run deletes it as well, but only once.
    let report = tried(Wrong::BeginsAgain).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        visit.delete::<ConfigMap>("a").await;
    });
    let report = report.run();
    let told = self::told(&report);
    assert!(matches!(report.failures[0].faults[0], Violation::DeletedInUse(_)), "{told}");
}

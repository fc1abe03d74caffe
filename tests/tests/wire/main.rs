//! What a real kube-apiserver answered, asked of the server again.
//!
//! `WATCHKEEPER_WIRE=106*,7*` replays only the scenarios that one of the patterns fits.

mod bind;
mod compare;
mod exchange;
mod format;
mod known;
mod path;
#[cfg(test)]
mod planted;
mod run;

use std::io::Write as _;

use watchkeeper_apiserver::ApiServer;

use crate::format::Scenario;
use crate::known::{KNOWN_TO_DIFFER, NOT_REPLAYED_YET};

/// The scenarios that are replayed over TLS too: each of them is quick in real time.
const OVER_TLS: &[&str] =
    &["001-get", "007-paging", "101-watch-unset", "106-watch-list", "303-update", "806-cr-watch-list"];

/// Reads the scenarios that were asked for.
fn selected() -> anyhow::Result<Vec<Scenario>> {
    let patterns = std::env::var("WATCHKEEPER_WIRE").unwrap_or_else(|_| "*".to_owned());
    let patterns: Vec<_> =
        patterns.split(',').map(|pattern| regex::escape(pattern).replace(r"\*", ".*")).collect();
    let pattern = regex::Regex::new(&format!("^(?:{})$", patterns.join("|")))?;
    let names = format::names()?;
    let chosen: Vec<_> = names.iter().filter(|name| pattern.is_match(name)).collect();
    anyhow::ensure!(!chosen.is_empty(), "no scenario fits {patterns:?}");
    chosen.into_iter().map(|name| format::read(name)).collect()
}

/// Tells how many there were, in a line that shows although the test passes.
fn tell(how: &str, scenarios: &[Scenario], differing: usize) {
    let steps: usize = scenarios.iter().map(|scenario| scenario.steps.len()).sum();
    let line = format!("wire: {} scenarios {how}, {steps} steps, {differing} differ\n", scenarios.len());
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes a line");
}

#[tokio::test(start_paused = true)]
async fn the_server_answers_in_memory_as_a_real_one_did() {
    let scenarios = selected().unwrap();
    let (mut differing, mut wrong) = (0, Vec::new());
    for scenario in &scenarios {
        let server = ApiServer::in_memory().start().await;
        let differences = run::replay(&server, server.anonymous_client(), scenario).await;
        let known = KNOWN_TO_DIFFER.iter().find(|(name, _)| *name == scenario.name);
        differing += usize::from(!differences.is_empty());
        match known {
            None => wrong.extend(differences),
            Some((name, why)) if differences.is_empty() => {
                wrong.push(format!("{name} agrees now, take it from KNOWN_TO_DIFFER ({why})"));
            }
            Some(_) => {}
        }
    }
    tell("in memory", &scenarios, differing);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_server_answers_over_tls_as_a_real_one_did() {
    let scenarios: Vec<_> = OVER_TLS.iter().map(|name| format::read(name).unwrap()).collect();
    let mut wrong = Vec::new();
    let mut differing = 0;
    for scenario in &scenarios {
        let server = ApiServer::http().start().await.unwrap();
        let differences = run::replay(&server, server.anonymous_client(), scenario).await;
        differing += usize::from(!differences.is_empty());
        wrong.extend(differences);
        server.stop().await;
    }
    tell("over TLS", &scenarios, differing);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_is_known_to_differ_is_a_scenario() {
    let names = format::names().unwrap();
    for (name, why) in KNOWN_TO_DIFFER {
        assert!(names.iter().any(|n| n == name) && !why.is_empty(), "{name}: {why:?}");
    }
}

#[test]
fn what_is_not_replayed_yet_is_not_here() {
    let names = format::names().unwrap();
    for (name, _) in NOT_REPLAYED_YET {
        assert!(!names.iter().any(|n| n == name), "{name} is replayed: take it from the list");
    }
    assert_eq!(names.len() + NOT_REPLAYED_YET.len(), 159, "every recorded scenario is here or on the list");
}

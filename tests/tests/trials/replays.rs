//! An incident is recorded, and played again with the build that had it, and with the one that is mended.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use serde_json::json;
use watchkeeper::{FlightRecorder, controller::Reason, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Kit};
use watchkeeper_trials::{Trials, Trouble};

use crate::boards::{Board, board};

/// Keeps a note for each board.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Right,
    /// It forgets the size once a board has been changed.
    Wrong,
    /// It does something on its own every five minutes.
    Beats,
    /// It makes a Secret as well.
    Hides,
}

impl Reconciler<Board> for Build {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, board: Arc<Board>, cx: &Context<Board>) -> Result<Action, Self::Error> {
        let generation = board.metadata.generation.unwrap_or_default();
        let mut data = std::collections::BTreeMap::from([("text".to_owned(), board.spec.text.clone())]);
        if !(*self == Self::Wrong && generation > 1) {
            data.insert("size".to_owned(), board.spec.size.to_string());
        }
        if *cx.reason() == Reason::Due {
            data.insert("beat".to_owned(), "on".to_owned());
        }
        let mut note = ConfigMap { data: Some(data), ..ConfigMap::default() };
        note.metadata.name = Some(format!("{}-note", board.name_any()));
        cx.apply(note).await?;
        if *self == Self::Hides {
            let text = [("text".to_owned(), board.spec.text.clone())];
            let mut secret = Secret { string_data: Some(text.into()), ..Secret::default() };
            secret.metadata.name = Some(format!("{}-secret", board.name_any()));
            cx.apply(secret).await?;
        }
        Ok(match self {
            Self::Beats => Action::requeue(Duration::from_secs(300)),
            Self::Right | Self::Wrong | Self::Hides => Action::await_change(),
        })
    }
}

fn manager(client: Client, build: Build) -> Manager {
    let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
    let controller = Controller::new(build).owns::<ConfigMap>().watches::<Secret>(|_| Vec::new());
    Manager::with_config(client, config).controller(controller)
}

async fn run(client: Client, build: Build) -> Result<(), watchkeeper::Error> {
    manager(client, build).run().await
}

fn file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("watchkeeper-replays-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn secret(kit: &str, value: &str) -> Secret {
    serde_json::from_value(json!({ "metadata": { "name": kit }, "stringData": { "password": value } }))
        .unwrap()
}

/// What goes on in a cluster for ten minutes.
async fn ten_minutes(kit: &Kit) {
    for minute in 0..10 {
        let name = format!("b{minute}");
        kit.create(&board(&name)).await;
        kit.create(&secret(&name, "hunter2")).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        if minute % 3 == 0 {
            kit.patch_merge::<Board>(&name, json!({ "spec": { "text": "two" } })).await;
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        if minute % 4 == 1 {
            kit.delete::<Board>(&name).await;
        }
        if minute == 5 {
            kit.delete::<ConfigMap>("b0-note").await;
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

/// Somebody labels a note as soon as it is there.
async fn a_label(kit: &Kit) {
    kit.create(&board("late")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    kit.patch_merge::<ConfigMap>("late-note", json!({ "metadata": { "labels": { "seen": "yes" } } })).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
}

/// So many changes that a small recording keeps the last of them.
async fn many_changes(kit: &Kit) {
    for round in 0..60 {
        let text = format!("{round} {}", "x".repeat(10_000));
        kit.patch_merge::<Board>("early", json!({ "spec": { "text": text } })).await;
        if round % 10 == 0 {
            kit.create(&board(&format!("b{round}"))).await;
        }
        if round % 10 == 5 {
            kit.delete::<ConfigMap>("b0-note").await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// Records ten minutes of an operator.
async fn record(file: &PathBuf, build: Build, at_most: u64, life: impl AsyncFnOnce(&Kit)) -> String {
    let server = ApiServer::in_memory().crd::<Board>().namespace("shop").start().await;
    server.create(&board("early")).await;
    server.create(&secret("quiet", "hunter2")).await;
    let recorder = FlightRecorder::new(file).at_most(at_most);
    let running = manager(server.client(), build).flight_recorder(recorder).spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    life(server.kit()).await;
    running.stop().await.unwrap();
    std::fs::read_to_string(file).unwrap()
}

fn recorded(name: &str, build: Build) -> (PathBuf, String) {
    recorded_in(name, build, 64 << 20, ten_minutes)
}

fn recorded_in(name: &str, build: Build, at_most: u64, life: impl AsyncFnOnce(&Kit)) -> (PathBuf, String) {
    let file = file(name);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let text = runtime.block_on(record(&file, build, at_most, life));
    (file, text)
}

// T31
#[test]
fn a_recording_is_played_again_without_a_difference() {
    let (file, _) = recorded("same.wkr", Build::Right);
    let replay = || Trials::replay(&file, |client| run(client, Build::Right)).crd::<Board>();
    replay().expect_no_differences();
    // What came later comes later again.
    replay().expect(|replayed| {
        let story = &replayed.story;
        let before = story.find("creates boards shop/b2").zip(story.find("creates boards shop/b3"));
        assert!(before.is_some_and(|(two, three)| two < three), "{story}");
    });
}

// T31
#[test]
fn what_an_operator_does_on_its_own_after_the_end_of_a_recording_is_no_difference() {
    let (file, text) = recorded("beats.wkr", Build::Beats);
    assert!(text.contains("beat"));
    let replay = || Trials::replay(&file, |client| run(client, Build::Beats)).crd::<Board>();
    replay().expect(|replayed| assert_eq!(replayed.faults, [], "{replayed}"));
    replay().expect_no_differences();
}

// T31
#[test]
fn what_a_recording_does_not_show_is_no_difference() {
    let (file, _) = recorded("hides.wkr", Build::Hides);
    Trials::replay(&file, |client| run(client, Build::Hides)).crd::<Board>().expect_no_differences();
}

// T31
#[test]
fn the_mended_build_shows_what_the_incident_was() {
    let (file, _) = recorded("wrong.wkr", Build::Wrong);
    let replay = || Trials::replay(&file, |client| run(client, Build::Right)).crd::<Board>();
    replay().expect(|replayed| {
        let told = replayed.to_string();
        assert_eq!(replayed.faults, [], "{told}");
        // Four boards were changed, and lost the size; one of their notes was made again without it.
        assert!(told.contains("recorded, and not made now") && told.contains("-   size: "), "{told}");
        assert!(replayed.differences.iter().all(|one| one.request.contains("-note")), "{told}");
    });
    // The build that had it does the same again.
    Trials::replay(&file, |client| run(client, Build::Wrong)).crd::<Board>().expect_no_differences();
}

// T31
#[test]
fn the_last_part_of_a_long_recording_is_played_again() {
    let (file, _) = recorded_in("long.wkr", Build::Wrong, 1 << 20, many_changes);
    let replay = |build| Trials::replay(&file, move |client| run(client, build)).crd::<Board>();
    replay(Build::Wrong).expect(|replayed| {
        let told = replayed.to_string();
        assert_eq!(
            (replayed.faults.len(), replayed.differences.len(), replayed.missing),
            (0, 0, 0),
            "{told}"
        );
        // The first minutes have been written over.
        let took = replayed.took.as_secs();
        assert!((100..500).contains(&took) && replayed.recorded >= 15, "{told}");
        // What was there before, and what has not changed since, is not made again.
        assert!(!replayed.story.contains("creates boards shop/early"), "{}", replayed.story);
        assert!(!replayed.story.contains("creates secrets shop/quiet"), "{}", replayed.story);
    });
    replay(Build::Right).expect(|replayed| assert!(!replayed.differences.is_empty(), "{replayed}"));
}

// T31
#[test]
fn troubles_are_tried_around_a_recording() {
    let (file, _) = recorded("around.wkr", Build::Right);
    let trials = Trials::replay(&file, |client| run(client, Build::Right)).crd::<Board>().with_troubles();
    trials.pairs(0).part(1, 40).check();
}

// T31
#[test]
fn a_change_of_others_waits_for_what_a_troubled_operator_makes() {
    let (file, _) = recorded_in("label.wkr", Build::Right, 64 << 20, a_label);
    let trials = Trials::replay(&file, |client| run(client, Build::Right)).crd::<Board>().with_troubles();
    trials.pairs(0).only(|trouble| trouble == Trouble::Refused(503)).check();
}

// P25
#[test]
fn no_secret_is_in_a_recording() {
    let (_, text) = recorded("secret.wkr", Build::Right);
    assert!(text.contains("\"name\":\"b0\"") && text.contains("/api/v1/secrets"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "a password is there");
    assert!(text.contains("\"run\":{") && !text.contains("\"state\":\"leads\""), "no election");
}

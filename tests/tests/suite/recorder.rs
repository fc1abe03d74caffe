//! The flight recorder of a manager.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio::time::sleep;
use watchkeeper::{FlightRecorder, manager::Http, prelude::*};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{ask::ask, does};
use watchkeeper_trials::read_recording;

fn file(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("watchkeeper-recorder-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// Makes a Secret for each map.
fn manager(server: &ApiServer) -> Manager {
    let run = |map: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
        let mut secret = Secret::default();
        secret.metadata.name = Some(map.name_any());
        secret.string_data = Some([("password".to_owned(), "hunter2".to_owned())].into());
        cx.apply(secret).await?;
        Ok::<_, anyhow::Error>(Action::await_change())
    };
    Manager::new(server.client()).controller(Controller::new(does::<ConfigMap, _, _>(run).0).owns::<Secret>())
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

/// Reads a part of a recording as far as its end.
fn part(file: &Path) -> String {
    let mut text = fs::read(file).unwrap();
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    String::from_utf8(text).unwrap()
}

/// Reads the lines of a recording, each of them whole.
fn lines(file: &Path) -> Vec<Value> {
    read_recording(file).and_then(|lines| lines.collect()).unwrap_or_else(|error| panic!("{error}"))
}

// P25 P27
#[tokio::test(start_paused = true)]
async fn a_crash_loses_at_most_the_last_second_and_no_secret_is_recorded() {
    let (server, file) = (shop().await, file("crash.wkr"));
    let running = manager(&server).flight_recorder(FlightRecorder::new(&file)).spawn();
    sleep(Duration::from_secs(1)).await;
    server.create(&map("early")).await;
    sleep(Duration::from_secs(4)).await;
    server.create(&map("late")).await;
    sleep(Duration::from_secs(1)).await;
    // The process ends here.
    let (text, all) = (part(&file), lines(&file));
    drop(running);
    let has = |what: &dyn Fn(&Value) -> bool| assert!(all.iter().any(what), "{all:?}");
    has(&|line| line["line"]["type"] == "ADDED" && line["line"]["object"]["metadata"]["name"] == "late");
    // An event has the time at which it came, also if those before it came long ago.
    has(&|line| line["line"]["object"]["metadata"]["name"] == "late" && line["t"].as_u64() >= Some(5_000));
    has(&|line| line["method"] == "PATCH" && line["uri"].as_str().unwrap().contains("/secrets/late"));
    has(&|line| line["code"] == 201 && line["body"]["kind"] == "Secret");
    has(&|line| line["run"]["key"] == "shop/late" && line["run"]["reason"] == "changed");
    has(&|line| line["settings"]["controllers"][0]["kind"].is_string());
    for text in [text, Value::Array(all).to_string()] {
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "a password is there");
    }
}

// P26
#[tokio::test(start_paused = true)]
async fn a_recording_stays_within_its_bound_and_shows_what_was_cached() {
    let (server, file) = (shop().await, file("bound.wkr"));
    let recorder = FlightRecorder::new(&file).at_most(1 << 20);
    let running = manager(&server).flight_recorder(recorder).spawn();
    server.create(&map("first")).await;
    let large = "x".repeat(20_000);
    for round in 0..100 {
        let data = json!({ "data": { "large": format!("{round} {large}") } });
        server.patch_merge::<ConfigMap>("shop/first", data).await;
        sleep(Duration::from_secs(1)).await;
    }
    running.stop().await.unwrap();
    // After a clean end the newest part is text alone.
    assert!(!fs::read_to_string(&file).unwrap().contains('\0'));
    let parts = ["wkr.oldest", "wkr.old", "wkr"].map(|suffix| file.with_extension(suffix));
    let size: usize = parts.iter().map(|file| part(file).len()).sum();
    assert!((1 << 19..=1 << 20).contains(&size), "{size}");
    let all = lines(&file);
    // No event refers to one of another part.
    assert!(all.iter().all(|line| line["missing"].is_null()));
    let parts: Vec<_> = all.chunk_by(|_, line| line["part"].is_null()).collect();
    assert_eq!(parts.len(), 3);
    let mut shown = Vec::new();
    for (before, part) in parts.iter().zip(&parts[1..]) {
        assert_eq!(part[0]["part"].as_u64().unwrap(), before[0]["part"].as_u64().unwrap() + 1);
        // Requests that go on are named again: events name them by number.
        let mut events = part.iter().filter_map(|line| line["event"].as_u64());
        assert!(events.all(|id| part.iter().any(|line| line["request"] == id)));
        assert!(part.iter().any(|line| line["whole"] == before[0]["part"]));
        let objects: Vec<_> = part.iter().filter_map(|line| line["path"].as_str()).collect();
        // Its last change is in the part before.
        assert!(!objects.iter().any(|path| path.ends_with("/configmaps/first")), "{objects:?}");
        shown.push(objects.iter().any(|path| path.ends_with("/secrets/first")));
    }
    // What does not change is in every second part.
    assert!(shown == [true, false] || shown == [false, true], "{shown:?}");
}

// P25
#[tokio::test(start_paused = true)]
async fn what_runs_while_a_program_stops_is_recorded() {
    let (server, file) = (shop().await, file("stop.wkr"));
    let run = |_: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
        sleep(Duration::from_secs(5)).await;
        let mut secret = Secret::default();
        secret.metadata.name = Some("late".to_owned());
        cx.apply(secret).await?;
        Ok::<_, anyhow::Error>(Action::await_change())
    };
    let slow = Controller::new(does::<ConfigMap, _, _>(run).0).owns::<Secret>();
    let running =
        Manager::new(server.client()).controller(slow).flight_recorder(FlightRecorder::new(&file)).spawn();
    server.create(&map("first")).await;
    sleep(Duration::from_secs(1)).await;
    running.stop().await.unwrap();
    let all = lines(&file);
    assert!(all.iter().any(|line| line["code"] == 201 && line["body"]["kind"] == "Secret"), "{all:?}");
    assert!(all.iter().any(|line| line["run"]["result"] == "success"), "{all:?}");
}

// P27
#[tokio::test(start_paused = true)]
async fn a_recording_is_downloaded_and_a_file_that_can_t_be_written_ends_the_start() {
    let (server, file) = (shop().await, file("download.wkr"));
    let without = manager(&server).http(Http::off().debug_for_all()).spawn();
    let answer = ask(&without.http_service().unwrap(), "/debug/recording").await;
    assert_eq!(answer.status, 404);
    without.stop().await.unwrap();
    let recorder = FlightRecorder::new(&file);
    let running = manager(&server).http(Http::off().debug_for_all()).flight_recorder(recorder).spawn();
    sleep(Duration::from_secs(2)).await;
    let answer = ask(&running.http_service().unwrap(), "/debug/recording").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.body, part(&file));
    let downloaded = file.with_extension("downloaded");
    fs::write(&downloaded, &answer.body).unwrap();
    assert_eq!(lines(&downloaded)[0]["t"], 0);
    running.stop().await.unwrap();
    let nowhere = FlightRecorder::new("/nowhere/at/all.wkr");
    let error = manager(&server).flight_recorder(nowhere).spawn().ended().await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all.wkr can't be written"), "{error}");
}

// P25
#[tokio::test(start_paused = true)]
async fn one_manager_at_a_time_records_into_a_file_and_a_dry_run_none() {
    let (server, file) = (shop().await, file("one.wkr"));
    let recorded = || manager(&server).flight_recorder(FlightRecorder::new(&file));
    let first = recorded();
    // A client that somebody keeps does not keep the file.
    let client = first.client().clone();
    let first = first.spawn();
    sleep(Duration::from_secs(1)).await;
    let refused = recorded().run().await.unwrap_err().to_string();
    assert!(refused.contains("another manager records into it"), "{refused}");
    let tried = recorded().dry_run().spawn();
    sleep(Duration::from_secs(1)).await;
    tried.stop().await.unwrap();
    first.stop().await.unwrap();
    let before = lines(&file).len();

    let tried = recorded().dry_run().spawn();
    sleep(Duration::from_secs(1)).await;
    tried.stop().await.unwrap();
    assert_eq!(lines(&file).len(), before);
    let second = recorded().spawn();
    sleep(Duration::from_secs(1)).await;
    second.stop().await.unwrap();
    assert!(lines(&file).len() > before);
    drop(client);
}

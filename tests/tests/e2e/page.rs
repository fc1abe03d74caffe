//! The debug page in a browser: headless Chromium, where there is one.

#![expect(clippy::print_stdout, reason = "says what was left out, and where pictures are")]

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use tokio::time::sleep;
use watchkeeper::prelude::*;
use watchkeeper_tests::{Looker, Website, backend::Stage, does, website};

use crate::harness::tests;

tests! {
    Shared: a_key_that_backs_off_is_found_by_its_name_in_a_browser;
}

/// Names the folder that pictures of the page are put into, where somebody wants to look at them.
const PICTURES: &str = "WATCHKEEPER_PICTURES";

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let named = |folder: PathBuf| ["chromium", "chromium-browser"].map(|name| folder.join(name));
    std::env::split_paths(&path).flat_map(named).find(|file| file.is_file())
}

/// Runs the browser on a page; returns what it prints.
async fn browse(browser: &Path, folder: &Path, url: &str, more: Vec<String>) -> String {
    let (browser, folder, url) = (browser.to_owned(), folder.to_owned(), url.to_owned());
    let run = move || {
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let usual = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=2000",
        ];
        let output =
            Command::new(browser).args(usual).arg(profile).args(more).arg(url).stderr(Stdio::null()).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

/// A script that would be seen to have run.
const MARKUP: &str =
    "x\"><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>";

// P4
async fn a_key_that_backs_off_is_found_by_its_name_in_a_browser(stage: Stage) {
    let Some(browser) = chromium() else {
        println!("  chromium is not on the PATH: the page was not tried in a browser");
        return;
    };
    let folder = std::env::temp_dir().join(format!("page-{}-{}", std::process::id(), stage.namespace));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["backs-off", "is-fine", "waits"] {
        stage.kit().create(&config_map(name)).await;
    }
    stage.kit().create(&website("hello")).await;
    let (maps, _) = does::<ConfigMap, _, _>(async |map, _| match &*map.name_any() {
        "backs-off" => anyhow::bail!("<script>document.title='taken'</script> refused"),
        "waits" => Ok(Action::requeue_after(Duration::from_secs(600))),
        _ => Ok(Action::await_change()),
    });
    let key = ObjectKey::new(&stage.namespace, MARKUP);
    let maps = Controller::new(maps)
        .namespace(&*stage.namespace)
        .watches::<Website>(move |_| vec![key.clone()])
        .backoff(ItemExponentialFailure::new(Duration::from_secs(60), Duration::from_secs(600)));
    let sites = Controller::<Website, _>::new(Looker::default()).namespace(&*stage.namespace);
    let running = stage.manager().http("127.0.0.1:0").controller(maps).controller(sites).spawn();
    let address = running.http_address().unwrap();
    sleep(Duration::from_secs(2)).await;

    let page = browse(&browser, &folder, &format!("http://{address}/debug"), vec!["--dump-dom".into()]).await;
    assert!(
        page.contains("Backing off") && page.contains(&format!("{}/backs-off", stage.namespace)),
        "{page}"
    );
    assert!(!page.contains("taken</title>") && !page.contains("<img") && !page.contains("<script"), "{page}");
    assert!(page.contains("onerror=\"document.title='taken'\"&gt;"), "the name is there as text: {page}");
    let found = format!("http://{address}/debug?key=backs-off");
    let found = browse(&browser, &folder, &found, vec!["--dump-dom".into()]).await;
    let sentence = format!("configmaps is not reconciling {}/backs-off: backs off for ", stage.namespace);
    assert!(found.contains(&sentence), "{found}");
    assert!(!found.contains("<script"), "{found}");
    pictures(&browser, &folder, address, "healthy").await;
    running.stop().await.unwrap();
    trouble(&stage, &browser, &folder).await;
    let _ = std::fs::remove_dir_all(folder);
}

/// Takes pictures of an operator that can't do its work.
async fn trouble(stage: &Stage, browser: &Path, folder: &Path) {
    if std::env::var_os(PICTURES).is_none() {
        return;
    }
    for at in 0..130 {
        stage.kit().create(&config_map(&format!("order-with-a-rather-long-name-{at:03}"))).await;
    }
    let (maps, _) = does::<ConfigMap, _, _>(async |map, _| {
        let name = map.name_any();
        match name.as_bytes().last().map(|last| last % 10) {
            Some(0) => {
                Err(Terminal::new("spec.size: 11 is more than the largest size of 10: lower it").into())
            }
            Some(1) => {
                sleep(Duration::from_secs(600)).await;
                Ok(Action::await_change())
            }
            Some(2) => Ok(Action::requeue_after(Duration::from_secs(3_600))),
            _ => anyhow::bail!(
                "apply Deployment shop/{name}: the server refuses it (403): quota exceeded: pods 10 of 10"
            ),
        }
    });
    let (secrets, _) = does::<Secret, _, _>(async |_, _| Ok(Action::await_change()));
    let maps = Controller::new(maps).namespace(&*stage.namespace).workers(9);
    let viewer = stage.server.client(watchkeeper_tests::backend::User::Viewer, &stage.namespace).await.0;
    let blind = Manager::new(viewer).http("127.0.0.1:0").controller(Controller::new(secrets)).spawn();
    let running = stage.manager().http("127.0.0.1:0").leader_election("orders").controller(maps).spawn();
    sleep(Duration::from_secs(40)).await;
    pictures(browser, folder, running.http_address().unwrap(), "failing").await;
    pictures(browser, folder, blind.http_address().unwrap(), "blind").await;
    blind.stop().await.unwrap();
    drop(running);
}

/// Takes pictures for people to look at: narrow, wide, dark.
async fn pictures(browser: &Path, folder: &Path, address: SocketAddr, name: &str) {
    let Some(shots) = std::env::var_os(PICTURES).map(PathBuf::from) else { return };
    std::fs::create_dir_all(&shots).unwrap();
    for (sort, size, dark) in
        [("narrow", "400,2600", false), ("wide", "1200,1700", false), ("dark", "1200,1700", true)]
    {
        let file = shots.join(format!("{name}-{sort}.png"));
        let mut more = vec![format!("--screenshot={}", file.display()), format!("--window-size={size}")];
        more.extend(dark.then(|| "--blink-settings=preferredColorScheme=0".to_owned()));
        browse(browser, folder, &format!("http://{address}/debug"), more).await;
        println!("  a picture: {}", file.display());
    }
}

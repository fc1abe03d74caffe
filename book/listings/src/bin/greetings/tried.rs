//! Tries the other listings of greetings, and compares the story that is printed.

use std::{fs, path::Path};

use watchkeeper::prelude::*;
use watchkeeper_trials::{ForeignChange, Trials, Trouble, Visit};

use crate::{Greeting, GreetingSpec, controllers, replicas};

async fn a_greeting_comes_and_goes(visit: Visit) {
    let spec = |who: &str| GreetingSpec { who: who.into(), language: "en".into() };
    visit.create(&Greeting::new("ada", spec("Ada"))).await;
    visit.edit::<Greeting>("ada", |greeting| greeting.spec.language = "fr".into()).await;
    visit.create(&Greeting::new("bob", spec("Bob"))).await;
    visit.delete::<Greeting>("ada").await;
}

#[test]
fn the_controllers_of_the_second_chapter_end_right() {
    Trials::of(|client| {
        Manager::new(client)
            .controller(controllers::controller())
            .controller(controllers::inspection())
            .run()
    })
    .crd::<Greeting>()
    .namespace("home")
    .visitor(a_greeting_comes_and_goes)
    // Its predicate lets changes of the status alone pass by.
    .only(|trouble| !matches!(trouble, Trouble::Stranger(ForeignChange::EditsStatus, ..)))
    .pairs(20)
    .check();
}

#[test]
fn the_replicas_of_the_third_chapter_end_right() {
    Trials::of(|client| {
        let one = replicas::replica(client.clone(), "one").run();
        let two = replicas::replica(client, "two").run();
        async { tokio::join!(one, two) }
    })
    .crd::<Greeting>()
    .namespace("home")
    .visitor(a_greeting_comes_and_goes)
    .pairs(20)
    .check();
}

#[test]
fn the_book_prints_what_a_trial_tells() {
    let page = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/trials.md"),
    )
    .unwrap();
    let printed =
        page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let told = crate::trials::trials(|| crate::trials::Notes)
        .pairs(0)
        .run()
        .failures
        .remove(0)
        .to_string();
    // The page names the test that it shows.
    let told = told.replace(
        "tried::the_book_prints_what_a_trial_tells",
        "trials::tests::whatever_happens_a_greeting_has_one_card",
    );
    assert_eq!(printed.trim(), told.trim(), "the page prints another story:\n{told}");
}

//! Ten operators with one classical bug each: each is found by a trouble that shows it; mended, each holds.
//!
//! All are written on watchkeeper, most past its verbs: the table says which verb or rule keeps who uses it from the bug.

#![expect(clippy::print_stdout, reason = "the table of what was found is the point")]

use std::time::Duration;

use tokio::time::Instant;
use watchkeeper_trials::{Event, Failure, ForeignChange, Moment, Report, Trials, Trouble, Violation, Visit};

use crate::{
    boards::{self, Board, Bug, board},
    replicas::{self, Cache},
};

/// Who is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Boards(Bug),
    Replicas(Cache),
}

/// One row of the table.
struct Row {
    bug: &'static str,
    wrong: Who,
    mended: Who,
    /// What keeps the mended one from the bug.
    by: &'static str,
    /// The requests at which a trouble may show it; empty: no trouble is needed.
    at: &'static [&'static str],
    /// The trouble that shows it, as a replay names it, and as the story tells it.
    trouble: (&'static str, &'static str),
    /// What the story says is wrong.
    wrong_is: &'static str,
}

const MENDED: Who = Who::Boards(Bug::None);

const ROWS: [Row; 10] = [
    Row {
        bug: "child made twice after a crash",
        wrong: Who::Boards(Bug::ChildMadeTwice),
        mended: Who::Boards(Bug::ChildMadeOnce),
        by: "a run waits until the cache shows what its key wrote (W3)",
        at: &["create configmaps shop/b-*"],
        trouble: ("reply-lost", "it is carried out, and the reply is lost"),
        wrong_is: "2, not 1",
    },
    Row {
        bug: "finalizer removed before cleanup",
        wrong: Who::Boards(Bug::FinalizerBeforeCleanup),
        mended: MENDED,
        by: "Controller::finalizer goes after Cleanup::Done (W7)",
        at: &["configmaps shop/a", "boards shop/a", "configmaps shop/entry-a"],
        trouble: ("rights-taken", "the kind is forbidden for 20s"),
        wrong_is: "entry-a",
    },
    Row {
        bug: "status from a stale read",
        wrong: Who::Boards(Bug::StatusFromStaleRead),
        mended: MENDED,
        by: "cx.patch_status carries the version that it read (W9)",
        at: &["boards"],
        trouble: ("stranger-adds-condition-to-it", "somebody else adds a condition to the object"),
        wrong_is: "a condition in the status",
    },
    Row {
        bug: "deletion missed while down",
        wrong: Who::Boards(Bug::DeletionMissedWhileDown),
        mended: MENDED,
        by: "Controller::finalizer holds the object until its cleanup (W7)",
        at: &["configmaps shop/", "boards"],
        trouble: ("down-", "is down for a while"),
        wrong_is: "entry-a",
    },
    Row {
        bug: "adoption of a stranger's object",
        wrong: Who::Boards(Bug::Adoption),
        mended: MENDED,
        by: "cx.apply refuses what the owner does not control (C26)",
        at: &["patch configmaps shop/"],
        trouble: ("stranger-takes-the-name-of-it", "somebody else makes an object of that name"),
        wrong_is: "it changes what somebody else made",
    },
    Row {
        bug: "owner by name after a remake",
        wrong: Who::Boards(Bug::OwnerByName),
        mended: MENDED,
        by: "cx.apply writes the reference, with the UID that the run was shown (W1)",
        at: &["configmaps", "boards"],
        trouble: ("stranger-remakes-", "and makes its like"),
        wrong_is: "configmaps shop/",
    },
    Row {
        bug: "update that loses others' fields",
        wrong: Who::Boards(Bug::UpdateNotPatch),
        mended: MENDED,
        by: "cx.apply sends the fields that it means (W2)",
        at: &["configmaps shop/a"],
        trouble: ("stranger-labels-it", "somebody else labels the object"),
        wrong_is: "a label of configmaps",
    },
    Row {
        bug: "requeue lost after an error",
        wrong: Who::Boards(Bug::RequeueLost),
        mended: MENDED,
        by: "an error that is returned is tried again (C7)",
        at: &["configmaps shop/", "boards"],
        trouble: ("rights-taken", "the kind is forbidden for 20s"),
        wrong_is: "the end is not that of the baseline run",
    },
    Row {
        bug: "stale cache after leadership",
        wrong: Who::Replicas(Cache::OfItsOwn),
        mended: Who::Replicas(Cache::OfTheManager),
        by: "the manager's caches are fresh before a new leader's first run (L9)",
        at: &["create configmaps shop/b-*"],
        trouble: ("partitioned", "the server is out of reach for 20s"),
        wrong_is: "2, not 1",
    },
    Row {
        bug: "never at rest",
        wrong: Who::Boards(Bug::NeverAtRest),
        mended: Who::Boards(Bug::TimeInStatus),
        by: "its own write wakes no key (C24)",
        at: &[],
        trouble: ("", ""),
        wrong_is: "it changes things although nothing happens",
    },
];

fn trials(who: Who) -> Trials {
    let trials = match who {
        Who::Boards(bug) => Trials::of(move |client| boards::run(client, bug)),
        Who::Replicas(cache) => Trials::of(move |client| replicas::run(client, cache)),
    };
    // What shows another mistake of the operator's, beside the one of its row, is left out.
    let another = move |trouble| match who {
        Who::Boards(Bug::DeletionMissedWhileDown) => trouble == Trouble::Server(Event::RightsTaken),
        Who::Boards(Bug::OwnerByName) => {
            matches!(trouble, Trouble::Stranger(ForeignChange::TakesTheName, ..))
        }
        Who::Replicas(Cache::OfItsOwn) => {
            matches!(trouble, Trouble::DoneLate | Trouble::Frozen | Trouble::Stranger(..))
        }
        // Who makes the Lease by the very record that a replica was about to write can't be told from that replica.
        Who::Replicas(Cache::OfTheManager) => {
            matches!(trouble, Trouble::Stranger(ForeignChange::TakesTheName, ..))
        }
        _ => false,
    };
    let trials = trials.crd::<Board>().namespace("shop").only(move |trouble| !another(trouble));
    match who {
        Who::Boards(_) => trials.visitor(boards_come_change_and_go),
        // A new leader works once its caches are fresh, which takes a while where nothing happens.
        Who::Replicas(_) => trials.visitor(async |visit: Visit| {
            visit.create(&board("a")).await;
            visit.wait(Duration::from_secs(40)).await;
            visit.create(&board("b")).await;
        }),
    }
}

async fn boards_come_change_and_go(visit: Visit) {
    visit.create(&board("a")).await;
    visit.edit::<Board>("a", |board| board.spec.text = "two".into()).await;
    visit.create(&board("b")).await;
    visit.delete::<Board>("a").await;
}

impl Row {
    /// Says what is amiss with how the bug was found.
    fn amiss(&self, report: &Report) -> Option<String> {
        let Some(found) = report.failures.first() else {
            return Some(format!("not found in {} trials", report.singles + report.pairs));
        };
        let Failure { trial, story, .. } = found;
        let told = found.to_string();
        let (name, tale) = self.trouble;
        let amiss = [
            (self.at.is_empty() != trial.is_empty(), "found by another sort of trouble"),
            (!self.at.is_empty() && !self.at.iter().any(|at| trial.contains(at)), "found elsewhere"),
            (!trial.contains(name), "found by another trouble"),
            (!story.contains(tale), "its story does not tell the trouble"),
            (!told.contains(self.wrong_is), "its story does not tell what is wrong"),
        ];
        amiss.iter().find(|(is, _)| *is).map(|(_, what)| format!("{what}: {trial}\n{told}"))
    }
}

fn show(row: &Row, report: &Report, seconds: f64) {
    if let Some(found) = report.failures.first() {
        let (tried, steps, trial) = (found.tried, found.steps, &found.trial);
        println!("{:<34} {tried:>7} {seconds:>8.2} {steps:>6}  {trial}", row.bug);
        println!("{:<34} {}", "", row.by);
        if std::env::var("STORY").is_ok_and(|wanted| row.bug.contains(&wanted)) {
            println!("{found}");
        }
    }
}

// T4
#[test]
fn each_of_ten_classical_bugs_is_found() {
    println!("{:<34} {:>7} {:>8} {:>6}  trial", "bug", "trials", "seconds", "steps");
    let amiss = |row: &Row| {
        let began = Instant::now();
        let report = trials(row.wrong).run();
        show(row, &report, began.elapsed().as_secs_f64());
        row.amiss(&report).map(|amiss| format!("{}: {amiss}", row.bug))
    };
    let wanted = std::env::var("BUG").unwrap_or_default();
    let amiss: Vec<String> = ROWS.iter().filter(|row| row.bug.contains(&wanted)).filter_map(amiss).collect();
    assert!(amiss.is_empty(), "{}", amiss.join("\n"));
}

// T4
#[test]
fn the_board_operator_without_a_bug_holds() {
    trials(MENDED).check();
}

// T4
#[test]
fn a_child_of_a_generated_name_that_is_looked_for_holds() {
    trials(Who::Boards(Bug::ChildMadeOnce)).check();
}

// T4 C24
#[test]
fn a_time_in_the_status_wakes_nobody() {
    trials(Who::Boards(Bug::TimeInStatus)).only(|_| false).check();
}

// T4 L9
#[test]
fn replicas_that_read_the_managers_cache_hold() {
    trials(Who::Replicas(Cache::OfTheManager)).check();
}

#[test]
fn every_mended_operator_of_the_table_is_tried() {
    let tried = [
        MENDED,
        Who::Boards(Bug::ChildMadeOnce),
        Who::Boards(Bug::TimeInStatus),
        Who::Replicas(Cache::OfTheManager),
    ];
    for row in &ROWS {
        assert!(tried.contains(&row.mended) && row.wrong != row.mended, "{}", row.bug);
    }
}

#[test]
fn a_child_made_twice_shows_as_such() {
    let lost = |trouble| matches!(trouble, Trouble::ReplyLost | Trouble::Killed(Moment::After));
    let report = trials(Who::Boards(Bug::ChildMadeTwice)).only(lost).run();
    let failure = &report.failures[0];
    assert!(matches!(failure.faults[0], Violation::AnotherEnd(_)), "{failure}");
    let told = failure.to_string();
    assert!(told.contains("configmaps shop/b-*: 2, not 1"), "{told}");
    assert!(told.contains("cargo test bugs::a_child_made_twice_shows_as_such"), "{told}");
}

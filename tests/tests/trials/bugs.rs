//! Ten operators with one classical bug each: each is found by a trouble that shows it; mended, each holds.

#![expect(clippy::print_stdout, reason = "the table of what was found is the point")]

use tokio::time::Instant;
use watchkeeper_apiserver::trials::{Event, Fault, Moment, Report, Trials, Trouble, Visit};

use crate::{
    boards::{self, Board, Bug, board},
    replicas::{self, Cache},
};

/// Who is tried.
#[derive(Clone, Copy, Debug)]
enum Who {
    Boards(Bug),
    Replicas(Cache),
}

/// One row of the table: the bug, the operator that has it, the mended one, and troubles that show it.
struct Row {
    bug: &'static str,
    wrong: Who,
    mended: Who,
    shown_by: &'static [&'static str],
}

const MENDED: Who = Who::Boards(Bug::None);

const ROWS: [Row; 10] = [
    Row {
        bug: "child made twice after a crash",
        wrong: Who::Boards(Bug::ChildMadeTwice),
        mended: Who::Boards(Bug::ChildMadeOnce),
        shown_by: &["create configmaps shop/", "patch boards/status shop/"],
    },
    Row {
        bug: "finalizer removed before cleanup",
        wrong: Who::Boards(Bug::FinalizerBeforeCleanup),
        mended: MENDED,
        shown_by: &["patch boards shop/a", "delete configmaps shop/entry-a", "patch configmaps shop/a"],
    },
    Row {
        bug: "status from a stale read",
        wrong: Who::Boards(Bug::StatusFromStaleRead),
        mended: MENDED,
        shown_by: &["stranger-adds-condition-to-it"],
    },
    Row {
        bug: "deletion missed while down",
        wrong: Who::Boards(Bug::DeletionMissedWhileDown),
        mended: MENDED,
        shown_by: &["partitioned", "down-", "killed-", "history-forgotten", "lists-expire"],
    },
    Row {
        bug: "adoption of a stranger's object",
        wrong: Who::Boards(Bug::Adoption),
        mended: MENDED,
        shown_by: &["stranger-takes-the-name-of-it"],
    },
    Row {
        bug: "owner by name after a remake",
        wrong: Who::Boards(Bug::OwnerByName),
        mended: MENDED,
        shown_by: &["stranger-remakes-"],
    },
    Row {
        bug: "update that loses others' fields",
        wrong: Who::Boards(Bug::UpdateNotPatch),
        mended: Who::Boards(Bug::UpdateByVersion),
        shown_by: &["stranger-labels-it"],
    },
    Row {
        bug: "requeue lost after an error",
        wrong: Who::Boards(Bug::RequeueLost),
        mended: MENDED,
        shown_by: &[""],
    },
    Row {
        bug: "stale cache after leadership",
        wrong: Who::Replicas(Cache::OfTheStart),
        mended: Who::Replicas(Cache::OfEachRound),
        shown_by: &["leases shop/boards"],
    },
    Row { bug: "never at rest", wrong: Who::Boards(Bug::NeverAtRest), mended: MENDED, shown_by: &[""] },
];

fn trials(who: Who) -> Trials {
    let trials = match who {
        Who::Boards(bug) => Trials::of(move |client| boards::run(client, bug)),
        Who::Replicas(cache) => Trials::of(move |client| replicas::run(client, cache)),
    };
    // kube's runtime does not notice that a server went back to an older state. Late creations and other people's
    // deletions show the replicas' mistake too: here it is to be shown by a change of leaders.
    let leads = matches!(who, Who::Replicas(Cache::OfTheStart));
    let noticed = move |trouble| match trouble {
        Trouble::Server(event) => event != Event::Restored,
        Trouble::DoneLate | Trouble::Frozen | Trouble::Stranger(..) => !leads,
        _ => true,
    };
    trials.crd::<Board>().namespace("shop").only(noticed).visitor(async |visit: Visit| {
        visit.create(&board("a")).await;
        visit.edit::<Board>("a", |board| board.spec.text = "two".into()).await;
        visit.create(&board("b")).await;
        visit.delete::<Board>("a").await;
    })
}

fn show(row: &Row, report: &Report, seconds: f64) -> bool {
    let Some(found) = report.failures.first() else {
        println!("{:<34} NOT FOUND in {} trials", row.bug, report.singles + report.pairs);
        return false;
    };
    let (tried, steps, trial) = (found.tried, found.steps, &found.trial);
    println!("{:<34} {tried:>7} {seconds:>8.2} {steps:>6}  {trial}", row.bug);
    if std::env::var("STORY").is_ok_and(|wanted| row.bug.contains(&wanted)) {
        println!("{found}");
    }
    row.shown_by.iter().any(|sign| trial.contains(sign))
}

// T4
#[test]
fn each_of_ten_classical_bugs_is_found() {
    println!("{:<34} {:>7} {:>8} {:>6}  trial", "bug", "trials", "seconds", "steps");
    let found = |row: &&Row| {
        let began = Instant::now();
        let report = trials(row.wrong).run();
        show(row, &report, began.elapsed().as_secs_f64())
    };
    let missed: Vec<&str> = ROWS.iter().filter(|row| !found(row)).map(|row| row.bug).collect();
    assert_eq!(missed, [""; 0], "not found, or shown by another trouble");
}

fn holds(who: Who) {
    trials(who).check();
}

// T4
#[test]
fn the_board_operator_without_a_bug_holds() {
    holds(MENDED);
}

// T4
#[test]
fn a_child_of_a_generated_name_that_is_looked_for_holds() {
    holds(Who::Boards(Bug::ChildMadeOnce));
}

// T4
#[test]
fn an_update_by_version_holds() {
    holds(Who::Boards(Bug::UpdateByVersion));
}

// T4
#[test]
fn replicas_that_look_anew_hold() {
    holds(Who::Replicas(Cache::OfEachRound));
}

#[test]
fn every_mended_operator_of_the_table_is_tried() {
    let tried = ["Boards(None)", "Boards(ChildMadeOnce)", "Boards(UpdateByVersion)", "Replicas(OfEachRound)"];
    for row in &ROWS {
        assert!(tried.contains(&format!("{:?}", row.mended).as_str()), "{}", row.bug);
    }
}

#[test]
fn a_child_made_twice_shows_as_such() {
    let lost = |trouble| matches!(trouble, Trouble::ReplyLost | Trouble::Killed(Moment::After));
    let report = trials(Who::Boards(Bug::ChildMadeTwice)).only(lost).run();
    let failure = &report.failures[0];
    assert!(matches!(failure.faults[0], Fault::AnotherEnd(_)), "{failure}");
    let told = failure.to_string();
    assert!(told.contains("configmaps shop/b-*: 2, not 1"), "{told}");
    assert!(told.contains("cargo test bugs::a_child_made_twice_shows_as_such"), "{told}");
}

//! Plants bugs in a copy of the repository, one at a time, and fails where the tests do not find one.
//!
//! ```text
//! cargo run --bin planted                    # all of them
//! cargo run --bin planted -- tokens timer    # those whose names hold one of these
//! cargo run --bin planted -- --date today    # a few, other ones each day (or a date: 2026-11-22)
//! cargo run --bin planted -- --check         # only whether they fit the code, and the tests claim what they break
//! ```

#![expect(clippy::print_stdout, reason = "what was found is the point")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "programs run in real time, on a day"
)]

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use k8s_openapi::jiff::civil::{Date, date};
use watchkeeper_tests::planted::{Bug, Copy, Outcome, Trials, bugs, flaws, of_the_day, root};

const DAY: u64 = 86_400;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn run() -> io::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let chosen = match words[..] {
        ["--check"] => return check(&bugs()?),
        ["--date", day] => of_the_day(bugs()?, number_of(day).map_err(io::Error::other)?),
        [] => bugs()?,
        _ => bugs()?.into_iter().filter(|bug| words.iter().any(|word| bug.name.contains(word))).collect(),
    };
    if chosen.is_empty() {
        return Err(io::Error::other("no bug has such a name"));
    }
    plant(&chosen)
}

/// Counts the days from 1970 to a date.
fn number_of(day: &str) -> Result<u64, String> {
    if day == "today" {
        return Ok(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY);
    }
    let day: Date =
        day.parse().map_err(|error| format!("{day:?} is not a date such as 2026-11-22: {error}"))?;
    u64::try_from(day.duration_since(date(1970, 1, 1)).as_secs())
        .map(|seconds| seconds / DAY)
        .map_err(|_| "days are counted from 1970".to_owned())
}

fn check(bugs: &[Bug]) -> io::Result<ExitCode> {
    let flaws = flaws(bugs)?;
    flaws.iter().for_each(|flaw| println!("{flaw}"));
    println!("{} planted bugs, {} flaws", bugs.len(), flaws.len());
    Ok(code(flaws.is_empty()))
}

fn plant(bugs: &[Bug]) -> io::Result<ExitCode> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let trials = Trials::new(Copy::of(&root(), &target.join("planted"))?, &target);
    let (begun, mut found, mut passing) = (Instant::now(), 0, None);
    for bug in bugs {
        if passing.replace(bug.target) != Some(bug.target) {
            let begun = Instant::now();
            trials.pass_without(bug.target, bugs).map_err(io::Error::other)?;
            println!("without any bug: {} passes, {}", bug.target.name(), seconds(begun.elapsed()));
        }
        let begun = Instant::now();
        let outcome = trials.try_one(bug);
        let (name, took) = (&bug.name, seconds(begun.elapsed()));
        match outcome {
            Outcome::Found(by) => {
                found += 1;
                println!("{name}: found by {}, {took}", by.join(", "));
            }
            Outcome::NotFound => println!("{name}: NOT FOUND by {}, {took}", bug.tests.join(", ")),
            Outcome::Broken(why) => println!("{name}: NOT TRIED, {took}: {why}"),
        }
    }
    println!("{found} of {} found, {}", bugs.len(), seconds(begun.elapsed()));
    Ok(code(found == bugs.len()))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

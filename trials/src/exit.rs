//! What is said where the operator ends the process in the middle of a trial.
//!
//! `std::process::exit` runs no destructor but, where the C library sees to it, those of its thread's locals: there the
//! line is written that plays the trial again, and the process is made to fail. Another thread that exits destroys its
//! own locals only, so an exit with code 0 from there still passes for success.

use std::cell::RefCell;
use std::io::Write as _;
use std::process;
use std::thread;

use crate::harness::Harness;
use crate::replay::replay_line;
use crate::schedule::Schedule;
use crate::timeline::{self, Length};

thread_local! {
    static UNDER_WAY: Notice = const { Notice(RefCell::new(None)) };
}

struct Notice(RefCell<Option<Trial>>);

/// The trial of this thread.
struct Trial {
    harness: Harness,
    trial: String,
    test: Option<String>,
}

/// Keeps a trial known as under way.
pub(crate) struct UnderWay(());

/// Records that a trial is under way, until the guard is dropped.
pub(crate) fn under_way(schedule: &Schedule, harness: &Harness) -> UnderWay {
    let test = test_name();
    let trial = Trial { harness: harness.clone(), trial: schedule.to_string(), test };
    UNDER_WAY.with(|notice| *notice.0.borrow_mut() = Some(trial));
    UnderWay(())
}

/// Names the test that this thread runs.
pub(crate) fn test_name() -> Option<String> {
    thread::current().name().filter(|name| *name != "main").map(str::to_owned)
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Where the locals are gone already, so is what was noted.
        let _gone = UNDER_WAY.try_with(|notice| notice.0.take());
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let Some(trial) = self.0.take() else { return };
        // Past the test's capture, which nobody will read.
        let _nobody_listens = std::io::stderr().lock().write_all(trial.told().as_bytes());
        // An end with code 0 would pass for a test that holds.
        process::abort();
    }
}

impl Trial {
    fn told(&self) -> String {
        let (story, _) = timeline::steps(&self.harness.state().lines, Length::Short);
        let story = if story.is_empty() { story } else { format!("what happened:\n{story}") };
        match self.trial.as_str() {
            "" => format!("\nthe operator ends the process in a run without any trouble\n{story}"),
            trial => format!(
                "\nthe operator ends the process in a trial: {trial}\n{story}{}\n",
                replay_line(trial, self.test.as_deref())
            ),
        }
    }
}

//! The programs that README and the book print do what they say, each as a process of its own.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says how long it took")]

mod commands;
mod kubectl;
mod packages;
mod pasted;
mod ports;
mod printed;
mod repository;
mod template;
mod tutorial;

use std::path::Path;

#[tokio::test]
async fn readmes_operator_makes_the_child_and_makes_it_again() {
    printed::runs(Path::new(env!("CARGO_BIN_EXE_operator")), &[]).await;
}

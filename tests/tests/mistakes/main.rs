//! What people get to read for the mistakes that everybody makes: `mistakes.txt`, to be read from top to bottom.
//!
//! What concerns a kubeconfig or a connection is what README's operator prints, as a process of its own.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod data;
mod process;
mod runtime;
mod several;
mod start;
mod writes;

use watchkeeper_tests::assert_snapshot;

/// A mistake, and what is said of it.
type Mistake = (&'static str, String);

#[test]
fn every_mistake_is_told_with_what_is_wrong_where_and_what_to_do() {
    let chapters = [
        ("Kubeconfig and connection: what the operator prints", process::mistakes()),
        ("Start: what `Manager::run` and `install_crd` return", start::mistakes()),
        ("Writes: what a reconciler gets, and the log shows", writes::mistakes()),
        ("At run time: what the log says", runtime::mistakes()),
        ("Several replicas, several clusters, a recording", several::mistakes()),
        ("The API server's data file", data::mistakes()),
    ];
    let count: usize = chapters.iter().map(|(_, mistakes)| mistakes.len()).sum();
    assert!(count >= 30, "{count}");
    let mut text = format!("{count} mistakes, and what is said of each; kept by tests/tests/mistakes.\n");
    for (chapter, mistakes) in chapters {
        text.push_str(&format!("\n## {chapter}\n"));
        for (mistake, said) in mistakes {
            assert!(!said.trim().is_empty(), "nothing is said of: {mistake}");
            text.push_str(&format!("\n# {mistake}\n{}\n", said.trim_end()));
        }
    }
    assert_snapshot("tests/mistakes/mistakes.txt", &text);
}

/// Runs something to its end under paused time.
fn paused<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(what)
}

//! The runtime end to end, over TLS and in real time: one suite, two servers.
//!
//! The embedded server always; a real kube-apiserver where `WATCHKEEPER_KUBE_APISERVER` names the folder of its
//! binaries (`tests/kube-apiserver/build` makes them, and prints that folder).
//!
//! ```text
//! cargo test -p watchkeeper-tests --test e2e [-- [PART OF A NAME]... [--list] [--test-threads N]]
//! ```

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod harness;
mod children;
mod conversion;
mod cronjob;
mod definitions;
mod deletion;
mod http;
mod https;
mod informers;
mod leaders;
mod link;
mod life;
mod manifests;
mod outages;
mod own_api;
mod own_writes;
mod page;
mod policies;
mod rehearsals;
mod restored;
mod rights;
mod roles;
mod selections;
mod shards;

fn main() -> std::process::ExitCode {
    // What takes longest begins first.
    let modules = [
        shards::TESTS,
        leaders::TESTS,
        children::TESTS,
        conversion::TESTS,
        cronjob::TESTS,
        definitions::TESTS,
        deletion::TESTS,
        http::TESTS,
        https::TESTS,
        informers::TESTS,
        life::TESTS,
        manifests::TESTS,
        outages::TESTS,
        own_api::TESTS,
        own_writes::TESTS,
        page::TESTS,
        policies::TESTS,
        rehearsals::TESTS,
        restored::TESTS,
        rights::TESTS,
        roles::TESTS,
        selections::TESTS,
    ];
    harness::run(&modules.concat())
}

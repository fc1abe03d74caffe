//! What else could happen to the operator, tried out.

use watchkeeper::reflector::ReflectorConfig;
use watchkeeper_trials::Trials;

use super::{
    tests::{Book, site},
    *,
};

thread_local! {
    /// The registrar of the trial that this thread plays: it outlives the operator.
    static BOOK: Book = Book::default();
}

fn operator(client: kube::Client) -> Manager {
    // What is random comes from a seed, so that a trial is the same each time.
    let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
    Manager::with_config(client, config)
        .controller(controller(BOOK.with(Book::clone)))
}

#[test]
fn whatever_happens_a_deleted_site_is_gone() {
    Trials::of(|client| operator(client).run())
        .crd::<Website>()
        .namespace("shop")
        .visitor(async |visit| {
            BOOK.with(Book::forget);
            visit.create(&site("hello")).await;
            visit.delete::<Website>("hello").await;
        })
        .pairs(0)
        .check();
}

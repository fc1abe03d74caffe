//! Counts steps, for tests that limit how work grows with size.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts steps.
pub(crate) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

/// Returns how many steps something takes on this thread.
pub(crate) fn steps_of(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}

/// Checks that twice the size takes about twice the steps, for a few sizes.
pub(crate) fn assert_grows_linearly(name: &str, mut work: impl FnMut(usize)) {
    let steps: Vec<_> = [500, 1_000, 2_000].map(|size| steps_of(|| work(size))).to_vec();
    assert!(steps[0] > 0, "{name}: nothing was counted");
    let doubles = steps.windows(2).all(|pair| pair[1] as f64 <= 2.5 * pair[0] as f64);
    assert!(doubles, "{name}: 500, 1,000 and 2,000 take {steps:?} steps");
}

//! The benches, with the system's allocator.

fn main() -> anyhow::Result<()> {
    watchkeeper_benches::run()
}

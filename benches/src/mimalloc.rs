//! The benches' measured processes with mimalloc: an allocator is the program's choice, not the library's.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    watchkeeper_benches::run()
}

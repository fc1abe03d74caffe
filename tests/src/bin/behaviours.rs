//! Shows which tests prove which behaviour: `cargo run --bin behaviours [-- R D S I]`.
//!
//! Fails when one of them has no test.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use watchkeeper_tests::behaviours::{missing, proofs, table};

fn main() -> io::Result<ExitCode> {
    let families: String = std::env::args().skip(1).collect();
    let proofs = proofs()?;
    io::stdout().write_all(table(&families, &proofs).as_bytes())?;
    Ok(if missing(&families, &proofs).is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

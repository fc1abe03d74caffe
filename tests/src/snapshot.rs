//! Texts that people read, kept in a file next to the test that makes them.

use std::{env, fs, path::Path};

/// Compares a text with a file of this package; with `UPDATE_SNAPSHOTS` set, writes the file.
///
/// # Panics
/// They differ.
pub fn assert_snapshot(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, text).expect("the snapshot is written");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let (kept_lines, lines): (Vec<_>, Vec<_>) = (kept.lines().collect(), text.lines().collect());
    let at = kept_lines.iter().zip(&lines).position(|(kept, line)| kept != line);
    let at = at.unwrap_or(kept_lines.len().min(lines.len()));
    assert!(
        kept == text,
        "{file}, line {}\nkept: {:?}\nnow:  {:?}\nread the change, then run the test with UPDATE_SNAPSHOTS=1",
        at + 1,
        kept_lines.get(at),
        lines.get(at)
    );
}

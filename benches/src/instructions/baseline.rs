//! The counts that are committed: one path a line, its name and its instructions.

use std::{collections::BTreeMap, fs};

use anyhow::Context as _;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

/// How many instructions a round of each path took when they were last accepted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Baseline(BTreeMap<String, u64>);

impl Baseline {
    pub(super) fn read() -> anyhow::Result<Self> {
        Self::parse(&fs::read_to_string(FILE).with_context(|| format!("{FILE} can't be read"))?)
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        fs::write(FILE, self.text()).with_context(|| format!("{FILE} can't be written"))
    }

    pub(super) fn of(&self, path: &str) -> Option<u64> {
        self.0.get(path).copied()
    }

    pub(super) fn set(&mut self, path: &str, instructions: u64) {
        self.0.insert(path.to_owned(), instructions);
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let read = |line: &str| {
            let (path, count) = line.split_once(' ')?;
            Some((path.to_owned(), count.trim().parse().ok()?))
        };
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| read(line).with_context(|| format!("{FILE}: {line:?} is not a path and a count")))
            .collect::<anyhow::Result<_>>()
            .map(Self)
    }

    fn text(&self) -> String {
        self.0.iter().map(|(path, count)| format!("{path} {count}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_rubbish_is_refused() -> anyhow::Result<()> {
        let mut baseline = Baseline::default();
        baseline.set("grant", 812);
        baseline.set("decode-typed", 61_000);
        assert_eq!(baseline.text(), "decode-typed 61000\ngrant 812\n");
        assert_eq!(Baseline::parse(&baseline.text())?, baseline);
        assert!(Baseline::parse("grant many\n").is_err());
        assert!(Baseline::parse("grant\n").is_err());
        Ok(())
    }
}

//! A file of bounded size, in two parts: the older one is thrown away.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The file that is written.
pub(super) struct Ring {
    path: PathBuf,
    /// Most bytes of a part.
    most: u64,
    written: u64,
    file: File,
}

impl Ring {
    /// Opens a new part; what an earlier process wrote becomes the older part.
    pub(super) fn open(path: &Path, at_most: u64, began: &str) -> io::Result<Self> {
        let file = begin(path)?;
        let mut ring = Self { path: path.to_owned(), most: at_most / 2, written: 0, file };
        let version = env!("CARGO_PKG_VERSION");
        ring.append(format!("{{\"t\":0,\"watchkeeper\":\"{version}\",\"began\":\"{began}\"}}\n").as_bytes())?;
        Ok(ring)
    }

    /// Writes lines, into a new part where this one is full; that begins with a snapshot, for which it says how many bytes
    /// there are.
    pub(super) fn write(&mut self, text: &[u8], snapshot: impl FnOnce(usize) -> Vec<u8>) -> io::Result<()> {
        if self.written + text.len() as u64 > self.most && self.written > 0 {
            self.file = begin(&self.path)?;
            self.written = 0;
            let room = usize::try_from(self.most / 2).unwrap_or(usize::MAX);
            self.append(&snapshot(room))?;
        }
        self.append(text)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)?;
        self.written += text.len() as u64;
        Ok(())
    }
}

/// Makes the file the older part, and begins another.
fn begin(path: &Path) -> io::Result<File> {
    match fs::rename(path, older(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn older(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    name.into()
}

/// Reads both parts, the older one first.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut all = match fs::read(older(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    all.extend(fs::read(path)?);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    // P26
    #[test]
    fn both_parts_stay_within_the_bound_and_a_new_part_begins_with_a_snapshot() {
        let folder = std::env::temp_dir().join(format!("watchkeeper-ring-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("op.wkr");
        let mut ring = Ring::open(&path, 1_000, "2026-01-01T00:00:00Z").unwrap();
        let mut snapshots = 0;
        for number in 0..300 {
            let line = format!("{{\"t\":{number}}}\n");
            ring.write(line.as_bytes(), |room| {
                assert_eq!(room, 250);
                snapshots += 1;
                b"{\"object\":1}\n".to_vec()
            })
            .unwrap();
            assert!(read(&path).unwrap().len() <= 1_000);
        }
        let all = String::from_utf8(read(&path).unwrap()).unwrap();
        assert!(
            snapshots > 0 && all.ends_with("{\"t\":299}\n") && all.starts_with("{\"object\":1}\n"),
            "{all}"
        );
        // Another process goes on behind it.
        drop(Ring::open(&path, 1_000, "2026-01-01T00:00:00Z").unwrap());
        let both = String::from_utf8(read(&path).unwrap()).unwrap();
        assert!(both.contains("{\"t\":299}\n{\"t\":0,\"watchkeeper\""), "{both}");
        fs::remove_dir_all(folder).unwrap();
    }
}

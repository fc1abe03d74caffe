//! A flight recorder's file, as an earlier process has left it.

use std::{fs, io::Write, path::PathBuf};

use watchkeeper::{FlightRecorder, Manager};

use crate::job::{Job, Mode};

/// The default size of a recording.
const SIZE: usize = 64 << 20;
/// Many times the size of the cached objects.
const LONG: usize = 512 << 20;

/// What the file is filled with: as much at a time as a recorder writes, because the system keeps it in pages of that size.
static PIECE: [u8; 256 << 10] = [b'\n'; 256 << 10];

/// The file of a manager that records; gone with this.
pub(crate) struct RecordingFile(Option<PathBuf>);

impl RecordingFile {
    fn parts(&self) -> impl Iterator<Item = PathBuf> + use<> {
        let older = ["wkr.oldest", "wkr.old"];
        let parts =
            move |file: PathBuf| older.map(|suffix| file.with_extension(suffix)).into_iter().chain([file]);
        self.0.clone().into_iter().flat_map(parts)
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        self.parts().for_each(|part| {
            let _left_in_the_temporary_folder = fs::remove_file(part);
        });
    }
}

/// Lets a manager record, where the job says so.
///
/// # Errors
/// The file can't be written.
pub(crate) fn recorded(job: &Job, manager: Manager) -> anyhow::Result<(Manager, RecordingFile)> {
    let size = match job.mode {
        Mode::Recorded => SIZE,
        Mode::RecordedLong => LONG,
        _ => return Ok((manager, RecordingFile(None))),
    };
    let path = std::env::temp_dir().join(format!("watchkeeper-bench-{}.wkr", std::process::id()));
    let file = RecordingFile(Some(path.clone()));
    // Static: a large buffer would change how the allocator works from then on. Written to the disk, so that this is not done
    // while something is measured.
    file.parts().try_for_each(|part| {
        let mut part = fs::File::create(part)?;
        (0..size / 3 / PIECE.len()).try_for_each(|_| part.write_all(&PIECE))?;
        part.sync_all()
    })?;
    Ok((manager.flight_recorder(FlightRecorder::new(path).at_most(size as u64)), file))
}

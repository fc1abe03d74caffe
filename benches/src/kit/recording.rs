//! A flight recorder's file, as an earlier process has left it.

use std::{fs, path::PathBuf};

use watchkeeper::{FlightRecorder, Manager};

use crate::job::{Job, Mode};

/// The default size of a recording.
const SIZE: usize = 64 << 20;
/// Many times the size of the cached objects.
const LONG: usize = 512 << 20;

/// The file of a manager that records; gone with this.
pub(crate) struct RecordingFile(Option<PathBuf>);

impl RecordingFile {
    fn parts(&self) -> impl Iterator<Item = PathBuf> + use<> {
        self.0.clone().into_iter().flat_map(|file| [file.with_extension("wkr.old"), file])
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
    file.parts().try_for_each(|part| fs::write(part, vec![b'\n'; size / 2]))?;
    Ok((manager.flight_recorder(FlightRecorder::new(path).at_most(size as u64)), file))
}

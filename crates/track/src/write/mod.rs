//! Tracks as files.

mod csv;
mod json;
mod npz;

use std::io::Write;
use std::path::Path;

use crate::error::os_reason;
use crate::output::{Format, Pending};
use crate::{Error, Result, Tracks};

impl Tracks {
    /// Writes the tracks in the form that the extension asks for: `.json`, `.csv` or `.npz`. The file appears
    /// under its name only when it is complete, and replaces what had it. The same tracks give the same bytes.
    ///
    /// # Errors
    /// Another extension, or a path that cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        let mut file = Pending::create(path)?;
        match format {
            Format::Json => json::write(self, &mut file).map_err(|e| failed(path, &e))?,
            Format::Csv => csv::write(self, &mut file).map_err(|e| failed(path, &e))?,
            Format::Npz => npz::write(self, file.file())
                .map_err(|e| Error::output(path, format!("{e}; check the disk")))?,
        }
        file.flush().map_err(|e| failed(path, &e))?;
        file.finish()
    }

    /// Reads tracks that were written as JSON.
    ///
    /// # Errors
    /// The file cannot be read, is of another schema, or its parts do not fit each other.
    pub fn read_json(path: impl AsRef<Path>) -> Result<Self> {
        json::read(path.as_ref())
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::output(path, format!("{}; check the disk", os_reason(error)))
}

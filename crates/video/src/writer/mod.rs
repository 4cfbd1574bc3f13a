//! Frames out: a video, a GIF or a contact sheet, complete under its name or not there at all.

mod font;
mod gif;
mod sheet;
#[cfg(feature = "ffmpeg")]
mod video;

use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::{Error, Frame, VideoInfo};

/// How to write.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Frames on a contact sheet, 12 by default.
    pub sheet_frames: usize,
    /// Largest width of a contact sheet in pixels, 1600 by default.
    pub sheet_width: u32,
    /// Shift the times so that the first frame is shown at 0. By default a video keeps the times of its
    /// source, also where these start later than 0.
    pub from_zero: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            sheet_frames: 12,
            sheet_width: 1600,
            from_zero: false,
        }
    }
}

/// Writes frames to a file, in the form that its extension asks for:
///
/// - `.mp4`, `.mov`, `.mkv`: H.264 (libx264, or the best that FFmpeg has), 4:2:0, limited range BT.709. Every frame
///   keeps its time, in the source's time base (`.mkv`: rounded to milliseconds); times before 0 are shifted to start
///   at 0. Odd sizes become even by repeating the last column or row, which 4:2:0 asks for. The pixel aspect is kept.
/// - `.gif`: loops; times rounded to hundredths of a second, and never less than two of them between frames.
/// - `.png`: a contact sheet of evenly spread frames with their numbers and times.
///
/// The file appears under its name only when [`finish`](Self::finish) succeeds; until then it is a hidden file
/// in the same folder, removed when the writer is dropped. A file that had the name is replaced.
pub struct OverlayWriter {
    path: PathBuf,
    file: NamedTempFile,
    form: Form,
    timing: Timing,
    #[cfg_attr(not(feature = "ffmpeg"), expect(dead_code))]
    options: WriterOptions,
    size: Option<(u32, u32)>,
}

enum Form {
    /// Names the container; the encoder starts with the first frame, whose size it takes.
    #[cfg(feature = "ffmpeg")]
    Video(&'static str, Option<video::VideoWriter>),
    Gif(Option<gif::GifWriter>),
    Sheet(sheet::Sheet),
}

/// What is kept of the source's description.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "ffmpeg"), expect(dead_code))]
pub(crate) struct Timing {
    pub(crate) time_base: (u32, u32),
    pub(crate) rate: (u32, u32),
    pub(crate) pixel_aspect: (u32, u32),
}

impl std::fmt::Debug for OverlayWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayWriter")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl OverlayWriter {
    /// Prepares a file; `info` is the source's, for its time base, rate and pixel aspect.
    /// The size is that of the first frame pushed.
    ///
    /// # Errors
    /// The extension is none of those above, or the folder is missing or not writable.
    pub fn create(path: &Path, info: &VideoInfo, options: &WriterOptions) -> Result<Self, Error> {
        let extension = path
            .extension()
            .map(|e| e.to_string_lossy().to_ascii_lowercase())
            .unwrap_or_default();
        let form = match extension.as_str() {
            "gif" => Form::Gif(None),
            "png" => Form::Sheet(sheet::Sheet::new(options)),
            "mp4" | "m4v" => video_form(path, "mp4")?,
            "mov" => video_form(path, "mov")?,
            "mkv" => video_form(path, "matroska")?,
            _ => {
                return Err(Error::output(
                    path,
                    "its extension must say the form: .mp4, .mov or .mkv for a video, .gif, or .png for a contact sheet",
                ));
            }
        };
        let positive = |(n, d): (u32, u32)| n > 0 && d > 0;
        let rate = info.frame_rate.filter(|r| positive(*r)).unwrap_or((25, 1));
        // Containers keep the unit in 32 bits, and a microsecond is fine enough.
        let time_base = match info.time_base {
            (n, d) if n > 0 && d > 0 && d <= 1_000_000 && n <= 1_000_000 => (n, d),
            _ => (1, 1_000_000),
        };
        let pixel_aspect = Some(info.pixel_aspect)
            .filter(|a| positive(*a) && a.0 < 1 << 30 && a.1 < 1 << 30)
            .unwrap_or((1, 1));
        Ok(Self {
            path: path.to_path_buf(),
            file: temporary(path)?,
            form,
            timing: Timing {
                time_base,
                rate,
                pixel_aspect,
            },
            options: options.clone(),
            size: None,
        })
    }

    /// Adds a frame. All frames are of one size; times increase (a frame that does not is put right behind the last).
    ///
    /// # Errors
    /// The frame's data do not fit its size or the first frame's; the disk is full; the encoder fails.
    pub fn push(&mut self, frame: &Frame) -> Result<(), Error> {
        let size = (frame.width, frame.height);
        let expected = frame.width as usize * frame.height as usize * 3;
        if expected == 0 || frame.data.len() != expected {
            return Err(Error::Pixels(format!(
                "frame {}: expected {expected} bytes for {}x{} RGB pixels, found {}; give tight RGB rows of at least one pixel",
                frame.index,
                size.0,
                size.1,
                frame.data.len()
            )));
        }
        let first = *self.size.get_or_insert(size);
        if first != size {
            return Err(Error::Pixels(format!(
                "frame {}: expected {}x{} pixels like the frames before it, found {}x{}; give frames of one size",
                frame.index, first.0, first.1, size.0, size.1
            )));
        }
        match &mut self.form {
            #[cfg(feature = "ffmpeg")]
            Form::Video(container, writer) => {
                let writer = match writer {
                    Some(writer) => writer,
                    None => writer.insert(video::VideoWriter::create(
                        self.file.path(),
                        &self.path,
                        container,
                        size,
                        &self.timing,
                        self.options.from_zero,
                    )?),
                };
                writer.push(frame)
            }
            Form::Gif(writer) => {
                let writer = match writer {
                    Some(writer) => writer,
                    None => writer.insert(gif::GifWriter::create(
                        &self.file,
                        &self.path,
                        size,
                        &self.timing,
                    )?),
                };
                writer.push(frame)
            }
            Form::Sheet(sheet) => {
                sheet.push(frame);
                Ok(())
            }
        }
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// No frame was pushed, the encoder fails, or the file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Error> {
        let empty = || Error::encode(&self.path, "no frame was given to write");
        match self.form {
            #[cfg(feature = "ffmpeg")]
            Form::Video(_, writer) => writer.ok_or_else(empty)?.finish()?,
            Form::Gif(writer) => writer.ok_or_else(empty)?.finish()?,
            Form::Sheet(sheet) => {
                let picture = sheet.picture().ok_or_else(empty)?;
                let mut file = std::io::BufWriter::new(self.file.as_file());
                picture
                    .write_to(&mut file, image::ImageFormat::Png)
                    .map_err(|e| Error::encode(&self.path, e))?;
                std::io::Write::flush(&mut file).map_err(|e| Error::output(&self.path, e))?;
            }
        }
        self.file
            .persist(&self.path)
            .map(drop)
            .map_err(|e| Error::output(&self.path, e.error))
    }
}

#[cfg(feature = "ffmpeg")]
fn video_form(_path: &Path, container: &'static str) -> Result<Form, Error> {
    Ok(Form::Video(container, None))
}

#[cfg(not(feature = "ffmpeg"))]
fn video_form(path: &Path, _container: &'static str) -> Result<Form, Error> {
    Err(Error::output(
        path,
        "this build has no FFmpeg; write a .gif or .png instead, or build it with the feature `ffmpeg`",
    ))
}

/// A hidden file beside `path`: in the same folder it can take its name without being copied.
fn temporary(path: &Path) -> Result<NamedTempFile, Error> {
    if path.is_dir() {
        return Err(Error::output(path, "it is a folder; name a file"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part");
    // Temporary files are private; this one becomes an ordinary file, with the permissions of one.
    #[cfg(unix)]
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    #[cfg(unix)]
    builder.permissions(permissions);
    builder.tempfile_in(folder).map_err(|e| {
        let reason = match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!(
                    "the folder {} does not exist; create it first",
                    folder.display()
                )
            }
            std::io::ErrorKind::PermissionDenied => format!(
                "the folder {} is not writable; choose another or change its permissions",
                folder.display()
            ),
            _ => format!("{e} in the folder {}", folder.display()),
        };
        Error::output(path, reason)
    })
}

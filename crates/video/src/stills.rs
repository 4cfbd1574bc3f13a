//! Folders, patterns and single stills as videos of a fixed rate.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use image::{DynamicImage, ImageDecoder, ImageReader};

use crate::frame::{fit, resize_rgb};
use crate::reader::{OpenOptions, Source, Stamp, rate_fraction, stills_kind};
use crate::{Error, Frame, VideoInfo};

/// Names that end like this are taken for stills.
const EXTENSIONS: [&str; 12] = [
    "png", "jpg", "jpeg", "webp", "bmp", "tif", "tiff", "ppm", "pgm", "pbm", "pnm", "pam",
];
const DEFAULT_FPS: f64 = 25.0;

/// Stills in order, one frame each.
pub(crate) struct StillsSource {
    files: Vec<PathBuf>,
    info: VideoInfo,
    /// Displayed size of every still, before `max_size`.
    size: (u32, u32),
    next: usize,
}

impl StillsSource {
    /// Whether a file is one still: by its content, and by its name so that a stream of JPEGs remains a video.
    pub(crate) fn is_still(path: &Path, head: &[u8]) -> bool {
        let by_name = path.extension().is_none() || has_still_extension(path);
        by_name && image::guess_format(head).is_ok()
    }

    pub(crate) fn single(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        Self::new(path, vec![path.to_path_buf()], true, options)
    }

    pub(crate) fn folder(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| Error::reading(path, e))? {
            let file = entry.map_err(|e| Error::reading(path, e))?.path();
            let hidden = file
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with('.'));
            if !hidden && has_still_extension(&file) && file.is_file() {
                files.push(file);
            }
        }
        Self::new(path, files, false, options)
    }

    pub(crate) fn pattern(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        let text = path.to_string_lossy();
        let unsupported = |reason: String| Error::Unsupported {
            path: path.to_path_buf(),
            reason,
        };
        // As in a shell: hidden files and folders must be asked for.
        let options_of_shells = glob::MatchOptions {
            require_literal_leading_dot: true,
            ..Default::default()
        };
        let matches = glob::glob_with(&text, options_of_shells)
            .map_err(|e| unsupported(format!("not a file, and not a pattern either ({e})")))?;
        let mut files = Vec::new();
        for file in matches {
            let file = file.map_err(|e| Error::reading(path, e.into()))?;
            if file.is_file() {
                files.push(file);
            }
        }
        Self::new(path, files, false, options)
    }

    fn new(
        path: &Path,
        mut files: Vec<PathBuf>,
        named: bool,
        options: &OpenOptions,
    ) -> Result<Self, Error> {
        files.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
        let Some(first) = files.first() else {
            return Err(Error::NoFrames {
                path: path.to_path_buf(),
                hint: format!("stills are files that end in {}", EXTENSIONS.join(", ")),
            });
        };
        let fps = options.stills_fps.unwrap_or(DEFAULT_FPS);
        let rate = rate_fraction(fps).ok_or_else(|| Error::Unsupported {
            path: path.to_path_buf(),
            reason: format!(
                "stills cannot be shown at {fps} frames per second; give a rate such as 25"
            ),
        })?;
        let header = Header::read(first)?;
        for file in &files[1..] {
            let found = Header::read(file)?.size;
            if found != header.size {
                return Err(Error::Stills {
                    path: file.clone(),
                    reason: format!(
                        "expected a still of {}x{} pixels like {}, found {}x{}; make all stills one size or leave this one out",
                        header.size.0,
                        header.size.1,
                        first.display(),
                        found.0,
                        found.1
                    ),
                });
            }
        }
        let (width, height) = fit(header.size, options.max_size);
        let (rotation, mirrored) = turn(header.orientation);
        let count = files.len() as u64;
        let info = VideoInfo {
            path: path.to_path_buf(),
            kind: stills_kind(files.len(), named),
            width,
            height,
            frame_rate: Some(rate),
            frames: Some(count),
            duration: Some(count as f64 * f64::from(rate.1) / f64::from(rate.0)),
            pixel_aspect: (1, 1),
            rotation,
            mirrored,
            codec: header.codec,
            pixel_format: header.pixel_format,
            color_matrix: "rgb".to_owned(),
            color_range: "full".to_owned(),
            time_base: (rate.1, rate.0),
        };
        Ok(Self {
            files,
            info,
            size: header.size,
            next: 0,
        })
    }
}

impl Source for StillsSource {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn advance(&mut self) -> Result<Option<Stamp>, Error> {
        if self.next == self.files.len() {
            return Ok(None);
        }
        let index = self.next as u64;
        self.next += 1;
        let (num, den) = self.info.time_base;
        Ok(Some(Stamp {
            index,
            time: index as f64 * f64::from(num) / f64::from(den),
        }))
    }

    fn render(&mut self, stamp: Stamp) -> Result<Frame, Error> {
        let file = &self.files[stamp.index as usize];
        let mut decoder = decoder(file)?;
        let orientation = decoder.orientation().map_err(|e| Error::decode(file, e))?;
        let mut picture =
            DynamicImage::from_decoder(decoder).map_err(|e| Error::decode(file, e))?;
        picture.apply_orientation(orientation);
        let picture = picture.into_rgb8();
        if picture.dimensions() != self.size {
            return Err(Error::decode(file, "its size changed while it was read"));
        }
        let to = (self.info.width, self.info.height);
        Ok(Frame {
            index: stamp.index,
            time: stamp.time,
            width: to.0,
            height: to.1,
            data: resize_rgb(picture.into_raw(), self.size, to),
        })
    }

    fn warnings(&self) -> &[String] {
        &[]
    }
}

/// What a still's header says.
struct Header {
    size: (u32, u32),
    orientation: image::metadata::Orientation,
    codec: String,
    pixel_format: String,
}

impl Header {
    fn read(file: &Path) -> Result<Self, Error> {
        let reader = ImageReader::open(file)
            .and_then(ImageReader::with_guessed_format)
            .map_err(|e| Error::reading(file, e))?;
        let codec = reader.format().map_or_else(
            || "image".to_owned(),
            |f| format!("{f:?}").to_ascii_lowercase(),
        );
        let mut decoder = reader.into_decoder().map_err(|e| Error::decode(file, e))?;
        let orientation = decoder.orientation().map_err(|e| Error::decode(file, e))?;
        let (w, h) = decoder.dimensions();
        use image::metadata::Orientation as O;
        let size = match orientation {
            O::Rotate90 | O::Rotate270 | O::Rotate90FlipH | O::Rotate270FlipH => (h, w),
            _ => (w, h),
        };
        Ok(Self {
            size,
            orientation,
            codec,
            pixel_format: format!("{:?}", decoder.color_type()).to_ascii_lowercase(),
        })
    }
}

fn decoder(file: &Path) -> Result<impl ImageDecoder + use<>, Error> {
    ImageReader::open(file)
        .and_then(ImageReader::with_guessed_format)
        .map_err(|e| Error::reading(file, e))?
        .into_decoder()
        .map_err(|e| Error::decode(file, e))
}

/// Degrees clockwise and whether mirrored before, for the orientation a camera noted.
fn turn(orientation: image::metadata::Orientation) -> (u16, bool) {
    use image::metadata::Orientation as O;
    match orientation {
        O::NoTransforms => (0, false),
        O::Rotate90 => (90, false),
        O::Rotate180 => (180, false),
        O::Rotate270 => (270, false),
        O::FlipHorizontal => (0, true),
        O::FlipVertical => (180, true),
        // These are turned first and mirrored then, which is the opposite turn behind a mirror.
        O::Rotate90FlipH => (270, true),
        O::Rotate270FlipH => (90, true),
    }
}

fn has_still_extension(path: &Path) -> bool {
    path.extension()
        .map(|e| e.to_string_lossy().to_ascii_lowercase())
        .is_some_and(|e| EXTENSIONS.contains(&e.as_str()))
}

/// Orders names the way people number files: runs of digits compare as numbers, so `img2` < `img10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a.as_bytes(), b.as_bytes());
    while let (Some(&p), Some(&q)) = (x.first(), y.first()) {
        let order = if p.is_ascii_digit() && q.is_ascii_digit() {
            let (m, n);
            (m, x) = number(x);
            (n, y) = number(y);
            m.len().cmp(&n.len()).then_with(|| m.cmp(n))
        } else {
            (x, y) = (&x[1..], &y[1..]);
            p.cmp(&q)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    // Equal but for leading zeros (`1`, `01`): any order will do so long as it is always the same.
    x.len().cmp(&y.len()).then_with(|| a.cmp(b))
}

/// Splits the digits in front off, leading zeros dropped: numbers of any length compare without overflow.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let mut names = vec![
            "img10",
            "img2",
            "img1",
            "img01",
            "a",
            "img2b",
            "img99999999999999999999999",
        ];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            [
                "a",
                "img01",
                "img1",
                "img2",
                "img2b",
                "img10",
                "img99999999999999999999999"
            ]
        );
    }
}

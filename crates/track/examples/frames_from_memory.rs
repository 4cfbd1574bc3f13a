//! Tracks through frames that the app decodes itself, in two ways: collected in memory, and delivered one
//! by one as they are needed. The app's decoder is played by FFmpeg's frames of a file, put into RGBA
//! buffers with padded rows as a graphics card would hand them over.
//!
//! ```text
//! cargo run --release -p track --example frames_from_memory [VIDEO]
//! ```

use track::raw::{PixelFormat, RawPicture, convert};
use track::{Clip, Frame, MemoryClip, Queries, Tracker, Watch};

const VIDEO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../assets/pedestrians_47f_256x256.mp4"
);

/// A picture as an app may have it: RGBA, rows at a distance of `stride` bytes.
struct Surface {
    width: u32,
    height: u32,
    stride: usize,
    bytes: Vec<u8>,
}

impl Surface {
    fn from_frame(frame: &Frame) -> Self {
        let stride = (frame.width as usize * 4).next_multiple_of(256);
        let mut bytes = vec![0; stride * frame.height as usize];
        let source = frame.data.chunks_exact(frame.width as usize * 3);
        for (row, rgb) in bytes.chunks_exact_mut(stride).zip(source) {
            for (to, from) in row.chunks_exact_mut(4).zip(rgb.chunks_exact(3)) {
                to[..3].copy_from_slice(from);
                to[3] = 255;
            }
        }
        Self {
            width: frame.width,
            height: frame.height,
            stride,
            bytes,
        }
    }

    /// Hands the surface to `use_it`, described for the library; nothing is copied.
    fn describe<R>(&self, use_it: impl FnOnce(&RawPicture<'_>) -> R) -> R {
        use_it(&RawPicture {
            width: self.width,
            height: self.height,
            format: PixelFormat::Rgba8,
            planes: &[(&self.bytes, self.stride)],
            matrix: Default::default(),
            range: Default::default(),
        })
    }
}

fn main() -> Result<(), track::Error> {
    let video = std::env::args().nth(1).unwrap_or_else(|| VIDEO.to_owned());
    let file = Clip::options().end("16".parse()?).open(&video)?;
    let (size, fps) = ((file.width(), file.height()), 10.0);
    let tracker = Tracker::builder().build()?;
    let queries = Queries::grid(4);

    // Collected: right for a handful of frames.
    let mut memory = MemoryClip::new("surfaces in memory", fps);
    for frame in file.frames()? {
        Surface::from_frame(&frame?).describe(|picture| memory.push(picture))?;
    }
    let collected = tracker.track(&memory.into_clip()?, &queries, &Watch::new())?;

    // Delivered: frames are asked for as the model takes them, and none are kept.
    let delivered = Clip::from_source("surfaces on demand", size, fps, move || {
        let frames = file.frames().map_err(|e| e.to_string());
        let (frames, failed) = match frames {
            Ok(frames) => (Some(frames), None),
            Err(reason) => (None, Some(Err(reason))),
        };
        let surfaces = frames
            .into_iter()
            .flatten()
            .enumerate()
            .map(move |(n, frame)| {
                let surface = Surface::from_frame(&frame.map_err(|e| e.to_string())?);
                surface
                    .describe(|picture| convert(picture, n as u64, n as f64 / fps))
                    .map_err(|e| e.to_string())
            });
        failed.into_iter().chain(surfaces)
    })?;
    let on_demand = tracker.track(&delivered, &queries, &Watch::new())?;

    println!(
        "{} points on {} frames, {:.0} % visible; both ways agree: {}",
        collected.points(),
        collected.frames(),
        100.0 * collected.visible_share(),
        collected.positions == on_demand.positions
    );
    Ok(())
}

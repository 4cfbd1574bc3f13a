//! Encoding: RGB8 frames into an H.264 file that keeps their times.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ff::codec::{self, encoder};
use ff::format::Pixel;
use ff::frame::Video as Picture;
use ff::util::color;
use ff::{Dictionary, Rational};
use ffmpeg_next as ff;

use super::ffi::{self, Scaler};
use crate::Error;

/// Encoders that may be there, best first. All take yuv420p.
const ENCODERS: [&str; 3] = ["libx264", "libopenh264", "mpeg4"];

/// What a file needs to know before its first frame.
pub(crate) struct VideoSpec {
    /// FFmpeg's name of the container: `mp4`, `mov`, `matroska`.
    pub(crate) container: &'static str,
    /// Size of the frames; odd sizes are brought to even ones by repeating the last column or row.
    pub(crate) size: (u32, u32),
    /// Unit of the times, seconds.
    pub(crate) time_base: (u32, u32),
    /// Average frames per second.
    pub(crate) rate: (u32, u32),
    pub(crate) pixel_aspect: (u32, u32),
}

/// A video file being written.
pub(crate) struct VideoEncoder {
    /// The name to put into messages.
    shown: PathBuf,
    output: ff::format::context::Output,
    encoder: encoder::video::Encoder,
    scaler: Scaler,
    picture: Picture,
    size: (u32, u32),
    time_base: Rational,
    /// Time of every frame so far, in `time_base`. The encoder itself only counts frames, so that any encoder
    /// keeps any time: packets get their times from here.
    times: Vec<i64>,
    /// Packets that wait for the next frame's time, which ends them.
    waiting: VecDeque<ff::Packet>,
    default_duration: i64,
}

impl VideoEncoder {
    /// Starts a file at `path`; `shown` is the name it will have.
    pub(crate) fn create(path: &Path, shown: &Path, spec: &VideoSpec) -> Result<Self, Error> {
        super::init();
        let fail = |e: ff::Error| Error::encode(shown, e);
        let mut output = ff::format::output_as(&super::url(path)?, spec.container)
            .map_err(|e| Error::output(shown, e))?;
        let global = output
            .format()
            .flags()
            .contains(ff::format::Flags::GLOBAL_HEADER);
        let even = (
            spec.size.0.next_multiple_of(2),
            spec.size.1.next_multiple_of(2),
        );
        let encoder = ENCODERS
            .iter()
            .find_map(|name| open_encoder(name, even, spec, global))
            .ok_or_else(|| {
                Error::encode(
                    shown,
                    format!(
                        "this FFmpeg has none of the encoders {}, or none that takes {}x{} pixels; write a .gif or .png instead",
                        ENCODERS.join(", "),
                        even.0,
                        even.1
                    ),
                )
            })?;
        let time_base = Rational::new(spec.time_base.0 as i32, spec.time_base.1 as i32);
        {
            let mut stream = output.add_stream(encoder.codec()).map_err(fail)?;
            stream.set_parameters(&encoder);
            stream.set_time_base(time_base);
            ffi::set_pixel_aspect(&mut stream, spec.pixel_aspect);
        }
        let mut options = Dictionary::new();
        if spec.container != "matroska" {
            options.set("movflags", "+faststart");
        }
        output.write_header_with(options).map_err(fail)?;
        let scaler = Scaler::from_rgb(even, Pixel::YUV420P)
            .ok_or_else(|| Error::encode(shown, "RGB cannot be converted to yuv420p"))?;
        let step = f64::from(spec.rate.1) / f64::from(spec.rate.0.max(1)) / f64::from(time_base);
        Ok(Self {
            shown: shown.to_path_buf(),
            output,
            encoder,
            scaler,
            picture: Picture::new(Pixel::YUV420P, even.0, even.1),
            size: spec.size,
            time_base,
            times: Vec::new(),
            waiting: VecDeque::new(),
            default_duration: (step.round() as i64).max(1),
        })
    }

    /// Adds a frame, `[height, width, 3]` RGB8 of the size announced, at `ticks` of the time base; ticks increase.
    pub(crate) fn push(&mut self, rgb: &[u8], ticks: i64) -> Result<(), Error> {
        let row = self.size.0 as usize * 3;
        let even = (
            self.size.0.next_multiple_of(2) as usize,
            self.size.1.next_multiple_of(2) as usize,
        );
        let done = self.scaler.fill(&mut self.picture, |out, stride| {
            let rows = rgb.chunks_exact(row);
            let last = rgb.len().saturating_sub(row);
            // The last row again where the height is odd.
            for (to, from) in out
                .chunks_mut(stride)
                .zip(rows.chain([&rgb[last..]]))
                .take(even.1)
            {
                to[..row].copy_from_slice(from);
                if even.0 * 3 > row {
                    to.copy_within(row - 3..row, row);
                }
            }
        });
        if !done {
            return Err(Error::encode(
                &self.shown,
                "a frame cannot be converted to yuv420p",
            ));
        }
        self.picture.set_pts(Some(self.times.len() as i64));
        self.picture.set_kind(ff::picture::Type::None);
        self.times.push(ticks);
        let sent = self.encoder.send_frame(&self.picture);
        sent.map_err(|e| self.failed(e))?;
        self.drain()
    }

    /// Writes what is left and closes the file.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let sent = self.encoder.send_eof();
        sent.map_err(|e| self.failed(e))?;
        self.drain()?;
        while let Some(packet) = self.waiting.pop_front() {
            self.write(packet)?;
        }
        let written = self.output.write_trailer();
        written.map_err(|e| self.failed(e))
    }

    fn failed(&self, e: ff::Error) -> Error {
        match e {
            ff::Error::Other { errno } if errno > 0 => {
                Error::output(&self.shown, std::io::Error::from_raw_os_error(errno))
            }
            e => Error::encode(&self.shown, e),
        }
    }

    fn drain(&mut self) -> Result<(), Error> {
        loop {
            let mut packet = ff::Packet::empty();
            match self.encoder.receive_packet(&mut packet) {
                Ok(()) => self.waiting.push_back(packet),
                Err(ff::Error::Eof) => break,
                Err(ff::Error::Other { errno }) if errno == ff::error::EAGAIN => break,
                Err(e) => return Err(self.failed(e)),
            }
        }
        // A packet can be written once the frame behind it has a time.
        while let Some(packet) = self.waiting.pop_front() {
            let behind = packet.pts().unwrap_or(0).max(0) as usize + 1;
            if behind >= self.times.len() {
                self.waiting.push_front(packet);
                break;
            }
            self.write(packet)?;
        }
        Ok(())
    }

    /// Gives a packet its frame's time and writes it.
    fn write(&mut self, mut packet: ff::Packet) -> Result<(), Error> {
        let at = packet.pts().unwrap_or(0).max(0) as usize;
        let Some(&start) = self.times.get(at) else {
            return Err(Error::encode(
                &self.shown,
                "the encoder returned a frame it was not given",
            ));
        };
        let before = at.checked_sub(1).and_then(|i| self.times.get(i));
        let duration = match (self.times.get(at + 1), before) {
            (Some(end), _) => end - start,
            (None, Some(before)) => start - before,
            (None, None) => self.default_duration,
        };
        packet.set_pts(Some(start));
        packet.set_dts(Some(start));
        packet.set_duration(duration);
        packet.set_stream(0);
        let target = self
            .output
            .stream(0)
            .map_or(self.time_base, |s| s.time_base());
        packet.rescale_ts(self.time_base, target);
        let written = packet.write_interleaved(&mut self.output);
        written.map_err(|e| self.failed(e))
    }
}

/// An opened encoder of that name, if FFmpeg has it and it takes the size.
fn open_encoder(
    name: &str,
    size: (u32, u32),
    spec: &VideoSpec,
    global: bool,
) -> Option<encoder::video::Encoder> {
    let found = encoder::find_by_name(name)?;
    let mut context = codec::Context::new_with_codec(found);
    ffi::use_threads(&mut context);
    let mut video = context.encoder().video().ok()?;
    // The encoder counts frames in this; MPEG-4 takes no number above 65535.
    let rate = match spec.rate {
        (n, d) if n > 0 && d > 0 && n <= 65_000 && d <= 65_000 => Rational::new(n as i32, d as i32),
        (n, d) => Rational::new(((n / d.max(1)).clamp(1, 1000)) as i32, 1),
    };
    video.set_width(size.0);
    video.set_height(size.1);
    video.set_format(Pixel::YUV420P);
    video.set_time_base(rate.invert());
    video.set_frame_rate(Some(rate));
    video.set_aspect_ratio(Rational::new(
        spec.pixel_aspect.0 as i32,
        spec.pixel_aspect.1 as i32,
    ));
    video.set_colorspace(color::Space::BT709);
    video.set_color_range(color::Range::MPEG);
    video.set_color_primaries(color::Primaries::BT709);
    video.set_color_transfer_characteristic(color::TransferCharacteristic::BT709);
    // Without reordering a packet's decoding time is its presentation time, whatever the frames' times are.
    video.set_max_b_frames(0);
    let mut flags = codec::Flags::empty();
    if global {
        flags |= codec::Flags::GLOBAL_HEADER;
    }
    let mut options = Dictionary::new();
    match name {
        "libx264" => {
            options.set("crf", "18");
            options.set("preset", "medium");
        }
        "mpeg4" => {
            flags |= codec::Flags::QSCALE;
            // Quantiser 2 of 31, in the unit of FFmpeg's qualities.
            video.set_quality(2 * 118);
        }
        _ => video.set_bit_rate((f64::from(size.0 * size.1) * f64::from(rate) * 0.2) as usize),
    }
    video.set_flags(flags);
    video.open_with(options).ok()
}

//! Decoding: frames in presentation order with their times, turned and converted for display.

use std::path::{Path, PathBuf};

use ff::codec::decoder;
use ff::format::context::Input;
use ff::frame::Video as Picture;
use ffmpeg_next as ff;

use super::ffi::{self, Layout, Scaler};
use super::stream::{colors, pick_stream, unopened};
use crate::frame::fit;
use crate::orient::Orientation;
use crate::reader::{OpenOptions, Source, Stamp};
use crate::{Error, Frame, SourceKind, VideoInfo};

/// Damaged files can fail to be read over and over without getting anywhere.
const MOST_FAILURES: u64 = 1_000_000;

/// An open video file.
pub(crate) struct VideoSource {
    path: PathBuf,
    info: VideoInfo,
    input: Input,
    decoder: decoder::Video,
    stream: usize,
    orientation: Orientation,
    /// Size of the converted picture before it is turned.
    target: (u32, u32),
    scaler: Option<(Layout, Scaler)>,
    picture: Picture,
    /// The first picture was decoded when the file was opened and has not been delivered.
    first: bool,
    draining: bool,
    ended: bool,
    index: u64,
    last_time: Option<f64>,
    counts: Counts,
    expected: Expected,
    warnings: Vec<String>,
}

/// What happened so far.
#[derive(Default)]
struct Counts {
    packets: u64,
    /// Reads that failed without ending the file.
    bad_reads: u64,
    /// A read error that ended the file.
    fatal: Option<String>,
    corrupt_packets: u64,
    undecoded: u64,
    last_error: String,
    damaged_frames: u64,
    /// End of the last packet of any stream, seconds.
    end: f64,
    size_changes: u64,
}

/// What the container promises, to tell a file that was cut.
struct Expected {
    packets: Option<u64>,
    end: Option<f64>,
}

impl VideoSource {
    pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Self, Error> {
        super::init();
        let input = ff::format::input(&super::url(path)?).map_err(|e| unopened(path, e))?;
        let stream = pick_stream(path, &input)?;
        let index = stream.index();
        let time_base = stream.time_base();
        let time_base = (time_base.numerator().max(1), time_base.denominator().max(1));
        let seconds = |ticks: i64| ticks as f64 * (f64::from(time_base.0) / f64::from(time_base.1));

        let mut context = ff::codec::Context::from_parameters(stream.parameters())
            .map_err(|e| Error::decode(path, e))?;
        ffi::use_threads(&mut context);
        let codec = context.id().name().to_owned();
        let mut decoder = context.decoder();
        decoder.set_packet_time_base(stream.time_base());
        let decoder = decoder.video().map_err(|e| match e {
            ff::Error::DecoderNotFound => Error::Unsupported {
                path: path.to_path_buf(),
                reason: format!(
                    "its codec '{codec}' has no decoder in this FFmpeg; convert it to H.264, or install a fuller FFmpeg"
                ),
            },
            e => Error::decode(path, e),
        })?;

        let matrix = ffi::display_matrix(&stream);
        let (orientation, exact) = matrix
            .as_ref()
            .map_or((Orientation::default(), true), Orientation::from_matrix);
        let indexed = ffi::indexed(&stream)
            .filter(|_| input.format().name().contains("mov") && stream.frames() > 0);
        let frames = match indexed {
            Some(indexed) => Some(indexed.frames),
            None => u64::try_from(stream.frames()).ok().filter(|n| *n > 0),
        };
        let whole = (input.duration() > 0)
            .then(|| input.duration() as f64 / f64::from(ff::ffi::AV_TIME_BASE));
        let duration = if stream.duration() > 0 {
            Some(seconds(stream.duration()))
        } else {
            whole
        };
        let start = match stream.start_time() {
            ff::ffi::AV_NOPTS_VALUE => 0.0,
            ticks => seconds(ticks),
        };
        let frame_rate = [stream.avg_frame_rate(), stream.rate()]
            .into_iter()
            .find(|r| r.numerator() > 0 && r.denominator() > 0)
            .map(|r| (r.numerator() as u32, r.denominator() as u32));
        let aspect = ffi::pixel_aspect(&stream).unwrap_or((1, 1));
        let expected = Expected {
            packets: indexed.map(|i| i.packets),
            end: whole
                .filter(|_| ffi::duration_is_stated(&input))
                .map(|d| d + start.min(0.0)),
        };

        let (rotation, mirrored) = orientation.rotation();
        let info = VideoInfo {
            path: path.to_path_buf(),
            kind: SourceKind::Video,
            width: 0,
            height: 0,
            frame_rate,
            frames,
            duration,
            pixel_aspect: orientation.apply_size(aspect),
            rotation,
            mirrored,
            codec,
            pixel_format: String::new(),
            color_matrix: String::new(),
            color_range: String::new(),
            time_base: (time_base.0 as u32, time_base.1 as u32),
        };
        let mut source = Self {
            path: path.to_path_buf(),
            info,
            decoder,
            stream: index,
            orientation,
            target: (0, 0),
            scaler: None,
            picture: Picture::empty(),
            first: true,
            draining: false,
            ended: false,
            index: 0,
            last_time: None,
            counts: Counts::default(),
            expected,
            warnings: Vec::new(),
            input,
        };
        if !exact {
            source.warn(
                "its display matrix is not a multiple of 90 degrees; the nearest one is applied"
                    .to_owned(),
            );
        }
        source.start(options)?;
        Ok(source)
    }

    /// Decodes the first picture: what the container says of size and colours is not always true.
    fn start(&mut self, options: &OpenOptions) -> Result<(), Error> {
        let layout = loop {
            if !self.decode() {
                return Err(self.nothing_decoded());
            }
            if let Some(layout) = Layout::of(&self.picture) {
                break layout;
            }
        };
        let stored = (layout.width as u32, layout.height as u32);
        let displayed = fit(self.orientation.apply_size(stored), options.max_size);
        self.target = self.orientation.apply_size(displayed);
        (self.info.width, self.info.height) = displayed;
        self.info.pixel_format = layout.format_name();
        let (colors, matrix, doubt) = colors(&layout);
        self.info.color_matrix = matrix.to_owned();
        self.info.color_range = if colors.full { "full" } else { "limited" }.to_owned();
        if let Some(doubt) = doubt {
            self.warn(doubt.to_owned());
        }
        Ok(())
    }

    fn nothing_decoded(&self) -> Error {
        let c = &self.counts;
        if c.undecoded > 0 {
            return Error::decode(
                &self.path,
                format!("no frame of it can be decoded: {}", c.last_error),
            );
        }
        Error::NoFrames {
            path: self.path.clone(),
            hint: if c.bad_reads > 0 || c.fatal.is_some() || self.expected.packets.is_some() {
                "the file is cut short, copy or export it again".to_owned()
            } else {
                "its video stream is empty".to_owned()
            },
        }
    }

    /// Decodes the next picture into `self.picture`; false behind the last.
    fn decode(&mut self) -> bool {
        let mut failures = 0;
        while !self.ended && failures < MOST_FAILURES {
            match self.decoder.receive_frame(&mut self.picture) {
                Ok(()) => {
                    if self.picture.is_corrupt() || self.picture.has_decode_errors() {
                        self.counts.damaged_frames += 1;
                    }
                    return true;
                }
                Err(ff::Error::Other { errno }) if errno == ff::error::EAGAIN && !self.draining => {
                    self.feed();
                }
                Err(ff::Error::Eof) => break,
                Err(e) => {
                    failures += 1;
                    self.counts.undecoded += 1;
                    self.counts.last_error = e.to_string();
                    // A decoder that cannot be drained has nothing more to give.
                    if self.draining && failures > 1000 {
                        break;
                    }
                }
            }
        }
        self.ended = true;
        false
    }

    /// Gives the decoder its next packet, or tells it that there is none.
    fn feed(&mut self) {
        loop {
            let mut packet = ff::Packet::empty();
            match packet.read(&mut self.input) {
                Ok(()) => {
                    self.note_end(&packet);
                    if packet.stream() != self.stream {
                        continue;
                    }
                    self.counts.packets += 1;
                    self.counts.corrupt_packets += u64::from(packet.is_corrupt());
                    if let Err(e) = self.decoder.send_packet(&packet) {
                        self.counts.undecoded += 1;
                        self.counts.last_error = e.to_string();
                    }
                    return;
                }
                Err(ff::Error::Eof) => break,
                // One bad packet: the demuxer finds its way to the next.
                Err(ff::Error::InvalidData) if self.counts.bad_reads < MOST_FAILURES => {
                    self.counts.bad_reads += 1;
                }
                Err(ff::Error::Other { errno })
                    if errno == ff::error::EAGAIN && self.counts.bad_reads < MOST_FAILURES =>
                {
                    self.counts.bad_reads += 1;
                }
                Err(e) => {
                    self.counts.fatal = Some(e.to_string());
                    break;
                }
            }
        }
        self.draining = true;
        // It fails only if the decoder was told before.
        let _ = self.decoder.send_eof();
    }

    /// Remembers how far the file's packets reach.
    fn note_end(&mut self, packet: &ff::Packet) {
        let Some(stream) = self.input.stream(packet.stream()) else {
            return;
        };
        if let Some(at) = packet.pts().or(packet.dts()) {
            let unit = f64::from(stream.time_base());
            let end = at.saturating_add(packet.duration().max(0)) as f64 * unit;
            self.counts.end = self.counts.end.max(end);
        }
    }

    /// The picture's presentation time in seconds.
    fn time(&mut self) -> f64 {
        let (num, den) = self.info.time_base;
        // Multiplied first: whole ticks then give the nearest number to the true time.
        let seconds = |ticks: i64| ticks as f64 * f64::from(num) / f64::from(den);
        let step = match self.info.frame_rate {
            Some((n, d)) => f64::from(d) / f64::from(n),
            None => 0.04,
        };
        let next = self.last_time.map_or(0.0, |t| t + step);
        let time = match self.picture.pts() {
            Some(pts) => seconds(pts),
            // Guessed from decoding times, which repeat or lag where frames are reordered.
            None => match self.picture.timestamp().or(dts(&self.picture)) {
                Some(ticks) if self.last_time.is_none_or(|t| seconds(ticks) > t) => seconds(ticks),
                _ => next,
            },
        };
        self.last_time = Some(time);
        time
    }

    fn warn(&mut self, text: String) {
        let text = format!("{}: {text}", self.path.display());
        tracing::warn!("{text}");
        self.warnings.push(text);
    }

    /// Says what is missing or damaged, once the end is reached.
    fn summarize(&mut self) {
        let mut texts = Vec::new();
        let c = &self.counts;
        if let Some(e) = &c.fatal {
            texts.push(format!(
                "reading ended early after {} frames ({e}); what follows is lost",
                self.index
            ));
        }
        let missing = self
            .expected
            .packets
            .map_or(0, |n| n.saturating_sub(c.packets));
        let step = self
            .info
            .frame_rate
            .map_or(0.1, |(n, d)| f64::from(d) / f64::from(n));
        if missing > 0 {
            texts.push(format!(
                "cut short: {missing} of its {} frames are missing from the file",
                self.expected.packets.unwrap_or_default()
            ));
        } else if let Some(end) = self.expected.end
            && c.end + 1.5 * step + 0.01 < end
        {
            texts.push(format!(
                "cut short: it should last until {end:.2} s, but its data end at {:.2} s",
                c.end
            ));
        } else if c.bad_reads > 0 {
            texts.push(format!(
                "{} stretches of the file cannot be read",
                c.bad_reads
            ));
        }
        if c.undecoded > 0 {
            texts.push(format!(
                "{} packets cannot be decoded ({}); their frames are lost or damaged",
                c.undecoded, c.last_error
            ));
        }
        if c.corrupt_packets > 0 {
            texts.push(format!("{} packets are incomplete", c.corrupt_packets));
        }
        if c.damaged_frames > 0 {
            texts.push(format!(
                "{} frames are damaged and were patched up",
                c.damaged_frames
            ));
        }
        if c.size_changes > 0 {
            texts.push(format!(
                "its picture size changes {} times; every frame is scaled to the first one's size",
                c.size_changes
            ));
        }
        texts.into_iter().for_each(|text| self.warn(text));
    }
}

impl Source for VideoSource {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn advance(&mut self) -> Result<Option<Stamp>, Error> {
        if self.first {
            self.first = false;
        } else if self.ended {
            return Ok(None);
        } else if !self.decode() {
            self.summarize();
            return Ok(None);
        }
        let stamp = Stamp {
            index: self.index,
            time: self.time(),
        };
        self.index += 1;
        Ok(Some(stamp))
    }

    fn render(&mut self, stamp: Stamp) -> Result<Frame, Error> {
        let fail = |reason: String| Error::decode(&self.path, reason);
        let layout = Layout::of(&self.picture)
            .ok_or_else(|| fail(format!("frame {} has no picture", stamp.index)))?;
        let mut scaler = match self.scaler.take() {
            Some((known, scaler)) if known == layout => scaler,
            other => {
                if let Some((known, _)) = other
                    && (known.width, known.height) != (layout.width, layout.height)
                {
                    self.counts.size_changes += 1;
                }
                Scaler::to_rgb(layout, colors(&layout).0, self.target).ok_or_else(|| {
                    Error::Unsupported {
                        path: self.path.clone(),
                        reason: format!(
                            "its pixel format '{}' cannot be converted to RGB; convert the video to yuv420p",
                            layout.format_name()
                        ),
                    }
                })?
            }
        };
        let data = match scaler.run(&self.picture) {
            Some((rows, stride)) => self.orientation.apply(rows, stride, self.target),
            None => {
                return Err(fail(format!(
                    "frame {} cannot be converted to RGB",
                    stamp.index
                )));
            }
        };
        self.scaler = Some((layout, scaler));
        Ok(Frame {
            index: stamp.index,
            time: stamp.time,
            width: self.info.width,
            height: self.info.height,
            data,
        })
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The packet's decoding time that a picture carries, in ticks.
fn dts(picture: &Picture) -> Option<i64> {
    Some(picture.packet().dts).filter(|t| *t != ff::ffi::AV_NOPTS_VALUE)
}

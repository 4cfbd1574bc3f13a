//! One run: frames decoded beside the encoder, then the points followed.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use candle_core::{Device, Tensor};
use track_model::{Context, Query, Session, Size};

use crate::tracks::visibility_threshold;
use crate::watch::Relay;
use crate::{Cancel, Clip, Error, Provenance, Queries, QueryPoint, Result, Tracker, Tracks, Watch};

/// Bytes of RGB in one chunk, at most (but at least a frame): enough for the encoder to work on, little
/// beside what it needs itself.
const CHUNK_BYTES: usize = 64 << 20;
/// Frames in one chunk, at most.
const CHUNK_FRAMES: usize = 16;
/// Chunks that may wait between the decoder and the encoder.
const CHUNKS_WAITING: usize = 2;

/// Consecutive frames: RGB8 `[count, height, width, 3]`.
struct Chunk {
    count: usize,
    data: Vec<u8>,
}

/// What the decoder knows when it has delivered the last frame.
struct Decoded {
    /// Source index and time of every frame.
    stamps: Vec<(u64, f64)>,
    warnings: Vec<String>,
}

pub(crate) fn run(
    tracker: &Tracker,
    clip: &Clip,
    queries: &Queries,
    watch: &Watch<'_>,
) -> Result<Tracks> {
    watch.cancel().check()?;
    let points = queries.resolve(clip.width(), clip.height())?;
    let expected = clip.expected_frames();
    refuse_late_points(clip, &points, expected, watch.cancel())?;
    let job = || compute(tracker, clip, points, expected, watch);
    let result = match &tracker.pool {
        Some(pool) => pool.install(job),
        None => job(),
    };
    match result {
        Err(Error::Model(track_model::Error::Cancelled)) => Err(Error::Cancelled),
        other => other,
    }
}

/// Refuses points beyond the clip before the encoder spends minutes on it. What a file says of its length
/// may be wrong, so frames are counted before a point is refused for it.
fn refuse_late_points(
    clip: &Clip,
    points: &[QueryPoint],
    expected: Option<usize>,
    cancel: &Cancel,
) -> Result<()> {
    let Some(expected) = expected else {
        return Ok(());
    };
    if Queries::check_frames(points, expected).is_ok() {
        return Ok(());
    }
    let mut frames = 0;
    for frame in clip.frames()? {
        cancel.check()?;
        frame?;
        frames += 1;
    }
    Queries::check_frames(points, frames)
}

fn compute(
    tracker: &Tracker,
    clip: &Clip,
    points: Vec<QueryPoint>,
    expected: Option<usize>,
    watch: &Watch<'_>,
) -> Result<Tracks> {
    let size = Size {
        width: clip.width() as usize,
        height: clip.height() as usize,
    };
    let options = tracker.session_options();
    if let Some(frames) = expected {
        options.check_memory(tracker.model.memory(size, frames, points.len(), &options))?;
    }
    let relay = Relay {
        watch,
        frames: expected,
    };
    let context = Context {
        profiler: watch.profiler().clone(),
        observer: &relay,
    };
    let mut session = tracker.model.session(size, &options, context)?;
    let decoded = encode(session.as_mut(), clip, size, watch.cancel())?;
    let frames = decoded.stamps.len();
    if frames == 0 {
        return Err(Error::NoFrames { clip: clip.name() });
    }
    Queries::check_frames(&points, frames)?;
    let queries: Vec<Query> = points
        .iter()
        .map(|p| Query {
            t: p.t,
            x: p.x,
            y: p.y,
        })
        .collect();
    let raw = session.track(&queries)?;
    Tracks::assemble(
        &raw,
        points,
        decoded.stamps,
        provenance(tracker, clip),
        decoded.warnings,
    )
}

/// Pushes every frame of the clip into the session, decoding in a thread of its own.
fn encode(session: &mut dyn Session, clip: &Clip, size: Size, cancel: &Cancel) -> Result<Decoded> {
    let (sender, receiver) = sync_channel(CHUNKS_WAITING);
    std::thread::scope(|scope| {
        let decoder = scope.spawn(move || decode(clip, size, cancel, &sender));
        let pushed = push(session, receiver, size);
        // The receiver is gone by now, so a decoder that is ahead stops by itself.
        let decoded = decoder
            .join()
            .unwrap_or_else(|_| Err(Error::Internal("the decoder's thread broke down".into())));
        pushed?;
        decoded
    })
}

fn push(session: &mut dyn Session, chunks: Receiver<Chunk>, size: Size) -> Result<()> {
    for chunk in chunks {
        let shape = (chunk.count, size.height, size.width, 3);
        let frames =
            Tensor::from_vec(chunk.data, shape, &Device::Cpu).map_err(track_model::Error::from)?;
        session.push(&frames)?;
    }
    Ok(())
}

fn decode(clip: &Clip, size: Size, cancel: &Cancel, out: &SyncSender<Chunk>) -> Result<Decoded> {
    let frame_bytes = size.width * size.height * 3;
    let most = (CHUNK_BYTES / frame_bytes.max(1)).clamp(1, CHUNK_FRAMES);
    let empty = || Chunk {
        count: 0,
        data: Vec::with_capacity(most * frame_bytes),
    };
    let mut frames = clip.frames()?;
    let mut stamps = Vec::new();
    let mut chunk = empty();
    for frame in frames.by_ref() {
        cancel.check()?;
        let frame = frame?;
        stamps.push((frame.index, frame.time));
        chunk.data.extend_from_slice(&frame.data);
        chunk.count += 1;
        if chunk.count == most && out.send(std::mem::replace(&mut chunk, empty())).is_err() {
            // The encoder has stopped and says why.
            break;
        }
    }
    if chunk.count > 0 {
        // As above: an encoder that has stopped has its own error.
        let _ = out.send(chunk);
    }
    Ok(Decoded {
        stamps,
        warnings: frames.warnings().to_vec(),
    })
}

/// Name and version of this library, as outputs record them.
pub(crate) fn program() -> String {
    format!("track {}", env!("CARGO_PKG_VERSION"))
}

/// A resolution as outputs record it.
pub(crate) fn resolution(resolution: track_model::Resolution) -> String {
    match resolution {
        track_model::Resolution::Model => "model".to_owned(),
        track_model::Resolution::Clip => "clip".to_owned(),
        track_model::Resolution::Custom(s) => format!("{}x{}", s.width, s.height),
    }
}

fn provenance(tracker: &Tracker, clip: &Clip) -> Provenance {
    Provenance {
        program: program(),
        model: tracker.model.kind().name().to_owned(),
        weights: tracker.weights.clone(),
        precision: tracker.precision.name().to_owned(),
        device: tracker.device.clone(),
        resolution: resolution(tracker.resolution),
        visibility_threshold: visibility_threshold(tracker.model.kind()),
        clip: clip.info(),
        ffmpeg: track_video::ffmpeg_version(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{ErrorKind, Frame, MemoryBudget, Progress, Stage, fake};

    const SIZE: (u32, u32) = (32, 24);

    fn frame(n: u64) -> Frame {
        Frame {
            index: n,
            time: n as f64 / 10.0,
            width: SIZE.0,
            height: SIZE.1,
            data: vec![n as u8; (SIZE.0 * SIZE.1 * 3) as usize],
        }
    }

    /// A clip that says nothing of its length.
    fn clip(frames: u64) -> Clip {
        Clip::from_source("clip", SIZE, 10.0, move || {
            (0..frames).map(|n| Ok(frame(n)))
        })
        .unwrap()
    }

    fn tracker() -> Tracker {
        fake::tracker(&Tracker::builder())
    }

    #[test]
    fn every_frame_reaches_the_model_whatever_the_chunks() {
        for frames in [1, 2, 15, 16, 17, 50] {
            let queries = Queries::points([(0.0, 3.0, 4.0)]);
            let tracks = tracker()
                .track(&clip(frames), &queries, &Watch::new())
                .unwrap();
            assert_eq!(tracks.frames() as u64, frames);
            let last = frames as usize - 1;
            assert_eq!(tracks.position(last, 0), Some((3.0 + last as f32, 4.0)));
            assert_eq!(tracks.frame_indices[last], frames - 1);
        }
    }

    #[test]
    fn progress_counts_frames_then_steps() {
        let seen = Mutex::new(Vec::new());
        let watch = Watch::new().on_progress(|p| seen.lock().unwrap().push(p));
        let frames = (0..20).map(frame).collect();
        let clip = Clip::from_frames("clip".into(), SIZE, 10.0, frames).unwrap();
        tracker().track(&clip, &Queries::grid(2), &watch).unwrap();
        drop(watch);
        let progress = |stage, done, total| Progress {
            stage,
            done,
            total: Some(total),
        };
        assert_eq!(
            seen.into_inner().unwrap(),
            [
                progress(Stage::Encode, 16, 20),
                progress(Stage::Encode, 20, 20),
                progress(Stage::Track, 1, 1)
            ]
        );
    }

    #[test]
    fn cancelling_ends_the_decoder_too() {
        let cancel = Cancel::new();
        let delivered = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&delivered);
        let endless = Clip::from_source("endless", SIZE, 10.0, move || {
            let count = std::sync::Arc::clone(&count);
            (0..).map(move |n| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(frame(n))
            })
        })
        .unwrap();
        let watch = Watch::new()
            .on_progress(|p| {
                if p.done >= 32 {
                    cancel.cancel();
                }
            })
            .cancelled_by(&cancel);
        let error = tracker()
            .track(&endless, &Queries::grid(2), &watch)
            .unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert!(delivered.load(Ordering::Relaxed) < 500);
    }

    #[test]
    fn late_points_are_refused_with_and_without_a_known_length() {
        let queries = Queries::points([(5.0, 1.0, 1.0)]);
        let known =
            Clip::from_frames("clip".into(), SIZE, 10.0, (0..5).map(frame).collect()).unwrap();
        for clip in [clip(5), known] {
            let error = tracker().track(&clip, &queries, &Watch::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("numbered 0 to 4"), "{error}");
        }
    }

    #[test]
    fn no_frames_and_failing_frames_are_errors() {
        let error = tracker()
            .track(&clip(0), &Queries::grid(1), &Watch::new())
            .unwrap_err();
        assert!(matches!(error, Error::NoFrames { .. }), "{error}");
        let failing = Clip::from_source("clip", SIZE, 10.0, || {
            (0..40).map(|n| match n {
                39 => Err("the line is dead".to_owned()),
                n => Ok(frame(n)),
            })
        })
        .unwrap();
        let error = tracker()
            .track(&failing, &Queries::grid(1), &Watch::new())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.to_string().contains("frame 39"), "{error}");
    }

    #[test]
    fn what_cannot_fit_is_refused_before_frames_are_read() {
        let builder = Tracker::builder().memory_budget(MemoryBudget::Bytes(4999));
        let frames = (0..5).map(frame).collect();
        let clip = Clip::from_frames("clip".into(), SIZE, 10.0, frames).unwrap();
        let error = fake::tracker(&builder)
            .track(&clip, &Queries::grid(1), &Watch::new())
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
    }

    #[test]
    fn one_tracker_serves_several_threads() {
        let tracker = fake::tracker(&Tracker::builder().threads(Some(1)));
        std::thread::scope(|scope| {
            for n in 1..5_u64 {
                let tracker = &tracker;
                scope.spawn(move || {
                    let tracks = tracker
                        .track(&clip(n), &Queries::grid(2), &Watch::new())
                        .unwrap();
                    assert_eq!(tracks.frames() as u64, n);
                });
            }
        });
    }
}

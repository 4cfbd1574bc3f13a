//! What must hold whatever the numbers: nothing that decides how a run is split may change its result.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use candle_core::{Device, Tensor};
use track_model::{
    Context, Error, ModelKind, Observer, PointTracker, Precision, Query, RawTracks, Resolution,
    SessionOptions, Size, WeightSource, load,
};
use track_tests::formula::clip;
use track_tests::reference::{self, largest_difference};

/// The default weights.
fn model() -> Box<dyn PointTracker> {
    let file = reference::path("../models/locotrack_small.safetensors");
    load(
        &WeightSource::File(file),
        Some(ModelKind::LocoTrackSmall),
        &track_model::Device::Cpu,
        Precision::F32,
    )
    .unwrap()
}

fn size(frames: &Tensor) -> Size {
    let (_, height, width, _) = frames.dims4().unwrap();
    Size { width, height }
}

/// Tracks, frames pushed `batch` at a time.
fn track(
    model: &dyn PointTracker,
    frames: &Tensor,
    batch: usize,
    options: &SessionOptions,
    queries: &[Query],
) -> RawTracks {
    let mut session = model
        .session(size(frames), options, Context::default())
        .unwrap();
    let n = frames.dims()[0];
    for first in (0..n).step_by(batch) {
        session
            .push(&frames.narrow(0, first, batch.min(n - first)).unwrap())
            .unwrap();
    }
    session.track(queries).unwrap()
}

fn queries(n: usize, frames: usize, size: Size) -> Vec<Query> {
    (0..n)
        .map(|i| Query {
            t: (i % frames) as f32,
            x: (i as f32 * 0.618).fract() * size.width as f32,
            y: (i as f32 * 0.382).fract() * size.height as f32,
        })
        .collect()
}

fn values(tracks: &RawTracks) -> Vec<f32> {
    [&tracks.positions, &tracks.occlusion, &tracks.expected_dist]
        .iter()
        .flat_map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap())
        .collect()
}

#[test]
fn threads_and_batches_of_frames_change_no_bit() {
    let (model, frames) = (model(), clip(7, 96, 120).unwrap());
    let queries = queries(9, 7, size(&frames));
    let run = |threads: usize, batch: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            values(&track(
                &*model,
                &frames,
                batch,
                &SessionOptions::default(),
                &queries,
            ))
        })
    };
    let want = run(1, 7);
    for (threads, batch) in [(2, 7), (3, 1), (2, 3)] {
        assert!(
            run(threads, batch) == want,
            "{threads} threads, {batch} frames a push"
        );
    }
}

#[test]
fn a_track_depends_neither_on_other_queries_nor_on_chunks() {
    let (model, frames) = (model(), clip(6, 96, 120).unwrap());
    let queries = queries(11, 6, size(&frames));
    let whole = track(&*model, &frames, 6, &SessionOptions::default(), &queries);
    for chunk in [1, 4, 100] {
        let options = SessionOptions {
            query_chunk: Some(chunk),
            ..Default::default()
        };
        let got = track(&*model, &frames, 6, &options, &queries);
        // Products of another number of rows may be summed in another order: far below a hundredth of a pixel.
        assert!(
            largest_difference(&got.positions, &whole.positions) < 1e-3,
            "chunks of {chunk}"
        );
        assert!(
            largest_difference(&got.occlusion, &whole.occlusion) < 1e-3,
            "chunks of {chunk}"
        );
    }
    let alone = track(
        &*model,
        &frames,
        6,
        &SessionOptions::default(),
        &queries[4..5],
    );
    assert!(largest_difference(&alone.positions, &whole.positions.narrow(0, 4, 1).unwrap()) < 1e-3);
}

#[test]
fn tracking_twice_in_a_session_gives_the_same() {
    let (model, frames) = (model(), clip(5, 64, 64).unwrap());
    let queries = queries(3, 5, size(&frames));
    let options = SessionOptions::default();
    let mut session = model
        .session(size(&frames), &options, Context::default())
        .unwrap();
    session.push(&frames).unwrap();
    assert_eq!(
        values(&session.track(&queries).unwrap()),
        values(&session.track(&queries).unwrap())
    );
    assert_eq!(session.frames(), 5);
}

#[test]
fn a_moving_disc_is_followed_at_its_centre() {
    // Pixels (i, j) within 6 of (90, 40 + 4n): the disc's raster centre is half a pixel further.
    let n = 16;
    let mut pixels = Vec::new();
    for t in 0..n {
        for y in 0..256i32 {
            for x in 0..256i32 {
                let inside = (x - 40 - 4 * t).pow(2) + (y - 90).pow(2) <= 36;
                let ground = 60 + (((x / 8) * 7 + (y / 8) * 13) % 40) as u8;
                pixels.extend(if inside {
                    [230, 60, 40]
                } else {
                    [ground, ground, ground + 10]
                });
            }
        }
    }
    let frames = Tensor::from_vec(pixels, (n as usize, 256, 256, 3), &Device::Cpu).unwrap();
    let query = Query {
        t: 0.0,
        x: 40.5,
        y: 90.5,
    };
    let got = track(&*model(), &frames, 16, &SessionOptions::default(), &[query]);
    let positions = got.positions.squeeze(0).unwrap().to_vec2::<f32>().unwrap();
    let errors: Vec<f32> = positions
        .iter()
        .enumerate()
        .map(|(t, p)| (p[0] - 40.5 - 4.0 * t as f32).hypot(p[1] - 90.5))
        .collect();
    let mean = errors.iter().sum::<f32>() / errors.len() as f32;
    println!("disc: mean {mean:.3} px, errors {errors:.2?}");
    assert!(mean < 0.35, "mean error {mean} px: {errors:?}");
    assert!(errors.iter().all(|e| *e < 1.0), "{errors:?}");
}

#[test]
fn every_picture_gives_numbers() {
    let model = model();
    let shape = (3, 40, 56, 3);
    let constant = |v: u8| Tensor::from_vec(vec![v; 3 * 40 * 56 * 3], shape, &Device::Cpu).unwrap();
    let mut state = 1u32;
    let noise: Vec<u8> = (0..3 * 40 * 56 * 3)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    let noise = Tensor::from_vec(noise, shape, &Device::Cpu).unwrap();
    for (name, frames) in [
        ("black", constant(0)),
        ("white", constant(255)),
        ("grey", constant(128)),
        ("noise", noise),
    ] {
        let got = track(
            &*model,
            &frames,
            3,
            &SessionOptions::default(),
            &queries(4, 3, size(&frames)),
        );
        assert!(values(&got).iter().all(|v| v.is_finite()), "{name}");
    }
}

#[test]
fn odd_clips_and_queries_work() {
    let model = model();
    let options = SessionOptions::default();
    let at = |t: f32, x: f32, y: f32| Query { t, x, y };
    // One frame; a query on the border; one pixel; a fraction of a frame.
    let one = track(
        &*model,
        &clip(1, 50, 70).unwrap(),
        1,
        &options,
        &[at(0.0, 70.0, 50.0), at(0.0, 0.0, 0.0)],
    );
    assert_eq!(one.positions.dims(), [2, 1, 2]);
    let tiny = track(
        &*model,
        &clip(2, 1, 1).unwrap(),
        2,
        &options,
        &[at(1.0, 0.5, 0.5)],
    );
    assert!(values(&tiny).iter().all(|v| v.is_finite()));
    let between = track(
        &*model,
        &clip(3, 50, 70).unwrap(),
        3,
        &options,
        &[at(0.5, 30.0, 20.0)],
    );
    assert!(values(&between).iter().all(|v| v.is_finite()));
    let none = track(&*model, &clip(2, 50, 70).unwrap(), 2, &options, &[]);
    assert_eq!(none.positions.dims(), [0, 2, 2]);
    // A clip below 256 at its own resolution is tracked at 256×256, as with the model's.
    let frames = clip(3, 100, 140).unwrap();
    let own = SessionOptions {
        resolution: Resolution::Clip,
        ..Default::default()
    };
    let query = [at(0.0, 60.0, 40.0)];
    assert_eq!(
        values(&track(&*model, &frames, 3, &own, &query)),
        values(&track(&*model, &frames, 3, &options, &query))
    );
}

#[test]
fn what_cannot_be_tracked_is_refused() {
    let model = model();
    let frames = clip(2, 50, 70).unwrap();
    let options = SessionOptions::default();
    let mut session = model
        .session(size(&frames), &options, Context::default())
        .unwrap();
    assert!(matches!(session.track(&[]), Err(Error::NoFrames)));
    assert!(matches!(
        session.push(&clip(1, 50, 71).unwrap()),
        Err(Error::FrameSize { .. })
    ));
    session.push(&frames).unwrap();
    for (t, x) in [
        (2.0, 1.0),
        (-1.0, 1.0),
        (f32::NAN, 1.0),
        (0.0, f32::INFINITY),
    ] {
        assert!(matches!(
            session.track(&[Query { t, x, y: 1.0 }]),
            Err(Error::Query { index: 0, .. })
        ));
    }
    let nothing = Size {
        width: 0,
        height: 5,
    };
    assert!(matches!(
        model.session(nothing, &options, Context::default()).err(),
        Some(Error::EmptyPicture)
    ));
}

#[test]
fn a_run_beyond_its_memory_is_refused_with_the_figure() {
    let model = model();
    let frames = clip(4, 50, 70).unwrap();
    let options = SessionOptions {
        memory_budget: Some(1 << 20),
        ..Default::default()
    };
    let mut session = model
        .session(size(&frames), &options, Context::default())
        .unwrap();
    let error = session.push(&frames).unwrap_err();
    let Error::Memory { needed, budget } = error else {
        panic!("{error}")
    };
    assert!(needed > budget && error.to_string().contains("MiB"));
}

#[test]
fn a_cancelled_run_stops() {
    struct Stop;
    impl Observer for Stop {
        fn cancelled(&self) -> bool {
            true
        }
    }
    let model = model();
    let frames = clip(2, 50, 70).unwrap();
    let context = Context {
        observer: &Stop,
        ..Default::default()
    };
    let mut session = model
        .session(size(&frames), &SessionOptions::default(), context)
        .unwrap();
    assert!(matches!(session.push(&frames), Err(Error::Cancelled)));
}

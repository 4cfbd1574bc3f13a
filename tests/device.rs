//! The device code against the CPU: on a CUDA device where there is one (feature `cuda`), on the emulator otherwise
//! (feature `emulate`).
//!
//! `TRACK_FORCE_ARCH=75` runs the same with the code for a T4. Run with `--nocapture` to see the differences.

#![cfg(any(feature = "cuda", feature = "emulate"))]
#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use std::sync::Mutex;

use candle_core::Tensor;
use track_model::{
    Context, Device, ModelKind, Observer, PointTracker, Precision, Query, RawTracks,
    SessionOptions, Size, WeightSource, load,
};
use track_tests::formula::{Variant, clip, weights};

/// The device to test, or `None` with a word why there is none.
fn device() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        #[cfg(feature = "emulate")]
        Err(_) => Some(Device::emulated()),
        #[cfg(not(feature = "emulate"))]
        Err(reason) => {
            eprintln!("skipped, no device: {reason}");
            None
        }
    }
}

/// Whether the device is the emulator, which is given less to do.
fn emulated(device: &Device) -> bool {
    device.to_string().contains("emulator")
}

fn default_weights() -> WeightSource {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../models/locotrack_small.safetensors"
    );
    WeightSource::File(file.into())
}

fn formula_weights(kind: ModelKind) -> (tempfile::TempDir, WeightSource) {
    let tensors = weights(&kind.tensors(), Variant::Plain).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("formula.safetensors");
    candle_core::safetensors::save(&tensors, &file).unwrap();
    (folder, WeightSource::File(file))
}

fn track(
    model: &dyn PointTracker,
    frames: &Tensor,
    queries: &[Query],
    options: &SessionOptions,
    context: Context<'_>,
) -> track_model::Result<RawTracks> {
    let (_, height, width, _) = frames.dims4().unwrap();
    let mut session = model.session(Size { width, height }, options, context)?;
    session.push(frames)?;
    session.track(queries)
}

fn queries(n: usize, frames: usize, width: usize, height: usize) -> Vec<Query> {
    (0..n)
        .map(|i| Query {
            t: (i * 2 % frames) as f32 + if i % 5 == 4 && frames > 1 { -0.5 } else { 0.0 },
            x: (i * 61 % width) as f32 + 0.3,
            y: (i * 37 % height) as f32 + 0.8,
        })
        .map(|q| Query {
            t: q.t.max(0.0),
            ..q
        })
        .collect()
}

/// Median, 95th and 99th percentile and largest distance of positions; largest difference of logits; share of equal
/// visibilities.
#[derive(Debug, Clone, Copy)]
struct Moved {
    median: f32,
    p95: f32,
    p99: f32,
    most: f32,
    logit: f32,
    visibility: f32,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "median {:.1e} px, p95 {:.1e}, p99 {:.1e}, largest {:.1e}; logits within {:.1e}; {:.3} % visibilities equal",
            self.median,
            self.p95,
            self.p99,
            self.most,
            self.logit,
            100.0 * self.visibility
        )
    }
}

fn moved(a: &RawTracks, b: &RawTracks) -> Moved {
    let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (pa, pb) = (flat(&a.positions), flat(&b.positions));
    let mut distance: Vec<f32> = pa
        .chunks(2)
        .zip(pb.chunks(2))
        .map(|(a, b)| (a[0] - b[0]).hypot(a[1] - b[1]))
        .collect();
    distance.sort_by(f32::total_cmp);
    let visible = |r: &RawTracks| -> Vec<bool> {
        let sigmoid = |v: f32| 1.0 / (1.0 + (-v).exp());
        flat(&r.occlusion)
            .iter()
            .zip(flat(&r.expected_dist))
            .map(|(o, e)| (1.0 - sigmoid(*o)) * (1.0 - sigmoid(e)) > 0.5)
            .collect()
    };
    let equal = visible(a)
        .iter()
        .zip(visible(b))
        .filter(|(a, b)| **a == *b)
        .count();
    let logit = [
        (&a.occlusion, &b.occlusion),
        (&a.expected_dist, &b.expected_dist),
    ]
    .into_iter()
    .flat_map(|(a, b)| flat(a).into_iter().zip(flat(b)).collect::<Vec<_>>())
    .map(|(a, b)| (a - b).abs())
    .fold(0.0, f32::max);
    let last = distance.len() - 1;
    Moved {
        median: distance[last / 2],
        p95: distance[(last * 95).div_ceil(100)],
        p99: distance[(last * 99).div_ceil(100)],
        most: distance[last],
        logit,
        visibility: equal as f32 / distance.len() as f32,
    }
}

/// Every stage by name.
#[derive(Default)]
struct Stages(Mutex<Vec<(String, Tensor)>>);

impl Observer for Stages {
    fn wants_stages(&self) -> bool {
        true
    }

    fn stage(&self, name: &str, tensor: &Tensor) {
        self.0
            .lock()
            .unwrap()
            .push((name.to_owned(), tensor.clone()));
    }
}

#[test]
fn strict_f32_equals_the_cpu_at_every_stage() {
    let Some(device) = device() else { return };
    let (frames, n) = if emulated(&device) { (3, 6) } else { (20, 70) };
    let frames = clip(frames, 256, 256).unwrap();
    let queries = queries(n, frames.dim(0).unwrap(), 256, 256);
    for kind in [ModelKind::LocoTrackSmall, ModelKind::LocoTrackBase] {
        let (_folder, source) = formula_weights(kind);
        let stages = |device: &Device| {
            let model = load(&source, None, device, Precision::F32).unwrap();
            let stages = Stages::default();
            let context = Context {
                observer: &stages,
                ..Default::default()
            };
            track(
                model.as_ref(),
                &frames,
                &queries,
                &SessionOptions::default(),
                context,
            )
            .unwrap();
            stages.0.into_inner().unwrap()
        };
        let (want, got) = (stages(&Device::Cpu), stages(&device));
        assert_eq!(want.len(), got.len());
        for ((name, want), (same, got)) in want.iter().zip(&got) {
            assert_eq!(name, same);
            let off = track_tests::reference::largest_difference(got, want);
            println!("{kind} {name}: {off:.2e}");
            let allowed = match name.as_str() {
                name if name.starts_with("grid.") || name.starts_with("support.") => 5e-6,
                _ => 1e-3,
            };
            assert!(
                off <= allowed,
                "{kind} {name}: {off:e} is more than {allowed:e}"
            );
        }
    }
}

#[test]
fn every_precision_stays_near_f32_on_the_default_weights() {
    let Some(device) = device() else { return };
    let small = emulated(&device);
    let frames = clip(if small { 3 } else { 47 }, 256, 256).unwrap();
    let queries = queries(
        if small { 6 } else { 256 },
        frames.dim(0).unwrap(),
        256,
        256,
    );
    let run = |device: &Device, precision| {
        let model = load(&default_weights(), None, device, precision).unwrap();
        let options = SessionOptions::default();
        track(
            model.as_ref(),
            &frames,
            &queries,
            &options,
            Context::default(),
        )
        .unwrap()
    };
    let want = run(&Device::Cpu, Precision::F32);
    let all: Vec<_> = device
        .precisions()
        .into_iter()
        .map(|precision| (precision, moved(&run(&device, precision), &want)))
        .collect();
    for (precision, moved) in &all {
        println!("{precision}: {moved}");
    }
    // The made-up clip repeats itself and its tracks mean little, so that rounding moves a few positions in a hundred to
    // another place that looks alike. What the shipped clip shows is in the README; `track golden check` holds it.
    for (precision, moved) in all {
        let (median, p95, visibility) = match precision {
            Precision::F32 => (1e-4, 5e-3, 0.9999),
            Precision::Bf16 => (0.3, 5.0, 0.98),
            _ => (0.05, 1.0, 0.995),
        };
        assert!(
            moved.median <= median && moved.p95 <= p95,
            "{precision}: {moved}"
        );
        // Six tracks of three frames: one that flips is already 5 %.
        let visibility = if small { 0.9 } else { visibility };
        assert!(moved.visibility >= visibility, "{precision}: {moved}");
    }
}

#[test]
fn flat_and_noisy_pictures_stay_finite_in_every_precision() {
    let Some(device) = device() else { return };
    let small = emulated(&device);
    let (frames, side) = if small { (1, 24) } else { (9, 200) };
    let values = frames * side * side * 3;
    let flat = |v: u8| vec![v; values];
    let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761).rotate_left(9) as u8;
    let mut pictures = vec![
        ("black", flat(0)),
        ("noise", (0..values).map(noise).collect()),
    ];
    if !small {
        pictures.extend([("white", flat(255)), ("grey", flat(93))]);
    }
    let queries = queries(if small { 2 } else { 40 }, frames, side, side);
    // Every layer's result is looked at, not only what comes out.
    let options = SessionOptions {
        check_finite: true,
        ..Default::default()
    };
    for precision in device.precisions() {
        if small && precision != Precision::F16 {
            continue;
        }
        let model = load(&default_weights(), None, &device, precision).unwrap();
        for (name, pixels) in &pictures {
            let shape = (frames, side, side, 3);
            let clip = Tensor::from_vec(pixels.clone(), shape, &candle_core::Device::Cpu).unwrap();
            let tracks = track(
                model.as_ref(),
                &clip,
                &queries,
                &options,
                Context::default(),
            );
            let tracks = tracks.unwrap_or_else(|e| panic!("{name} in {precision}: {e}"));
            for tensor in [&tracks.positions, &tracks.occlusion, &tracks.expected_dist] {
                let values = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                assert!(
                    values.iter().all(|v| v.is_finite()),
                    "{name} in {precision}"
                );
            }
        }
    }
}

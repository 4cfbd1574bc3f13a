//! What the default weights answer on the shipped 47-frame clip, against what they answered before.
//!
//! `cargo xtask golden` compares and prints how far each number moved; `cargo xtask golden --bless` writes the
//! new answers. The same build on the same machine gives the same bytes; other processors sum in another order
//! and other FFmpeg versions may round a colour differently, which is what the tolerances are for.

#![allow(clippy::unwrap_used)] // a test that unwraps fails where it should

use std::collections::HashMap;

use candle_core::{Device, Tensor};
use track::{Clip, DeviceChoice, Queries, Tracker, Watch};
use track_tests::reference;

/// Median and 99th percentile of the distance in pixels, largest change of a logit, share of equal visibility.
const MEDIAN: f32 = 1e-3;
const P99: f32 = 0.02;
const LOGIT: f32 = 0.05;
const AGREEMENT: f32 = 0.999;

const FILE: &str = "golden/pedestrians_47f_256x256.locotrack_small.f32.safetensors";

#[test]
fn default_weights_on_the_shipped_clip() {
    let clip = Clip::open(reference::path("../assets/pedestrians_47f_256x256.mp4")).unwrap();
    let tracker = Tracker::builder()
        .device(DeviceChoice::Cpu)
        .build()
        .unwrap();
    let queries = Queries::grid(8).and(Queries::grid(3).on_frame(20.0));
    let tracks = tracker.track(&clip, &queries, &Watch::new()).unwrap();

    let (frames, points) = (tracks.positions.dim().0, tracks.positions.dim().1);
    assert_eq!((frames, points), (47, 73));
    let tensor =
        |values: Vec<f32>, shape: &[usize]| Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
    let visible: Vec<f32> = tracks
        .visible
        .iter()
        .map(|&v| f32::from(u8::from(v)))
        .collect();
    let new: HashMap<String, Tensor> = HashMap::from([
        (
            "positions".to_owned(),
            tensor(
                tracks.positions.iter().copied().collect(),
                &[frames, points, 2],
            ),
        ),
        (
            "occlusion".to_owned(),
            tensor(
                tracks.occlusion.iter().copied().collect(),
                &[frames, points],
            ),
        ),
        (
            "expected_dist".to_owned(),
            tensor(
                tracks.expected_dist.iter().copied().collect(),
                &[frames, points],
            ),
        ),
        ("visible".to_owned(), tensor(visible, &[frames, points])),
    ]);

    let file = reference::path(FILE);
    let bless = std::env::var_os("TRACK_BLESS").is_some();
    if !file.exists() && bless {
        candle_core::safetensors::save(&new, &file).unwrap();
        println!("{FILE}: written for the first time");
        return;
    }
    let old = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    let moved = Moved::between(&old, &new);
    println!("{FILE}: {moved:?}");
    if bless {
        candle_core::safetensors::save(&new, &file).unwrap();
        return;
    }
    let fits = moved.median <= MEDIAN
        && moved.p99 <= P99
        && moved.logit <= LOGIT
        && moved.agreement >= AGREEMENT;
    assert!(
        fits,
        "the tracks moved: {moved:?}; look at them, then `cargo xtask golden --bless`"
    );
}

#[derive(Debug)]
#[allow(dead_code)] // `largest` is there to be printed
struct Moved {
    median: f32,
    p99: f32,
    largest: f32,
    logit: f32,
    agreement: f32,
}

impl Moved {
    fn between(old: &HashMap<String, Tensor>, new: &HashMap<String, Tensor>) -> Self {
        let values = |set: &HashMap<String, Tensor>, name: &str| {
            set[name].flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let (a, b) = (values(old, "positions"), values(new, "positions"));
        assert_eq!(a.len(), b.len(), "another number of points or frames");
        let mut distances: Vec<f32> = a
            .chunks_exact(2)
            .zip(b.chunks_exact(2))
            .map(|(a, b)| (a[0] - b[0]).hypot(a[1] - b[1]))
            .collect();
        distances.sort_by(f32::total_cmp);
        let at = |share: f64| distances[((distances.len() - 1) as f64 * share) as usize];
        let logit = ["occlusion", "expected_dist"]
            .iter()
            .flat_map(|name| {
                values(old, name)
                    .into_iter()
                    .zip(values(new, name))
                    .collect::<Vec<_>>()
            })
            .map(|(a, b)| (a - b).abs())
            .max_by(f32::total_cmp)
            .unwrap_or(0.0);
        let (a, b) = (values(old, "visible"), values(new, "visible"));
        let agreement = a.iter().zip(&b).filter(|(a, b)| a == b).count() as f32 / a.len() as f32;
        Self {
            median: at(0.5),
            p99: at(0.99),
            largest: at(1.0),
            logit,
            agreement,
        }
    }
}

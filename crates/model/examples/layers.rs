//! Prints what each layer of a model costs on made-up frames, without decoding or outputs around it.
//!
//! `cargo run --release -p track-model --example layers -- WEIGHTS [POINTS] [FRAMES] [RUNS]`

use std::time::Instant;

use candle_core::{Device, Tensor};
use track_model::{Context, Precision, Query, SessionOptions, Size, WeightSource, load};
use track_profile::Profiler;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let weights = args
        .next()
        .ok_or("usage: layers WEIGHTS [POINTS] [FRAMES] [RUNS]")?;
    let mut number = |otherwise: usize| args.next().map_or(Ok(otherwise), |a| a.parse());
    let (points, frames, runs) = (number(256)?, number(47)?, number(3)?);
    let start = Instant::now();
    let model = load(
        &WeightSource::File(weights.into()),
        None,
        &track_model::Device::Cpu,
        Precision::F32,
    )?;
    println!(
        "{} loaded in {:.0} ms",
        model.kind(),
        start.elapsed().as_secs_f64() * 1e3
    );

    let size = Size {
        width: 256,
        height: 256,
    };
    let pixels = size.width * size.height * 3;
    let values: Vec<u8> = (0..frames * pixels)
        .map(|i| ((i / 3 % 256 / 8 * 37 + i / 768 % 256 / 8 * 91 + i % 3 * 50) % 256) as u8)
        .collect();
    let clip = Tensor::from_vec(values, (frames, size.height, size.width, 3), &Device::Cpu)?;
    let at = |i: usize| {
        (
            (i as f32 * 0.618).fract() * 240.0 + 8.0,
            (i as f32 * 0.382).fract() * 240.0 + 8.0,
        )
    };
    let queries: Vec<_> = (0..points)
        .map(at)
        .map(|(x, y)| Query { t: 0.0, x, y })
        .collect();
    for run in 0..runs {
        let profiler = Profiler::on();
        let start = Instant::now();
        let context = Context {
            profiler: profiler.clone(),
            ..Context::default()
        };
        let mut session = model.session(size, &SessionOptions::default(), context)?;
        session.push(&clip)?;
        session.track(&queries)?;
        let elapsed = start.elapsed().as_secs_f64();
        if run + 1 == runs {
            println!("{}", profiler.report());
        }
        println!("run {run}: {elapsed:.3} s");
    }
    Ok(())
}

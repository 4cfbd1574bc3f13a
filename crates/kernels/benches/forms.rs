//! The CPU forms beside the plain Candle forms of the same operations, on the models' shapes.
//!
//! `cargo bench -p track-kernels`

use candle_core::{Device, Tensor};
use criterion::{Criterion, criterion_group, criterion_main};
use track_kernels::{Activation, Conv2d, LayerNorm, Linear};

fn random(shape: &[usize]) -> Tensor {
    Tensor::rand(-1f32, 1f32, shape, &Device::Cpu).expect("a tensor")
}

fn convolutions(c: &mut Criterion) {
    // (name, kernel, stride, c_in, c_out, side): one frame of the encoder's layers.
    for (name, kernel, stride, c_in, c_out, side) in [
        ("conv 3x3 64 128x128", 3, 1, 64, 64, 128),
        ("conv 3x3 256 32x32", 3, 1, 256, 256, 32),
        ("conv 7x7 s2 stem", 7, 2, 3, 64, 256),
    ] {
        let conv =
            Conv2d::new(&random(&[c_out, c_in, kernel, kernel]), stride).expect("a convolution");
        let x = random(&[1, side, side, c_in]);
        let mut group = c.benchmark_group(name);
        group.bench_function("cpu", |b| b.iter(|| conv.forward(&x, None)));
        group.bench_function("plain", |b| b.iter(|| conv.plain(&x, None)));
        group.finish();
    }
}

fn tokens(c: &mut Criterion) {
    let x = random(&[64, 47, 256]);
    let dense = Linear::new(&random(&[1024, 256]), Some(&random(&[1024]))).expect("a layer");
    let mut group = c.benchmark_group("linear + gelu 3008x256x1024");
    group.bench_function("cpu", |b| {
        b.iter(|| dense.forward(&x, Activation::Gelu, None))
    });
    group.bench_function("plain", |b| {
        b.iter(|| dense.plain(&x, Activation::Gelu, None))
    });
    group.finish();
    let norm = LayerNorm::new(random(&[256]), random(&[256]));
    let mut group = c.benchmark_group("layer norm 3008x256");
    group.bench_function("cpu", |b| b.iter(|| norm.forward(&x)));
    group.bench_function("plain", |b| b.iter(|| norm.plain(&x)));
    group.finish();
}

criterion_group! {
    name = forms;
    config = Criterion::default().sample_size(20);
    targets = convolutions, tokens
}
criterion_main!(forms);

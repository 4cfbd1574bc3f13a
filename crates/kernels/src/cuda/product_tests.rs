//! Products on the device (or the emulator) against plain Candle.

use candle_core::{DType, Device, Result, Tensor};
use proptest::prelude::*;

use super::device_testing::{assert_near, gpu, rounded, upload};
use super::{Buffer, Element, PackedWeight, ProductOp, Tape, Window};
use crate::testing::random;

const ALL: [Element; 4] = [Element::F32, Element::Tf32, Element::F16, Element::Bf16];

/// Largest difference relative to the largest value, for products of operands that were rounded beforehand.
fn tolerance(element: Element) -> f32 {
    match element {
        Element::F32 => 2e-6,
        Element::Tf32 => 2e-3,
        Element::F16 => 1.2e-3,
        Element::Bf16 => 1e-2,
    }
}

/// SAME convolution by Candle: `[n, h, w, c]` and `[co, kh, kw, c]`.
fn plain(x: &Tensor, weight: &Tensor, window: Window) -> Result<Tensor> {
    let [ky, kx] = window.kernel;
    let after = |i: usize| {
        ((window.out[i] - 1) * window.stride[i] + window.kernel[i])
            .saturating_sub(window.size[i] + window.pad[i])
    };
    let x = x
        .pad_with_zeros(1, window.pad[0], after(0))?
        .pad_with_zeros(2, window.pad[1], after(1))?;
    let (co, ..) = weight.dims4()?;
    let (n, _, _, c) = x.dims4()?;
    let mut sum = Tensor::zeros(
        (n * window.out[0] * window.out[1], co),
        DType::F32,
        &Device::Cpu,
    )?;
    let every = |t: &Tensor, dim: usize, from: usize, i: usize| -> Result<Tensor> {
        let at: Vec<u32> = (0..window.out[i])
            .map(|o| (o * window.stride[i] + from) as u32)
            .collect();
        t.index_select(&Tensor::new(at, &Device::Cpu)?, dim)
    };
    for dy in 0..ky {
        for dx in 0..kx {
            let part = every(&every(&x, 1, dy, 0)?, 2, dx, 1)?.contiguous()?;
            let tap = weight
                .narrow(1, dy, 1)?
                .narrow(2, dx, 1)?
                .contiguous()?
                .reshape((co, c))?;
            sum = (sum + part.reshape(((), c))?.matmul(&tap.t()?.contiguous()?)?)?;
        }
    }
    Ok(sum)
}

#[derive(Debug, Clone, Copy)]
struct Case {
    frames: usize,
    size: [usize; 2],
    c_in: usize,
    c_out: usize,
    kernel: usize,
    stride: usize,
    bias: bool,
    residual: bool,
    gelu: bool,
}

fn convolve(element: Element, case: Case) {
    let gpu = gpu();
    let Case {
        frames,
        size: [h, w],
        c_in,
        c_out,
        kernel,
        stride,
        ..
    } = case;
    let window = Window::same(h, w, kernel, stride);
    let rows = frames * window.out[0] * window.out[1];
    let x = rounded(element, &random((frames, h, w, c_in), 1));
    let weight = rounded(element, &random((c_out, kernel, kernel, c_in), 2));
    let bias = random(c_out, 3);
    let residual = rounded(element, &random((rows, c_out), 4));
    let biases: Vec<_> = case.bias.then(|| bias.clone()).into_iter().collect();
    let packed =
        PackedWeight::new(&gpu, element, std::slice::from_ref(&weight), &biases, &[]).unwrap();
    let (dx, dr) = (upload(&gpu, element, &x), upload(&gpu, element, &residual));
    let out = Buffer::new(&gpu, rows * c_out * element.size()).unwrap();
    out.fill(0xff).unwrap();
    let mut tape = Tape::new(&gpu);
    tape.layer("conv", ());
    tape.product(&ProductOp {
        weight: &packed,
        x: dx.all(),
        ld_x: c_in,
        x_batch: 0,
        frames,
        window,
        residual: case.residual.then(|| (dr.all(), c_out)),
        out: out.all(),
        ld_out: c_out,
        out_batch: 0,
        group_rows: 0,
        gelu: case.gelu,
        period: 0,
        period_step: 0,
    })
    .unwrap();
    tape.run().unwrap();
    let mut want = plain(&x, &weight, window).unwrap();
    if case.bias {
        want = want.broadcast_add(&bias).unwrap();
    }
    if case.residual {
        want = (want + &residual).unwrap();
    }
    if case.gelu {
        want = want.gelu_erf().unwrap();
    }
    let got = out.values(element, rows * c_out).unwrap();
    assert_near(
        &got,
        &want,
        tolerance(element),
        &format!("{element:?} {case:?}"),
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn convolutions_equal_plain(
        frames in 1usize..3, h in 1usize..14, w in 1usize..14, c in 1usize..10, wide: bool, k in 0usize..4, s in 1usize..3,
        bias: bool, residual: bool, gelu: bool,
    ) {
        let case = Case {
            frames, size: [h, w], c_in: 8 * c, c_out: if wide { 128 } else { 64 }, kernel: [1, 2, 3, 5][k], stride: s,
            bias, residual, gelu,
        };
        for element in ALL {
            convolve(element, case);
        }
    }
}

#[test]
fn a_deep_convolution_of_several_tiles() {
    let case = Case {
        frames: 2,
        size: [16, 9],
        c_in: 128,
        c_out: 256,
        kernel: 3,
        stride: 1,
        bias: true,
        residual: true,
        gelu: false,
    };
    for element in ALL {
        convolve(element, case);
    }
}

/// Group norm over 16 channels of whole pictures, then relu: `[pictures, pixels, c]`.
fn group_norm_plain(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (n, pixels, c) = x.dims3()?;
    let x = x.reshape((n, pixels, c / 16, 16))?;
    let mean = x.mean_keepdim(3)?.mean_keepdim(1)?;
    let centred = x.broadcast_sub(&mean)?;
    let variance = centred.sqr()?.mean_keepdim(3)?.mean_keepdim(1)?;
    let y = centred
        .broadcast_div(&(variance + 1e-5)?.sqrt()?)?
        .reshape((n, pixels, c))?;
    y.broadcast_mul(weight)?.broadcast_add(bias)?.relu()
}

#[test]
fn group_norms_ride_on_products_of_a_batch_and_rows_fold_into_columns() {
    // (pixels of a picture's side before, kernel, stride): 16, 4 and 1 pixels after it.
    for (side, kernel, stride, c_out) in
        [(7, 3, 2, 64), (7, 5, 4, 64), (4, 3, 2, 128), (2, 2, 2, 128)]
    {
        for element in ALL {
            let gpu = gpu();
            let (tokens, c_in, batch) = (11, 56, 3);
            let window = Window::same(side, side, kernel, stride);
            let pixels = window.out[0] * window.out[1];
            let rows = 2 * tokens * pixels;
            let weights: Vec<_> = (0..batch)
                .map(|b| rounded(element, &random((c_out, kernel, kernel, c_in), 10 + b)))
                .collect();
            let biases: Vec<_> = (0..batch).map(|b| random(c_out, 20 + b)).collect();
            let norms: Vec<_> = (0..batch)
                .map(|b| (random(c_out, 30 + b), random(c_out, 40 + b)))
                .collect();
            let x = rounded(
                element,
                &random((batch as usize, 2 * tokens, side, side, c_in), 5),
            );
            let packed = PackedWeight::new(&gpu, element, &weights, &biases, &norms).unwrap();
            let dx = upload(&gpu, element, &x);
            let fold = pixels == 1;
            let ld = if fold { 6 * c_out + 8 } else { c_out };
            let values = if fold {
                tokens * ld
            } else {
                batch as usize * rows * c_out
            };
            let out = Buffer::new(&gpu, values * element.size()).unwrap();
            let between = Buffer::new(&gpu, batch as usize * rows * c_out * 4).unwrap();
            out.fill(0).unwrap();
            let (out_batch, period, step) = if fold {
                (2 * c_out, tokens, c_out)
            } else {
                (rows * c_out, rows, 0)
            };
            let op = ProductOp {
                weight: &packed,
                x: dx.all(),
                ld_x: c_in,
                x_batch: 2 * tokens * side * side * c_in,
                frames: 2 * tokens,
                window,
                residual: None,
                out: out.all(),
                ld_out: ld,
                out_batch,
                group_rows: pixels,
                gelu: false,
                period: if fold { period } else { 0 },
                period_step: step,
            };
            let mut tape = Tape::new(&gpu);
            tape.layer("encode", ());
            if element == Element::F32 {
                tape.product(&ProductOp {
                    out: between.all(),
                    ld_out: c_out,
                    out_batch: rows * c_out,
                    group_rows: 0,
                    period: 0,
                    ..op
                })
                .unwrap();
                tape.group_norm_relu(&super::GroupNorm {
                    affine: packed.norm().unwrap(),
                    x: between.all(),
                    x_batch: rows * c_out,
                    batch: batch as usize,
                    rows,
                    pixels,
                    c: c_out,
                    out: out.all(),
                    out_batch,
                    ld,
                    period,
                    step,
                })
                .unwrap();
            } else {
                tape.product(&op).unwrap();
            }
            tape.run().unwrap();
            let got = out.values(element, values).unwrap();
            for b in 0..batch as usize {
                let y = plain(&x.get(b).unwrap(), &weights[b], window).unwrap();
                let y = y
                    .broadcast_add(&biases[b])
                    .unwrap()
                    .reshape((2 * tokens, pixels, c_out))
                    .unwrap();
                let want = group_norm_plain(&y, &norms[b].0, &norms[b].1).unwrap();
                let want = want.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                for (i, w) in want.iter().enumerate() {
                    let (row, column) = (i / c_out, i % c_out);
                    let at = if fold {
                        row % tokens * ld + b * out_batch + row / tokens * step + column
                    } else {
                        b * out_batch + i
                    };
                    let allowed = 4.0 * tolerance(element);
                    assert!(
                        (got[at] - w).abs() <= allowed,
                        "{element:?} side {side} value {i}: {} is not {w}",
                        got[at]
                    );
                }
            }
        }
    }
}

#[test]
fn costs_of_queries_at_every_cell() {
    for element in ALL {
        let gpu = gpu();
        let (n, frames, cells, c) = (5, 3, 64, 128);
        let vectors = rounded(element, &random((n, c), 1));
        let grid = rounded(element, &random((frames, cells, c), 2));
        let (dv, dg) = (
            upload(&gpu, element, &vectors),
            upload(&gpu, element, &grid),
        );
        let out = Buffer::new(&gpu, frames * n * cells * 4).unwrap();
        let mut tape = Tape::new(&gpu);
        tape.layer("costs", ());
        tape.cost_volume(
            element,
            (dv.all(), n),
            (dg.all(), frames, cells, c),
            out.all(),
        )
        .unwrap();
        tape.run().unwrap();
        let want = vectors
            .unsqueeze(0)
            .unwrap()
            .broadcast_matmul(&grid.t().unwrap().contiguous().unwrap())
            .unwrap();
        let got = out.values(Element::F32, frames * n * cells).unwrap();
        assert_near(&got, &want, tolerance(element), &format!("{element:?}"));
    }
}

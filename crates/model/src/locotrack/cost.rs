//! What LocoTrack's layers spend, from their shapes alone: the same figures whatever device computes them.
//!
//! Layers are named here once, so that a profile reads the same on every device.

use track_kernels::{MOTION_FEATURES, SUPPORT, same_padding};
use track_profile::Cost;

use super::config::{Config, HEAD, USED_OUTPUTS};

/// Names of the layers of a forward pass, in the order of their first call.
pub(crate) mod name {
    pub(crate) const RESIZE: &str = "input.resize";
    pub(crate) const STEM: &str = "encoder.stem";
    pub(crate) const NORMALIZE: &str = "encoder.normalize";
    /// Frames encoded piece by piece become one tensor.
    pub(crate) const JOIN: &str = "encoder.join";
    pub(crate) const SUPPORT: &str = "initial.support";
    pub(crate) const COST_VOLUME: &str = "initial.cost_volume";
    /// Reads the cost volume, where that is a launch of its own.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) const SOFT_ARGMAX: &str = "initial.soft_argmax";
    pub(crate) const CORRELATION: &str = "refine.correlation";
    /// Encodes the correlation, where that is a launch of its own.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) const ENCODE_CORRELATION: &str = "refine.encode_correlation";
    pub(crate) const MOTION: &str = "refine.motion";
    pub(crate) const INPUT: &str = "refine.input";
    pub(crate) const NORM: &str = "refine.norm";
    pub(crate) const QKV: &str = "refine.qkv";
    pub(crate) const ATTENTION: &str = "refine.attention";
    pub(crate) const PROJECT: &str = "refine.project";
    pub(crate) const DENSE: &str = "refine.dense";
    pub(crate) const OUTPUT: &str = "refine.output";
    /// `(norm, shortcut, conv3x3)` of the encoder's groups.
    pub(crate) const GROUPS: [(&str, &str, &str); 4] = [
        (
            "encoder.group0.norm",
            "encoder.group0.shortcut",
            "encoder.group0.conv3x3",
        ),
        (
            "encoder.group1.norm",
            "encoder.group1.shortcut",
            "encoder.group1.conv3x3",
        ),
        (
            "encoder.group2.norm",
            "encoder.group2.shortcut",
            "encoder.group2.conv3x3",
        ),
        (
            "encoder.group3.norm",
            "encoder.group3.shortcut",
            "encoder.group3.conv3x3",
        ),
    ];
}

/// Cells of a support: 49.
const CELLS: u64 = (SUPPORT * SUPPORT) as u64;
/// Whole cells under a support at a fractional position: 64.
const PATCH: u64 = ((SUPPORT + 1) * (SUPPORT + 1)) as u64;
/// Bytes of an f32.
const F32: u64 = 4;

/// Operations that read a cell of the fine cost volume: interpolation 7, convolution 2 · 18 + 1, softmax 4, weighted
/// sums 7.
const PER_COST: u64 = 7 + 37 + 4 + 7;

/// u8 pixels `from` are read, values `to` written, both counted with their channels; `resized`: interpolated.
pub(crate) fn resize(from: usize, to: usize, resized: bool) -> Cost {
    Cost {
        // A scale and a shift; three blends of two products each when interpolated.
        other: to as u64 * if resized { 2 + 9 } else { 2 },
        values: to as u64,
        bytes: from as u64,
        ..Cost::default()
    }
}

/// A convolution of kernel `k` with `outputs` positions of `c_out` channels, from `inputs` values.
pub(crate) fn conv(inputs: usize, outputs: usize, c_in: usize, c_out: usize, k: usize) -> Cost {
    let inner = (c_in * k * k) as u64;
    let (outputs, c_out) = (outputs as u64, c_out as u64);
    Cost {
        values: inputs as u64 + inner * c_out + outputs * c_out,
        ..Cost::product(outputs, c_out, inner)
    }
}

/// A residual of `values` numbers added to a result that is being written anyway.
pub(crate) fn residual(values: usize) -> Cost {
    Cost {
        other: values as u64,
        values: values as u64,
        ..Cost::default()
    }
}

/// Mean, variance, normalisation, scale, shift and perhaps a ReLU of `values` numbers in `channels`.
pub(crate) fn norm(values: usize, channels: usize) -> Cost {
    let parameters = Cost {
        values: 2 * channels as u64,
        ..Cost::default()
    };
    Cost::elementwise(values as u64, 8) + parameters
}

/// Cells made unit vectors.
pub(crate) fn normalize(values: usize) -> Cost {
    Cost::elementwise(values as u64, 3)
}

/// Values copied.
pub(crate) fn copy(values: usize) -> Cost {
    Cost::elementwise(values as u64, 0)
}

/// The supports `[n, 7, 7, c]` of one level, sampled from one frame each (between two where `t` has a fraction).
pub(crate) fn support(n: usize, c: usize) -> Cost {
    let (n, c) = (n as u64, c as u64);
    Cost {
        other: n * CELLS * c * 7,
        values: n * c * (PATCH + CELLS),
        bytes: n * 3 * F32,
        ..Cost::default()
    }
}

/// The first estimate of `n` tracks over `frames`: costs of all cells of two grids `(cells, channels)`, the
/// coarse one resized to the fine one, mixed, and read by the soft arg-max and the occlusion layer.
pub(crate) fn cost_volume(
    n: usize,
    frames: usize,
    coarse: (usize, usize),
    fine: (usize, usize),
) -> Cost {
    let (n, frames) = (n as u64, frames as u64);
    let level = |(cells, c): (usize, usize)| {
        let (cells, c) = (cells as u64, c as u64);
        // The costs themselves stay in a tile.
        Cost {
            values: frames * cells * c + n * c,
            ..Cost::product(frames * cells, n, c)
        }
    };
    let volume = n * frames * fine.0 as u64;
    let read = Cost {
        other: volume * PER_COST,
        bytes: n * frames * 4 * F32,
        ..Cost::default()
    };
    let mut cost = level(coarse) + level(fine) + read;
    // Cells may be taken for the outputs of these products, and they are multiples of 8.
    cost.narrow = 0;
    cost
}

/// Costs of `n` queries at every cell of `frames` grids, written out in f32.
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(crate) fn costs(n: usize, frames: usize, cells: usize, c: usize) -> Cost {
    let (n, frames, cells, c) = (n as u64, frames as u64, cells as u64, c as u64);
    Cost {
        narrow: 0,
        values: frames * cells * c + n * c,
        bytes: n * frames * cells * F32,
        ..Cost::product(frames * cells, n, c)
    }
}

/// The soft arg-max and the occlusion layer, from costs that are read in f32.
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(crate) fn soft_argmax(n: usize, frames: usize, coarse: usize, fine: usize) -> Cost {
    let tracks = (n * frames) as u64;
    Cost {
        other: tracks * fine as u64 * PER_COST,
        bytes: tracks * ((coarse + fine) as u64 + 4) * F32,
        ..Cost::default()
    }
}

/// A level's correlation, written or read from both sides.
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(crate) fn volume(rows: usize) -> Cost {
    Cost {
        values: 2 * rows as u64 * CELLS * CELLS,
        ..Cost::default()
    }
}

/// The local 4D correlation of one level around every position: 8×8 whole cells against the 49 of the support,
/// blended to 7×7. `cells` of a frame's grid, `c` channels. The volume itself is not counted.
pub(crate) fn correlation(n: usize, frames: usize, cells: usize, c: usize) -> Cost {
    let (n, frames, cells, c) = (n as u64, frames as u64, cells as u64, c as u64);
    let rows = n * frames;
    let side = SUPPORT as u64;
    Cost {
        // Rows blended to 7×8, then columns to 7×7.
        other: rows * CELLS * 3 * (side * (side + 1) + CELLS),
        // A grid is read once, or only the cells under positions where that is less.
        values: (rows * PATCH).min(frames * cells) * c + n * CELLS * c,
        bytes: rows * 2 * F32,
        ..Cost::product(rows * PATCH, CELLS, c)
    }
}

/// Both encodings of the correlations of one level, taps outside the picture not counted, nor the volume.
pub(crate) fn encode_correlation(config: &Config, rows: usize) -> Cost {
    let pictures = 2 * rows as u64;
    let mut size = SUPPORT;
    let mut cost = Cost::default();
    for &(c_in, c_out, kernel, stride) in config.correlation {
        let (outputs, pad) = same_padding(size, kernel, stride);
        let taps: usize = (0..outputs)
            .map(|o| {
                let inside = |tap: &usize| (pad..pad + size).contains(&(o * stride + tap));
                (0..kernel).filter(inside).count()
            })
            .sum();
        let layer = conv(0, 1, c_in, c_out, kernel);
        let products = pictures * 2 * (taps * taps * c_in * c_out) as u64;
        let written = pictures * (outputs * outputs * c_out) as u64;
        cost += Cost {
            products,
            narrow: if layer.narrow > 0 { products } else { 0 },
            // Bias, then group norm and ReLU.
            other: written * 9,
            values: (c_in * c_out * kernel * kernel + 3 * c_out) as u64,
            bytes: 0,
        };
        size = outputs;
    }
    cost.values += pictures * config.correlation_outputs() as u64;
    cost
}

/// The motion of every token.
pub(crate) fn motion(rows: usize) -> Cost {
    let rows = rows as u64;
    Cost {
        // Four differences scaled; ten octaves of sines and cosines of each.
        other: rows * (2 * 4 + 4 * 10 * 4),
        values: rows * MOTION_FEATURES as u64,
        bytes: rows * 4 * F32,
        ..Cost::default()
    }
}

/// `rows` vectors of `inputs` become vectors of `outputs`, with a bias.
pub(crate) fn linear(rows: usize, inputs: usize, outputs: usize) -> Cost {
    let bias = Cost {
        other: (rows * outputs) as u64,
        values: outputs as u64,
        ..Cost::default()
    };
    Cost::product(rows as u64, outputs as u64, inputs as u64) + bias
}

/// Attention of `n` tracks over their `frames` with `dim` channels in all heads.
pub(crate) fn attention(n: usize, frames: usize, dim: usize) -> Cost {
    let (n, t, dim) = (n as u64, frames as u64, dim as u64);
    let heads = dim / HEAD as u64;
    let one = Cost::product(t, t, HEAD as u64) + Cost::product(t, HEAD as u64, t);
    Cost {
        // Scale, bias, maximum, exponential, sum, division.
        other: n * heads * t * t * 6,
        values: n * t * 4 * dim,
        ..one * (n * heads)
    }
}

/// The transformer's wide layers: to four times the width, GELU, back, and the residual.
pub(crate) fn dense(rows: usize, dim: usize) -> Cost {
    let gelu = Cost {
        other: (rows * 4 * dim) as u64 * 8,
        ..Cost::default()
    };
    linear(rows, dim, 4 * dim) + gelu + linear(rows, 4 * dim, dim) + residual(rows * dim)
}

/// The corrections, and every track's state with them.
pub(crate) fn output(rows: usize, dim: usize) -> Cost {
    let state = Cost {
        other: rows as u64 * (USED_OUTPUTS as u64 + 2),
        bytes: rows as u64 * 2 * USED_OUTPUTS as u64 * F32,
        ..Cost::default()
    };
    linear(rows, dim, USED_OUTPUTS) + state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelKind;

    #[test]
    fn the_stem_by_hand() {
        // 256×256×3 to 128×128×64 with 7×7: 2 · 128² · 64 · 147.
        let cost = conv(256 * 256 * 3, 128 * 128, 3, 64, 7);
        assert_eq!(cost.products, 308_281_344);
        assert_eq!(cost.narrow, cost.products, "147 inputs are padded");
        assert_eq!(cost.values, 196_608 + 9_408 + 1_048_576);
        assert_eq!(conv(1, 1, 64, 64, 3).narrow, 0);
    }

    #[test]
    fn the_small_models_correlation_by_hand() {
        let cost = correlation(2, 3, 64 * 64, 128);
        assert_eq!(cost.products, 6 * 2 * 64 * 49 * 128);
        assert_eq!(cost.narrow, cost.products, "49 outputs are padded");
        // Few positions read their own cells, many read the grid once.
        assert_eq!(cost.values, (6 * 64 + 2 * 49) * 128);
        assert_eq!(
            correlation(1000, 3, 64 * 64, 128).values,
            (3 * 4096 + 1000 * 49) * 128
        );
        // 7 cells, kernel 5, stride 4, one cell of padding: taps 4 + 4; then 2 cells, kernel 2: 2 taps.
        let config = Config::of(ModelKind::LocoTrackSmall);
        let encode = encode_correlation(&config, 1);
        let first = 2 * 2 * 8 * 8 * 49 * 64;
        let second = 2 * 2 * 2 * 2 * 64 * 128;
        assert_eq!(encode.products, first + second);
        assert_eq!(encode.narrow, first);
    }

    #[test]
    fn attention_over_odd_frames_is_padded() {
        assert_eq!(attention(1, 48, 256).narrow, 0);
        let cost = attention(2, 47, 256);
        assert_eq!(cost.products, 2 * 4 * 47 * 47 * 256);
        assert_eq!(cost.narrow, cost.products);
    }
}

//! The image encoder on a tape.

use candle_core::Result;
use track_kernels::cuda::{
    Affine, Gpu, PackedWeight, PictureSource, ProductOp, Slice, Tape, Window, instance_norm_scratch,
};
use track_profile::Cost;

use super::super::cost::{self, name};
use super::network::{Block, Network};
use super::room::Room;
use crate::Size;

/// Strides and channels of the grids, in the order in which the refinement reads them: hires, lowres, highest.
pub(super) const LEVELS: [(usize, usize); 3] = [(4, 128), (8, 256), (2, 64)];
/// The encoder's group that gives each of them.
const GROUP_OF_LEVEL: [usize; 3] = [1, 3, 0];
/// Buffers of the groups' results. The third group's feeds the fourth alone.
const KEPT: [&str; 4] = ["group 0", "group 1", "block a", "group 3"];

/// The sizes that a clip's frames go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) clip: Size,
    pub(super) input: Size,
    /// What this encoding works on.
    pub(super) work: Size,
}

impl Sizes {
    fn pair(size: Size) -> [usize; 2] {
        [size.height, size.width]
    }
}

/// Rows and columns of a level's grid.
pub(super) fn grid_size(work: Size, level: usize) -> [usize; 2] {
    let stride = LEVELS[level].0;
    [work.height.div_ceil(stride), work.width.div_ceil(stride)]
}

/// Values of a frame's grid.
pub(super) fn grid_values(work: Size, level: usize) -> usize {
    let [height, width] = grid_size(work, level);
    height * width * LEVELS[level].1
}

struct Recorder<'a> {
    tape: Tape<Cost>,
    network: &'a Network,
    frames: usize,
    scratch: Slice,
}

/// Activations between layers: `[frames, height, width, c]`.
#[derive(Debug, Clone, Copy)]
struct Grid {
    at: Slice,
    size: [usize; 2],
    c: usize,
}

impl Grid {
    fn values(&self, frames: usize) -> usize {
        frames * self.size[0] * self.size[1] * self.c
    }
}

/// Records the encoder for `frames` pictures in the buffer "frames", up to the groups' results.
pub(super) fn record(
    gpu: &Gpu,
    network: &Network,
    room: &mut Room,
    sizes: Sizes,
    frames: usize,
) -> Result<Tape<Cost>> {
    let element = network.element;
    let Sizes { clip, input, work } = sizes;
    let pixels = |s: Size| s.width * s.height;
    // Every activation has at most as many values as the stem's result.
    let most = frames * pixels(work) / 4 * 64 * element.size();
    let pictures = room.take("frames", frames * pixels(clip) * 3)?;
    let fed = (clip != input && input != work)
        .then(|| room.take("fed", frames * pixels(input) * 3 * 4))
        .transpose()?;
    let x = room.take("input", frames * pixels(work) * 4 * element.size())?;
    let statistics = [(4, 64), (16, 128), (64, 256)]
        .iter()
        .map(|(share, c)| instance_norm_scratch(frames, pixels(work) / share, *c))
        .max()
        .unwrap_or(0);
    let scratch = room.take("statistics", statistics * 4)?;
    let mut buffers = Vec::new();
    for name in ["block a", "block b", "normed", "between", "shortcut"] {
        buffers.push(room.take(name, most)?);
    }
    let mut kept = Vec::new();
    for (g, name) in KEPT.into_iter().enumerate() {
        kept.push(room.take(name, if g == 0 { most } else { most / 2 })?);
    }
    let mut recorder = Recorder {
        tape: Tape::new(gpu),
        network,
        frames,
        scratch,
    };
    let tape = &mut recorder.tape;
    let resized = clip != input || input != work;
    let cost = cost::resize(
        frames * pixels(clip) * 3,
        frames * pixels(work) * 4,
        resized,
    );
    tape.layer(name::RESIZE, cost);
    let (from, to) = (Sizes::pair(clip), Sizes::pair(work));
    let source = PictureSource::Bytes(pictures);
    match fed {
        // The clip is resized to what is fed in, and that to what is worked on: twice where both differ.
        Some(fed) => {
            let between = Sizes::pair(input);
            tape.resize(pictures, frames, from, between, fed)?;
            tape.to_input(element, PictureSource::Floats(fed), frames, between, to, x)?;
        }
        None => tape.to_input(element, source, frames, from, to, x)?,
    }
    let mut x = recorder.stem(x, work, buffers[0])?;
    for (g, blocks) in network.groups.iter().enumerate() {
        for (b, block) in blocks.iter().enumerate() {
            // A group's result lies where it is kept; what leads there alternates with it.
            let out = if b + 1 == blocks.len() {
                kept[g]
            } else {
                buffers[1]
            };
            x = recorder.block(g, block, x, out, &buffers[2..])?;
        }
    }
    Ok(recorder.tape)
}

impl Recorder<'_> {
    fn stem(&mut self, x: Slice, work: Size, out: Slice) -> Result<Grid> {
        let size = [work.height.div_ceil(2), work.width.div_ceil(2)];
        let c = self.network.stem.columns();
        let outputs = self.frames * size[0] * size[1];
        let inputs = self.frames * work.width * work.height * 4;
        self.tape
            .layer(name::STEM, cost::conv(inputs, outputs, 3, c, 7));
        let same = Window::same(work.height, work.width, 7, 2);
        self.tape.product(&ProductOp {
            // Pixels in pairs: half as many columns, half the stride and padding.
            window: Window {
                size: [work.height, work.width / 2],
                out: size,
                kernel: [7, 4],
                stride: [2, 1],
                pad: [same.pad[0], same.pad[1] / 2],
            },
            ..self.op(&self.network.stem, x, 8, out)
        })?;
        Ok(Grid { at: out, size, c })
    }

    fn block(
        &mut self,
        g: usize,
        block: &Block,
        x: Grid,
        out: Slice,
        free: &[Slice],
    ) -> Result<Grid> {
        let (norm_name, shortcut_name, conv_name) = name::GROUPS[g];
        let frames = self.frames;
        let [height, width] = x.size;
        let window = |kernel, stride| Window::same(height, width, kernel, stride);
        let size = window(3, block.stride).out;
        let (normed, between, shortcut) = (free[0], free[1], free[2]);
        let outputs = frames * size[0] * size[1];

        self.norm(norm_name, x, &block.norm_0, normed)?;
        let residual = match &block.shortcut {
            Some(weight) => {
                let cost = cost::conv(x.values(frames), outputs, block.c_in, block.c_out, 1);
                self.tape.layer(shortcut_name, cost);
                self.tape.product(&ProductOp {
                    window: window(1, block.stride),
                    ..self.op(weight, normed, block.c_in, shortcut)
                })?;
                shortcut
            }
            None => x.at,
        };
        let cost = cost::conv(x.values(frames), outputs, block.c_in, block.c_out, 3);
        self.tape.layer(conv_name, cost);
        self.tape.product(&ProductOp {
            window: window(3, block.stride),
            ..self.op(&block.conv_0, normed, block.c_in, between)
        })?;
        let y = Grid {
            at: between,
            size,
            c: block.c_out,
        };
        self.norm(norm_name, y, &block.norm_1, normed)?;
        let values = y.values(frames);
        let cost =
            cost::conv(values, outputs, block.c_out, block.c_out, 3) + cost::residual(values);
        self.tape.layer(conv_name, cost);
        self.tape.product(&ProductOp {
            window: Window::same(size[0], size[1], 3, 1),
            residual: Some((residual, block.c_out)),
            ..self.op(&block.conv_1, normed, block.c_out, out)
        })?;
        Ok(Grid { at: out, ..y })
    }

    fn norm(&mut self, name: &'static str, x: Grid, affine: &Affine, y: Slice) -> Result<()> {
        self.tape
            .layer(name, cost::norm(x.values(self.frames), x.c));
        let shape = (self.frames, x.size[0] * x.size[1], x.c);
        let element = self.network.element;
        self.tape
            .instance_norm_relu(element, x.at, shape, affine, self.scratch, y)
    }

    /// A convolution but for its window and what is added.
    fn op<'w>(&self, weight: &'w PackedWeight, x: Slice, ld_x: usize, out: Slice) -> ProductOp<'w> {
        ProductOp::linear(weight, (x, ld_x), out, self.frames)
    }
}

/// Records how the groups' results of `count` frames become grids from frame `first` on.
pub(super) fn publish(
    gpu: &Gpu,
    network: &Network,
    room: &Room,
    work: Size,
    (first, count): (usize, usize),
    grids: [&'static str; 3],
) -> Result<Tape<Cost>> {
    let element = network.element;
    let mut tape = Tape::new(gpu);
    for (level, &(_, c)) in LEVELS.iter().enumerate() {
        let values = grid_values(work, level);
        tape.layer(name::NORMALIZE, cost::normalize(count * values));
        let x = room.buffer(KEPT[GROUP_OF_LEVEL[level]])?.all();
        let y = room
            .buffer(grids[level])?
            .from(first * values * element.size())?;
        tape.l2_normalize(element, x, count * values / c, c, y)?;
    }
    Ok(tape)
}

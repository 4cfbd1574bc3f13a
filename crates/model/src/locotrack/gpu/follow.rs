//! The first estimate and the refinement of some queries, on tapes.

use candle_core::Result;
use track_kernels::cuda::{
    CORRELATION_CHANNELS, CorrelateLevel, Element, Gpu, GroupNorm, ProductOp, Slice, SoftArgMax,
    Tape, TrackState, Window,
};
use track_kernels::{Attention, SUPPORT};
use track_profile::Cost;

use super::super::config::{ARG_MAX_RADIUS, HEAD, MODEL_SIZE, SLOPE_BASE, TEMPERATURE};
use super::super::cost::{self, name};
use super::encode::{LEVELS, grid_size, grid_values};
use super::network::{Layer, Network};
use super::room::Room;
use crate::Size;

/// Cells of a support.
const CELLS: usize = SUPPORT * SUPPORT;
/// Bytes of cost volume that are held at once: little enough to stay in a large device's second-level cache.
const COST_BYTES: usize = 32 << 20;
/// Grids of the first estimate, and of the refinement where that works on larger pictures.
pub(super) const FIRST: [&str; 3] = ["first hires", "first lowres", "first highest"];
pub(super) const FINE: [&str; 3] = ["fine hires", "fine lowres", "fine highest"];
/// Supports on either.
pub(super) const FIRST_SUPPORT: [&str; 3] = ["support hires", "support lowres", "support highest"];
const FINE_SUPPORT: [&str; 3] = [
    "fine support hires",
    "fine support lowres",
    "fine support highest",
];
/// Queries in cells of a level's grid, f32 `[n, 3]`: t, y, x.
pub(super) const FIRST_QUERIES: [&str; 3] = ["queries hires", "queries lowres", "queries highest"];
pub(super) const FINE_QUERIES: [&str; 3] = [
    "fine queries hires",
    "fine queries lowres",
    "fine queries highest",
];

/// What the tracks of a chunk are recorded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) n: usize,
    pub(super) frames: usize,
    /// The refinement's resolution.
    pub(super) refine: Size,
}

/// The tapes of a chunk of queries.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) shape: Shape,
    pub(super) generation: u64,
    /// Supports and the first estimate.
    pub(super) start: Tape<Cost>,
    /// One iteration, which changes the state in place.
    pub(super) iterate: Tape<Cost>,
}

impl Plan {
    pub(super) fn new(gpu: &Gpu, network: &Network, room: &mut Room, shape: Shape) -> Result<Self> {
        // Everything is taken before anything is recorded: a buffer that grows moves.
        let buffers = Buffers::take(network, room, shape)?;
        let start = buffers.start(gpu, network, room, shape)?;
        let iterate = buffers.iterate(gpu, network, room, shape)?;
        Ok(Self {
            shape,
            generation: room.generation(),
            start,
            iterate,
        })
    }
}

struct Buffers {
    state: TrackState,
    own_frame: Slice,
    own_position: Slice,
    queries: [Slice; 3],
    fine_queries: Option<[Slice; 3]>,
    supports: [Slice; 3],
    fine_supports: Option<[Slice; 3]>,
    /// Vectors of the queries at hires and lowres.
    centres: [Slice; 2],
    costs: [Slice; 2],
    cost_frames: usize,
    volume: Slice,
    /// Results of the correlation encoder's layers, all but the last.
    encoded: Vec<Slice>,
    tokens: Slice,
    h: Slice,
    normed: Slice,
    qkv: Slice,
    mixed: Slice,
    wide: Slice,
}

impl Buffers {
    fn take(network: &Network, room: &mut Room, shape: Shape) -> Result<Self> {
        let Shape { n, frames, refine } = shape;
        let (size, dim, tracks) = (network.element.size(), network.config.dim, n * frames);
        let three =
            |room: &mut Room, names: [&'static str; 3], bytes: [usize; 3]| -> Result<[Slice; 3]> {
                Ok([
                    room.take(names[0], bytes[0])?,
                    room.take(names[1], bytes[1])?,
                    room.take(names[2], bytes[2])?,
                ])
            };
        let support_bytes = LEVELS.map(|(_, c)| n * CELLS * c * size);
        let query_bytes = [n * 3 * 4; 3];
        let larger = refine != MODEL_SIZE;
        let cells = [0, 1].map(|level| grid_values(MODEL_SIZE, level) / LEVELS[level].1);
        let cost_frames = (COST_BYTES / (n * (cells[0] + cells[1]) * 4)).clamp(1, frames);
        let mut encoded = Vec::new();
        let mut side = SUPPORT;
        let names = ["encoded 0", "encoded 1", "encoded 2"];
        for (&(_, c_out, _, stride), name) in network.config.correlation.iter().zip(names) {
            side = side.div_ceil(stride);
            encoded.push(room.take(name, 3 * 2 * tracks * side * side * c_out * size)?);
        }
        Ok(Self {
            state: TrackState {
                positions: room.take("positions", tracks * 2 * 4)?,
                occlusion: room.take("occlusion", tracks * 4)?,
                expected: room.take("expected", tracks * 4)?,
            },
            own_frame: room.take("own frame", n * 4)?,
            own_position: room.take("own position", n * 2 * 4)?,
            queries: three(room, FIRST_QUERIES, query_bytes)?,
            fine_queries: larger
                .then(|| three(room, FINE_QUERIES, query_bytes))
                .transpose()?,
            supports: three(room, FIRST_SUPPORT, support_bytes)?,
            fine_supports: larger
                .then(|| three(room, FINE_SUPPORT, support_bytes))
                .transpose()?,
            centres: [
                room.take("centre hires", n * LEVELS[0].1 * size)?,
                room.take("centre lowres", n * LEVELS[1].1 * size)?,
            ],
            costs: [
                room.take("cost hires", cost_frames * n * cells[0] * 4)?,
                room.take("cost lowres", cost_frames * n * cells[1] * 4)?,
            ],
            cost_frames,
            volume: room.take(
                "volume",
                3 * 2 * tracks * CELLS * CORRELATION_CHANNELS * size,
            )?,
            encoded,
            tokens: room.take("tokens", tracks * network.token() * size)?,
            h: room.take("h", tracks * dim * size)?,
            normed: room.take("tokens normed", tracks * dim * size)?,
            qkv: room.take("qkv", tracks * 3 * dim * size)?,
            mixed: room.take("mixed", tracks * dim * size)?,
            wide: room.take("wide", tracks * 4 * dim * size)?,
        })
    }

    /// Supports, and the first estimate (paper, section 3.2).
    fn start(&self, gpu: &Gpu, network: &Network, room: &Room, shape: Shape) -> Result<Tape<Cost>> {
        let Shape { n, frames, refine } = shape;
        let element = network.element;
        let mut tape = Tape::new(gpu);
        let sets = [
            Some((FIRST, MODEL_SIZE, self.queries, self.supports)),
            self.fine_queries
                .zip(self.fine_supports)
                .map(|(queries, supports)| (FINE, refine, queries, supports)),
        ];
        for (i, (grids, work, queries, supports)) in sets.into_iter().flatten().enumerate() {
            for (level, &(_, c)) in LEVELS.iter().enumerate() {
                let [height, width] = grid_size(work, level);
                let grid = room.buffer(grids[level])?.all();
                tape.layer(name::SUPPORT, cost::support(n, c));
                tape.sample_support(
                    element,
                    (grid, [frames, height, width, c]),
                    (queries[level], n),
                    supports[level],
                    self.centres.get(level).copied().filter(|_| i == 0),
                )?;
            }
        }
        let [fine_size, coarse_size] = [grid_size(MODEL_SIZE, 0), grid_size(MODEL_SIZE, 1)];
        for first in (0..frames).step_by(self.cost_frames) {
            let count = self.cost_frames.min(frames - first);
            for level in [0, 1] {
                let values = grid_values(MODEL_SIZE, level);
                let c = LEVELS[level].1;
                tape.layer(name::COST_VOLUME, cost::costs(n, count, values / c, c));
                let grid = room
                    .buffer(FIRST[level])?
                    .from(first * values * element.size())?;
                tape.cost_volume(
                    element,
                    (self.centres[level], n),
                    (grid, count, values / c, c),
                    self.costs[level],
                )?;
            }
            let cells = fine_size[0] * fine_size[1];
            tape.layer(
                name::SOFT_ARGMAX,
                cost::soft_argmax(n, count, coarse_size[0] * coarse_size[1], cells),
            );
            let op = SoftArgMax {
                coarse: self.costs[1],
                coarse_size,
                fine: self.costs[0],
                fine_size,
                own_frame: self.own_frame,
                own_position: self.own_position,
                n,
                frames,
                first,
                count,
                scale: [
                    MODEL_SIZE.width as f32 / fine_size[1] as f32,
                    MODEL_SIZE.height as f32 / fine_size[0] as f32,
                ],
                temperature: TEMPERATURE,
                radius: ARG_MAX_RADIUS,
                head: network.head,
            };
            tape.soft_argmax(&op, self.state)?;
        }
        Ok(tape)
    }

    /// One iteration (paper, section 3.3).
    fn iterate(
        &self,
        gpu: &Gpu,
        network: &Network,
        room: &Room,
        shape: Shape,
    ) -> Result<Tape<Cost>> {
        let Shape { n, frames, refine } = shape;
        let (element, dim, tokens) = (network.element, network.config.dim, n * frames);
        let mut tape = Tape::new(gpu);
        let (grids, supports) = match self.fine_supports {
            Some(supports) => (FINE, supports),
            None => (FIRST, self.supports),
        };
        let mut levels = Vec::with_capacity(3);
        let mut spent = Cost::default();
        for (level, &(_, c)) in LEVELS.iter().enumerate() {
            let size = grid_size(refine, level);
            spent += cost::correlation(n, frames, size[0] * size[1], c) + cost::volume(tokens);
            levels.push(CorrelateLevel {
                grid: room.buffer(grids[level])?.all(),
                support: supports[level],
                size,
                c,
                scale: [
                    size[1] as f32 / MODEL_SIZE.width as f32,
                    size[0] as f32 / MODEL_SIZE.height as f32,
                ],
            });
        }
        tape.layer(name::CORRELATION, spent);
        let levels = [levels[0], levels[1], levels[2]];
        tape.correlate(
            element,
            levels,
            self.state.positions,
            (n, frames),
            self.volume,
        )?;
        self.encode_correlation(&mut tape, network, tokens)?;

        // Differences in pixels of the refinement resolution, as a share of the model's.
        let share = |side: usize, model: usize| side as f32 / model as f32 / model as f32;
        let scale = [
            share(refine.width, MODEL_SIZE.width),
            share(refine.height, MODEL_SIZE.height),
        ];
        let width = network.token();
        tape.layer(name::MOTION, cost::motion(tokens));
        tape.motion(
            element,
            self.state,
            (n, frames),
            (self.tokens, width, network.read()),
            scale,
        )?;
        tape.layer(
            name::INPUT,
            cost::linear(tokens, network.config.token(), dim),
        );
        tape.product(&ProductOp::linear(
            &network.input,
            (self.tokens, width),
            self.h,
            tokens,
        ))?;
        for layer in &network.layers {
            self.layer(&mut tape, element, layer, (n, frames, dim))?;
        }
        tape.layer(
            name::OUTPUT,
            cost::norm(tokens * dim, dim) + cost::output(tokens, dim),
        );
        let pixels = [
            MODEL_SIZE.width as f32 / refine.width as f32,
            MODEL_SIZE.height as f32 / refine.height as f32,
        ];
        let (weight, bias) = &network.output;
        let h = (self.h, tokens, dim);
        tape.output(
            element,
            h,
            &network.norm_out,
            weight,
            bias,
            self.state,
            pixels,
        )?;
        Ok(tape)
    }

    /// Both encodings of every correlation into the first columns of the tokens (paper, section 3.2).
    fn encode_correlation(
        &self,
        tape: &mut Tape<Cost>,
        network: &Network,
        tokens: usize,
    ) -> Result<()> {
        let element = network.element;
        let strict = element == Element::F32;
        let (outputs, ld) = (network.config.correlation_outputs(), network.token());
        let spent = cost::encode_correlation(&network.config, tokens) * 3;
        tape.layer(name::ENCODE_CORRELATION, spent + cost::volume(tokens) * 3);
        let pictures = 2 * tokens;
        let (mut x, mut side, mut channels) = (self.volume, SUPPORT, CORRELATION_CHANNELS);
        let last = network.correlation.len() - 1;
        for (k, weight) in network.correlation.iter().enumerate() {
            let (_, c_out, kernel, stride) = network.config.correlation[k];
            let window = Window::same(side, side, kernel, stride);
            let pixels = window.out[0] * window.out[1];
            let rows = pictures * pixels;
            let own = self.encoded[k];
            // The last layer has one pixel a picture: its rows go straight into the tokens, first role and then second.
            let (out, ld_out, out_batch, period, step) = if k == last {
                (self.tokens, ld, 2 * outputs, tokens, outputs)
            } else {
                (own, c_out, rows * c_out, rows, 0)
            };
            let op = ProductOp {
                weight,
                x,
                ld_x: channels,
                x_batch: pictures * side * side * channels,
                frames: pictures,
                window,
                residual: None,
                out,
                ld_out,
                out_batch,
                group_rows: pixels,
                gelu: false,
                period: if k == last { period } else { 0 },
                period_step: step,
            };
            if strict {
                tape.product(&ProductOp {
                    out: own,
                    ld_out: c_out,
                    out_batch: rows * c_out,
                    group_rows: 0,
                    period: 0,
                    ..op
                })?;
                let Some(affine) = weight.norm() else {
                    candle_core::bail!("a layer of the correlation encoder has no norm")
                };
                tape.group_norm_relu(&GroupNorm {
                    affine,
                    x: own,
                    x_batch: rows * c_out,
                    batch: 3,
                    rows,
                    pixels,
                    c: c_out,
                    out,
                    out_batch,
                    ld: ld_out,
                    period,
                    step,
                })?;
            } else {
                tape.product(&op)?;
            }
            (x, side, channels) = (own, window.out[0], c_out);
        }
        Ok(())
    }

    /// A pre-norm transformer layer over the frames of each track.
    fn layer(
        &self,
        tape: &mut Tape<Cost>,
        element: Element,
        layer: &Layer,
        (n, frames, dim): (usize, usize, usize),
    ) -> Result<()> {
        let tokens = n * frames;
        let norm = cost::norm(tokens * dim, dim);
        tape.layer(name::NORM, norm);
        tape.layer_norm(element, self.h, (tokens, dim), &layer.norm_1, self.normed)?;
        tape.layer(name::QKV, cost::linear(tokens, dim, 3 * dim));
        tape.product(&ProductOp::linear(
            &layer.qkv,
            (self.normed, dim),
            self.qkv,
            tokens,
        ))?;
        tape.layer(name::ATTENTION, cost::attention(n, frames, dim));
        let attention = Attention {
            heads: dim / HEAD,
            slope_base: SLOPE_BASE,
        };
        tape.attention(element, self.qkv, (n, frames), attention, self.mixed)?;
        tape.layer(
            name::PROJECT,
            cost::linear(tokens, dim, dim) + cost::residual(tokens * dim),
        );
        tape.product(&ProductOp {
            residual: Some((self.h, dim)),
            ..ProductOp::linear(&layer.project, (self.mixed, dim), self.h, tokens)
        })?;
        tape.layer(name::NORM, norm);
        tape.layer_norm(element, self.h, (tokens, dim), &layer.norm_2, self.normed)?;
        tape.layer(name::DENSE, cost::dense(tokens, dim));
        tape.product(&ProductOp {
            gelu: true,
            ..ProductOp::linear(&layer.dense_0, (self.normed, dim), self.wide, tokens)
        })?;
        tape.product(&ProductOp {
            residual: Some((self.h, dim)),
            ..ProductOp::linear(&layer.dense_2, (self.wide, 4 * dim), self.h, tokens)
        })
    }
}

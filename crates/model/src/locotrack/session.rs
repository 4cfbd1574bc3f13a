//! One clip: frames in, then queries through all of them.

use candle_core::{Device, Tensor};
use track_kernels::{initial_tracks, sample_support};
use track_profile::Profiler;

use super::config::{ITERATIONS, LEVEL_NAMES, MODEL_SIZE};
use super::cost::{self, name};
use super::encoder::Grids;
use super::layers::{Layers, Place};
use super::refine::State;
use super::{LocoTrack, check_queries, count_frames, in_grid, own_frame, to_input};
use crate::{
    Context, Error, PointTracker, Query, RawTracks, Result, Session, SessionOptions, Size, Stage,
};

/// Frames encoded by one piece of work: enough for two cores, and activations that stay in a large cache.
pub(super) const ENCODED_TOGETHER: usize = 4;
/// Tokens (queries × frames) of a chunk, where the caller does not choose. The widest activation then stays
/// below 32 MB, up to which the allocator hands memory out again without giving it back to the system between.
const CHUNK_TOKENS: usize = 4096;

/// Queries refined together.
pub(super) fn query_chunk(wanted: Option<usize>, frames: usize) -> usize {
    wanted.unwrap_or(CHUNK_TOKENS / frames.max(1)).max(1)
}

/// A clip's grids at one resolution, frames appended piece by piece and joined when they are needed.
#[derive(Debug, Default)]
struct ClipGrids {
    pieces: Vec<Grids>,
}

impl ClipGrids {
    /// All frames so far. Joined level by level, so that only one level is ever held twice.
    fn join(&mut self, profiler: &Profiler) -> candle_core::Result<Option<Grids>> {
        if self.pieces.len() > 1 {
            let values = self.pieces.iter().flat_map(Grids::levels);
            let cost = cost::copy(values.map(Tensor::elem_count).sum());
            let _layer = profiler.layer(name::JOIN, cost);
            let mut parts: [Vec<Tensor>; 3] = Default::default();
            for piece in self.pieces.drain(..) {
                for (part, level) in
                    parts
                        .iter_mut()
                        .zip([piece.hires, piece.lowres, piece.highest])
                {
                    part.push(level);
                }
            }
            let [hires, lowres, highest] = parts;
            let cat = |level: Vec<Tensor>| Tensor::cat(&level, 0);
            self.pieces.push(Grids {
                hires: cat(hires)?,
                lowres: cat(lowres)?,
                highest: cat(highest)?,
            });
        }
        Ok(self.pieces.first().cloned())
    }
}

pub(super) struct LocoTrackSession<'a> {
    model: &'a LocoTrack,
    clip: Size,
    input: Size,
    refine: Size,
    options: SessionOptions,
    context: Context<'a>,
    frames: usize,
    /// At 256×256.
    first: ClipGrids,
    /// At the refinement resolution, where that is another.
    fine: ClipGrids,
}

impl<'a> LocoTrackSession<'a> {
    pub(super) fn new(
        model: &'a LocoTrack,
        clip: Size,
        input: Size,
        refine: Size,
        options: SessionOptions,
        context: Context<'a>,
    ) -> Self {
        let (first, fine) = Default::default();
        Self {
            model,
            clip,
            input,
            refine,
            options,
            context,
            frames: 0,
            first,
            fine,
        }
    }

    /// Refuses a run that would take more than it may.
    fn check_memory(&self, frames: usize, queries: usize) -> Result<()> {
        let needed = self.model.memory(self.clip, frames, queries, &self.options);
        self.options.check_memory(needed)
    }

    /// The layers of a forward pass, and what they work on.
    fn layers(&self, place: Place) -> Layers<'_> {
        Layers {
            profiler: &self.context.profiler,
            check_finite: self.options.check_finite,
            place,
        }
    }

    fn supports(
        &self,
        queries: &[Query],
        grids: &Grids,
        layers: &Layers<'_>,
    ) -> Result<[Tensor; 3]> {
        let sample = |grid: &Tensor| {
            let (_, height, width, _) = grid.dims4()?;
            let at: Vec<_> = queries
                .iter()
                .map(|q| in_grid(q, [height, width], self.clip))
                .collect();
            let cost = cost::support(at.len(), grid.dim(3)?);
            layers.run(name::SUPPORT, cost, || sample_support(grid, &at))
        };
        Ok([
            sample(&grids.hires)?,
            sample(&grids.lowres)?,
            sample(&grids.highest)?,
        ])
    }

    /// The first estimate, and the query's own position on its own frame.
    fn start(
        &self,
        queries: &[Query],
        grids: &Grids,
        supports: &[Tensor; 3],
        layers: &Layers<'_>,
    ) -> Result<State> {
        let centre = |support: &Tensor| {
            support
                .narrow(1, 3, 1)?
                .narrow(2, 3, 1)?
                .contiguous()?
                .flatten_from(1)
        };
        let (_, height, width, c_hi) = grids.hires.dims4()?;
        let (_, h_low, w_low, c_low) = grids.lowres.dims4()?;
        let cost = cost::cost_volume(
            queries.len(),
            self.frames,
            (h_low * w_low, c_low),
            (height * width, c_hi),
        );
        let found = layers.run(name::COST_VOLUME, cost, || {
            initial_tracks(
                &self.model.cost_head,
                (&grids.lowres, &centre(&supports[1])?),
                (&grids.hires, &centre(&supports[0])?),
            )
        })?;
        let device = found.positions.device().clone();
        let cell = [
            MODEL_SIZE.width as f32 / width as f32,
            MODEL_SIZE.height as f32 / height as f32,
        ];
        let positions = found
            .positions
            .broadcast_mul(&Tensor::new(&cell, &device)?)?;
        // Later iterations move the query's own frame like any other.
        let n = queries.len();
        let mut own = vec![0u8; n * self.frames * 2];
        let mut at = vec![0f32; n * self.frames * 2];
        for (i, query) in queries.iter().enumerate() {
            let k = (i * self.frames + own_frame(query, self.frames)) * 2;
            own[k..k + 2].fill(1);
            at[k] = query.x * MODEL_SIZE.width as f32 / self.clip.width as f32;
            at[k + 1] = query.y * MODEL_SIZE.height as f32 / self.clip.height as f32;
        }
        let shape = (n, self.frames, 2);
        let own = Tensor::from_vec(own, shape, &device)?;
        let positions = own.where_cond(&Tensor::from_vec(at, shape, &device)?, &positions)?;
        Ok(State {
            positions,
            occlusion: found.occlusion,
            expected_dist: found.expected_dist,
        })
    }
}

impl Session for LocoTrackSession<'_> {
    fn push(&mut self, frames: &Tensor) -> Result<()> {
        let n = count_frames(frames, self.clip)?;
        self.check_memory(self.frames + n, 1)?;
        for first in (0..n).step_by(ENCODED_TOGETHER) {
            self.context.check()?;
            let count = ENCODED_TOGETHER.min(n - first);
            let layers = self.layers(Place::Frames {
                first: self.frames,
                end: self.frames + count,
            });
            let part = frames.narrow(0, first, count)?.contiguous()?;
            // The clip is resized to what is fed in, and that to what each stage works on: twice where both
            // differ, as a caller who resized the clip would have it.
            let resized = self.input != self.clip;
            let values = count * self.input.width * self.input.height * 3;
            let cost = cost::resize(part.elem_count(), if resized { values } else { 0 }, resized);
            let fed = layers.run(name::RESIZE, cost, || {
                track_kernels::resize_bilinear(&part, self.input.height, self.input.width)
            })?;
            let encode = |size: Size| {
                let values = count * size.width * size.height * 3;
                let cost = cost::resize(0, values, size != self.input);
                let x = layers.run(name::RESIZE, cost, || {
                    to_input(&fed, size)?.to_device(&self.model.device)
                })?;
                self.model.encoder.forward(&x, &layers)
            };
            let first = encode(MODEL_SIZE)?;
            let fine = match self.refine {
                MODEL_SIZE => None,
                size => Some(encode(size)?),
            };
            self.first.pieces.push(first);
            self.fine.pieces.extend(fine);
            self.frames += count;
            self.context.observer.progress(Stage::Encode {
                frames: self.frames,
            });
        }
        Ok(())
    }

    fn frames(&self) -> usize {
        self.frames
    }

    fn track(&mut self, queries: &[Query]) -> Result<RawTracks> {
        let Some(first) = self.first.join(&self.context.profiler)? else {
            return Err(Error::NoFrames);
        };
        let fine = self.fine.join(&self.context.profiler)?;
        check_queries(queries, self.frames)?;
        self.check_memory(self.frames, queries.len())?;
        let chunk = query_chunk(self.options.query_chunk, self.frames);
        let total = queries.len().div_ceil(chunk) * (1 + ITERATIONS);
        let mut done = 0;
        let mut step = || {
            done += 1;
            self.context.observer.progress(Stage::Track { done, total });
            self.context.check()
        };
        let mut states = Vec::new();
        for (k, queries) in queries.chunks(chunk).enumerate() {
            let layers = |iteration: usize| {
                let (first, end) = (k * chunk, k * chunk + queries.len());
                self.layers(Place::Points {
                    first,
                    end,
                    iteration,
                })
            };
            let supports = self.supports(queries, &first, &layers(0))?;
            let mut state = self.start(queries, &first, &supports, &layers(0))?;
            self.show_start(&first, &supports);
            self.show(0, &state)?;
            step()?;
            let (grids, supports) = match &fine {
                Some(fine) => (fine, self.supports(queries, fine, &layers(1))?),
                None => (&first, supports),
            };
            for iteration in 1..=ITERATIONS {
                state = self.model.refiner.iterate(
                    &state,
                    grids,
                    &supports,
                    self.refine,
                    &layers(iteration),
                )?;
                self.show(iteration, &state)?;
                step()?;
            }
            states.push(state);
        }
        self.collect(&states)
    }
}

impl LocoTrackSession<'_> {
    fn show_start(&self, grids: &Grids, supports: &[Tensor; 3]) {
        if self.context.observer.wants_stages() {
            let levels = grids.levels().into_iter().zip(supports);
            for (name, (grid, support)) in LEVEL_NAMES.into_iter().zip(levels) {
                self.context.show_level(name, grid, support);
            }
        }
    }

    fn show(&self, iteration: usize, state: &State) -> Result<()> {
        if self.context.observer.wants_stages() {
            let raw = self.collect(std::slice::from_ref(state))?;
            self.context.show_state(iteration, &raw);
        }
        Ok(())
    }

    /// All chunks' tracks in pixels of the clip, on the CPU.
    fn collect(&self, states: &[State]) -> Result<RawTracks> {
        let cpu = Device::Cpu;
        let join = |pick: fn(&State) -> &Tensor, shape: &[usize]| {
            if states.is_empty() {
                return Tensor::zeros(shape, candle_core::DType::F32, &cpu);
            }
            Tensor::cat(&states.iter().map(pick).collect::<Vec<_>>(), 0)?.to_device(&cpu)
        };
        let scale = [
            self.clip.width as f32 / MODEL_SIZE.width as f32,
            self.clip.height as f32 / MODEL_SIZE.height as f32,
        ];
        let positions = join(|s| &s.positions, &[0, self.frames, 2])?;
        Ok(RawTracks {
            positions: positions.broadcast_mul(&Tensor::new(&scale, &cpu)?)?,
            occlusion: join(|s| &s.occlusion, &[0, self.frames])?,
            expected_dist: join(|s| &s.expected_dist, &[0, self.frames])?,
        })
    }
}

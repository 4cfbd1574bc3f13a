//! One clip being tracked on a device.

use std::collections::HashMap;
use std::time::Duration;

use candle_core::{Device, Tensor};
use track_kernels::SUPPORT;
use track_kernels::cuda::{Element, Gpu, Span, Tape};
use track_profile::Cost;

use super::encode::{self, LEVELS, Sizes, grid_size, grid_values};
use super::follow::{FINE, FINE_QUERIES, FIRST, FIRST_QUERIES, FIRST_SUPPORT, Plan, Shape};
use super::room::Room;
use super::{GpuLocoTrack, batch, query_chunk};
use crate::locotrack::config::{ITERATIONS, LEVEL_NAMES, MODEL_SIZE};
use crate::locotrack::layers::Place;
use crate::locotrack::{check_queries, count_frames, in_grid, own_frame};
use crate::{
    Context, DeviceStats, Error, PointTracker, Query, RawTracks, Result, Session, SessionOptions,
    Size, Stage,
};

/// Grids have room for so many frames more each time that they grow.
pub(super) const GROWTH: usize = 64;

/// Device memory and what was recorded on it, for clips of one size.
#[derive(Debug)]
pub(super) struct Workspace {
    clip: Size,
    input: Size,
    refine: Size,
    room: Room,
    /// Encoders by their pictures' size and number, with the room's generation that they were recorded in.
    encoders: HashMap<(usize, usize, usize), (u64, Tape<Cost>)>,
    plans: Vec<Plan>,
}

impl Workspace {
    pub(super) fn new(gpu: &Gpu, clip: Size, input: Size, refine: Size) -> Self {
        Self {
            clip,
            input,
            refine,
            room: Room::new(gpu),
            encoders: HashMap::new(),
            plans: Vec::new(),
        }
    }

    pub(super) fn suits(&self, clip: Size, input: Size, refine: Size) -> bool {
        (self.clip, self.input, self.refine) == (clip, input, refine)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.room.bytes()
    }
}

/// Plans that are kept: whole chunks, and the last one's rest.
const PLANS: usize = 4;

pub(super) struct GpuSession<'a> {
    model: &'a GpuLocoTrack,
    workspace: Workspace,
    options: SessionOptions,
    runner: Runner<'a>,
    frames: usize,
    spans: Vec<Span>,
    uploads: Vec<Span>,
    downloads: Vec<Span>,
}

impl<'a> GpuSession<'a> {
    pub(super) fn new(
        model: &'a GpuLocoTrack,
        workspace: Workspace,
        options: SessionOptions,
        context: Context<'a>,
    ) -> Self {
        Self {
            model,
            workspace,
            runner: Runner {
                context,
                check_finite: options.check_finite,
                precision: model.precision,
                profiled: Duration::ZERO,
                launches: 0,
            },
            options,
            frames: 0,
            spans: Vec::new(),
            uploads: Vec::new(),
            downloads: Vec::new(),
        }
    }
}

impl Drop for GpuSession<'_> {
    fn drop(&mut self) {
        // A failure of the device shows at its next use.
        let _ = self.model.gpu.wait();
        let Workspace {
            clip,
            input,
            refine,
            ..
        } = self.workspace;
        let empty = Workspace::new(&self.model.gpu, clip, input, refine);
        self.model
            .give_back(std::mem::replace(&mut self.workspace, empty));
    }
}

/// Runs a session's tapes and keeps count.
struct Runner<'a> {
    context: Context<'a>,
    check_finite: bool,
    precision: crate::Precision,
    /// Device time of profiled layers so far.
    profiled: Duration,
    launches: u64,
}

impl Runner<'_> {
    /// Runs a tape: as a graph where it will be run again, launch by launch where it is measured or checked.
    fn run(&mut self, tape: &mut Tape<Cost>, place: Place, again: bool) -> Result<()> {
        self.launches += tape.launches() as u64;
        if self.check_finite {
            return match tape.first_not_finite()? {
                Some(layer) => Err(Error::NotFinite {
                    layer: layer.to_owned(),
                    precision: self.precision,
                    place: place.to_string(),
                }),
                None => Ok(()),
            };
        }
        if self.context.profiler.is_on() {
            let mut end = Duration::ZERO;
            for time in tape.run_timed()? {
                let start = self.profiled + time.start;
                self.context
                    .profiler
                    .record(time.name, start, time.time, time.cost);
                end = time.start + time.time;
            }
            self.profiled += end;
        } else if again {
            tape.run()?;
        } else {
            tape.run_once()?;
        }
        Ok(())
    }
}

impl GpuSession<'_> {
    fn check_memory(&self, frames: usize, queries: usize) -> Result<()> {
        let clip = self.workspace.clip;
        let needed = self.model.memory(clip, frames, queries, &self.options);
        self.options.check_memory(needed)
    }

    /// Encodes the `count` frames that lie in the buffer "frames".
    fn encode(&mut self, count: usize) -> Result<()> {
        let (model, workspace) = (self.model, &mut self.workspace);
        let place = Place::Frames {
            first: self.frames,
            end: self.frames + count,
        };
        let watch = model.gpu.stopwatch()?;
        let size = model.network.element.size();
        let works = [
            Some((MODEL_SIZE, FIRST)),
            (workspace.refine != MODEL_SIZE).then_some((workspace.refine, FINE)),
        ];
        for (work, grids) in works.into_iter().flatten() {
            let capacity = (self.frames + count).next_multiple_of(GROWTH);
            for (level, name) in grids.into_iter().enumerate() {
                let bytes = grid_values(work, level) * size;
                workspace
                    .room
                    .grow(name, capacity * bytes, self.frames * bytes)?;
            }
            let key = (work.width, work.height, count);
            let recorded = workspace
                .encoders
                .get(&key)
                .is_some_and(|(generation, _)| *generation == workspace.room.generation());
            if !recorded {
                let sizes = Sizes {
                    clip: workspace.clip,
                    input: workspace.input,
                    work,
                };
                let room = &mut workspace.room;
                let tape = encode::record(&model.gpu, &model.network, room, sizes, count)?;
                workspace.encoders.insert(key, (room.generation(), tape));
            }
            if let Some((_, tape)) = workspace.encoders.get_mut(&key) {
                self.runner.run(tape, place, true)?;
            }
            let part = (self.frames, count);
            let mut publish = encode::publish(
                &model.gpu,
                &model.network,
                &workspace.room,
                work,
                part,
                grids,
            )?;
            self.runner.run(&mut publish, place, false)?;
        }
        self.spans.push(watch.stop()?);
        self.frames += count;
        Ok(())
    }

    /// Writes a chunk's queries where the tapes read them.
    fn place_queries(&self, queries: &[Query]) -> Result<()> {
        let workspace = &self.workspace;
        let (clip, room) = (workspace.clip, &workspace.room);
        let bytes =
            |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
        let sets = [
            Some((FIRST_QUERIES, MODEL_SIZE)),
            (workspace.refine != MODEL_SIZE).then_some((FINE_QUERIES, workspace.refine)),
        ];
        for (names, work) in sets.into_iter().flatten() {
            for (level, name) in names.into_iter().enumerate() {
                let size = grid_size(work, level);
                let at: Vec<f32> = queries
                    .iter()
                    .flat_map(|q| in_grid(q, size, clip))
                    .collect();
                room.buffer(name)?.write(0, &bytes(&at))?;
            }
        }
        let own: Vec<u8> = queries
            .iter()
            .flat_map(|q| (own_frame(q, self.frames) as i32).to_le_bytes())
            .collect();
        room.buffer("own frame")?.write(0, &own)?;
        let position: Vec<f32> = queries
            .iter()
            .flat_map(|q| {
                let [_, y, x] = in_grid(q, [MODEL_SIZE.height, MODEL_SIZE.width], clip);
                [x, y]
            })
            .collect();
        room.buffer("own position")?.write(0, &bytes(&position))?;
        Ok(())
    }

    /// The tapes for such a chunk: recorded before, or now.
    fn plan(&mut self, n: usize) -> Result<usize> {
        let (model, frames, workspace) = (self.model, self.frames, &mut self.workspace);
        let shape = Shape {
            n,
            frames,
            refine: workspace.refine,
        };
        let generation = workspace.room.generation();
        workspace.plans.retain(|p| p.generation == generation);
        if let Some(i) = workspace.plans.iter().position(|p| p.shape == shape) {
            return Ok(i);
        }
        if workspace.plans.len() >= PLANS {
            model.gpu.wait()?;
            workspace.plans.remove(0);
        }
        let plan = Plan::new(&model.gpu, &model.network, &mut workspace.room, shape)?;
        workspace.plans.push(plan);
        Ok(workspace.plans.len() - 1)
    }

    /// The state of the chunk on the device: positions in pixels of the clip, and the logits.
    fn state(&self, n: usize) -> Result<RawTracks> {
        let (room, clip, cpu) = (&self.workspace.room, self.workspace.clip, Device::Cpu);
        let tracks = n * self.frames;
        let scale = [
            clip.width as f32 / MODEL_SIZE.width as f32,
            clip.height as f32 / MODEL_SIZE.height as f32,
        ];
        let mut positions = room.buffer("positions")?.values(Element::F32, tracks * 2)?;
        for (i, v) in positions.iter_mut().enumerate() {
            *v *= scale[i % 2];
        }
        let logits = |name| -> Result<Tensor> {
            let values = room.buffer(name)?.values(Element::F32, tracks)?;
            Ok(Tensor::from_vec(values, (n, self.frames), &cpu)?)
        };
        Ok(RawTracks {
            positions: Tensor::from_vec(positions, (n, self.frames, 2), &cpu)?,
            occlusion: logits("occlusion")?,
            expected_dist: logits("expected")?,
        })
    }

    fn show(&self, iteration: usize, n: usize) -> Result<()> {
        let context = &self.runner.context;
        if context.observer.wants_stages() {
            if iteration == 0 {
                self.show_start(n)?;
            }
            context.show_state(iteration, &self.state(n)?);
        }
        Ok(())
    }

    fn show_start(&self, n: usize) -> Result<()> {
        let (room, element) = (&self.workspace.room, self.model.network.element);
        for (level, name) in LEVEL_NAMES.into_iter().enumerate() {
            let ([h, w], c) = (grid_size(MODEL_SIZE, level), LEVELS[level].1);
            let values = |name, shape: &[usize]| -> Result<Tensor> {
                let values = room.buffer(name)?.values(element, shape.iter().product())?;
                Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
            };
            let grid = values(FIRST[level], &[self.frames, h, w, c])?;
            let support = values(FIRST_SUPPORT[level], &[n, SUPPORT, SUPPORT, c])?;
            self.runner.context.show_level(name, &grid, &support);
        }
        Ok(())
    }
}

impl Session for GpuSession<'_> {
    fn push(&mut self, frames: &Tensor) -> Result<()> {
        let n = count_frames(frames, self.workspace.clip)?;
        let Workspace {
            clip,
            input,
            refine,
            ..
        } = self.workspace;
        let frame = clip.width * clip.height * 3;
        let together = batch(input, refine) * frame;
        self.workspace.room.take("frames", together)?;
        self.check_memory(self.frames + n, 1)?;
        let bytes = frames.flatten_all()?.to_vec1::<u8>()?;
        for part in bytes.chunks(together) {
            self.runner.context.check()?;
            let watch = self.model.gpu.stopwatch()?;
            self.workspace.room.buffer("frames")?.write(0, part)?;
            self.uploads.push(watch.stop()?);
            self.runner.launches += 1;
            self.encode(part.len() / frame)?;
            self.runner.context.observer.progress(Stage::Encode {
                frames: self.frames,
            });
        }
        Ok(())
    }

    fn frames(&self) -> usize {
        self.frames
    }

    fn track(&mut self, queries: &[Query]) -> Result<RawTracks> {
        if self.frames == 0 {
            return Err(Error::NoFrames);
        }
        check_queries(queries, self.frames)?;
        self.check_memory(self.frames, queries.len())?;
        let chunk = query_chunk(self.options.query_chunk, self.frames);
        let total = queries.len().div_ceil(chunk) * (1 + ITERATIONS);
        let mut done = 0;
        let mut parts = Vec::new();
        for (k, queries) in queries.chunks(chunk).enumerate() {
            let n = queries.len();
            let plan = self.plan(n)?;
            self.place_queries(queries)?;
            let watch = self.model.gpu.stopwatch()?;
            for step in 0..=ITERATIONS {
                self.runner.context.check()?;
                let place = Place::Points {
                    first: k * chunk,
                    end: k * chunk + n,
                    iteration: step,
                };
                let plan = &mut self.workspace.plans[plan];
                let tape = if step == 0 {
                    &mut plan.start
                } else {
                    &mut plan.iterate
                };
                self.runner.run(tape, place, true)?;
                self.show(step, n)?;
                done += 1;
                let observer = self.runner.context.observer;
                observer.progress(Stage::Track { done, total });
            }
            self.spans.push(watch.stop()?);
            let watch = self.model.gpu.stopwatch()?;
            parts.push(self.state(n)?);
            self.downloads.push(watch.stop()?);
            self.runner.launches += 3;
        }
        self.runner.context.check()?;
        join(&parts, self.frames)
    }

    fn device_stats(&self) -> Option<DeviceStats> {
        let sum =
            |spans: &[Span]| -> Option<Duration> { spans.iter().map(|s| s.elapsed().ok()).sum() };
        Some(DeviceStats {
            upload: sum(&self.uploads)?,
            model: sum(&self.spans)?,
            download: sum(&self.downloads)?,
            launches: self.runner.launches,
            memory_bytes: self.workspace.bytes() + self.model.network.bytes(),
        })
    }
}

/// All chunks' tracks.
fn join(parts: &[RawTracks], frames: usize) -> Result<RawTracks> {
    let cat = |pick: fn(&RawTracks) -> &Tensor, empty: &[usize]| -> Result<Tensor> {
        if parts.is_empty() {
            return Ok(Tensor::zeros(empty, candle_core::DType::F32, &Device::Cpu)?);
        }
        Ok(Tensor::cat(&parts.iter().map(pick).collect::<Vec<_>>(), 0)?)
    };
    Ok(RawTracks {
        positions: cat(|p| &p.positions, &[0, frames, 2])?,
        occlusion: cat(|p| &p.occlusion, &[0, frames])?,
        expected_dist: cat(|p| &p.expected_dist, &[0, frames])?,
    })
}

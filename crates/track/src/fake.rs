//! A model for tests that need none: points drift by a pixel to the right with each frame.

use candle_core::{Device, Tensor};
use track_model::{
    Context, ModelKind, PointTracker, Query, RawTracks, Session, SessionOptions, Size, Stage,
};

use crate::{Tracker, TrackerBuilder, WeightsRecord};

/// Bytes per frame that the fake claims to need.
pub(crate) const BYTES_PER_FRAME: u64 = 1000;

#[derive(Debug)]
struct Drift;

struct DriftSession<'a> {
    size: Size,
    context: Context<'a>,
    frames: usize,
}

impl PointTracker for Drift {
    fn kind(&self) -> ModelKind {
        ModelKind::LocoTrackSmall
    }

    fn session<'a>(
        &'a self,
        size: Size,
        _options: &SessionOptions,
        context: Context<'a>,
    ) -> track_model::Result<Box<dyn Session + 'a>> {
        Ok(Box::new(DriftSession {
            size,
            context,
            frames: 0,
        }))
    }

    fn memory(&self, _: Size, frames: usize, _: usize, _: &SessionOptions) -> u64 {
        frames as u64 * BYTES_PER_FRAME
    }
}

impl Session for DriftSession<'_> {
    fn push(&mut self, frames: &Tensor) -> track_model::Result<()> {
        let (n, h, w, _) = frames.dims4()?;
        assert_eq!((w, h), (self.size.width, self.size.height));
        self.frames += n;
        let frames = self.frames;
        self.context.observer.progress(Stage::Encode { frames });
        if self.context.observer.cancelled() {
            return Err(track_model::Error::Cancelled);
        }
        Ok(())
    }

    fn frames(&self) -> usize {
        self.frames
    }

    fn track(&mut self, queries: &[Query]) -> track_model::Result<RawTracks> {
        let (n, t) = (queries.len(), self.frames);
        let positions: Vec<f32> = queries
            .iter()
            .flat_map(|q| (0..t).flat_map(move |f| [q.x + f as f32 - q.t, q.y]))
            .collect();
        let stage = Stage::Track { done: 1, total: 1 };
        self.context.observer.progress(stage);
        let logits = Tensor::full(-4f32, (n, t), &Device::Cpu)?;
        Ok(RawTracks {
            positions: Tensor::from_vec(positions, (n, t, 2), &Device::Cpu)?,
            occlusion: logits.clone(),
            expected_dist: logits,
        })
    }
}

/// A tracker around the fake.
pub(crate) fn tracker(builder: &TrackerBuilder) -> Tracker {
    let weights = WeightsRecord {
        name: "none".into(),
        sha256: String::new(),
    };
    builder
        .with_model(
            Box::new(Drift),
            weights,
            (track_model::Device::Cpu, "cpu".into()),
        )
        .unwrap()
}

//! A forward pass as a list of launches.

use std::time::Duration;

use candle_core::Result;

use super::device::Replay;
use super::{Element, Gpu};

/// One kernel launch.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory.
    pub(crate) shared: u32,
    /// The kernel's one argument, as it lies in memory.
    pub(crate) params: Vec<u64>,
    /// Which layer it belongs to.
    pub(crate) layer: usize,
    /// What it writes, for [`Tape::first_not_finite`].
    pub(crate) result: Written,
}

/// Where a launch's result lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) at: u64,
    pub(crate) values: usize,
    pub(crate) element: Element,
}

/// A layer of a tape with what it spends.
#[derive(Debug, Clone)]
struct Layer<C> {
    name: &'static str,
    cost: C,
}

/// When a layer's call ran on the device.
#[derive(Debug, Clone, Copy)]
pub struct LayerTime<C> {
    /// The layer.
    pub name: &'static str,
    /// Its cost, as it was recorded.
    pub cost: C,
    /// Since the tape's start.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

/// Launches in order, under the names of the layers that they belong to, each with a cost of type `C`.
///
/// Addresses and shapes are fixed when it is recorded. The first run records a CUDA graph, later ones replay it.
#[derive(Debug)]
pub struct Tape<C> {
    gpu: Gpu,
    steps: Vec<Step>,
    layers: Vec<Layer<C>>,
    graph: Option<Box<dyn Replay>>,
}

impl<C: Copy> Tape<C> {
    /// An empty tape.
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            steps: Vec::new(),
            layers: Vec::new(),
            graph: None,
        }
    }

    /// The device that it runs on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Launches recorded from here on belong to a call of this layer.
    pub fn layer(&mut self, name: &'static str, cost: C) {
        self.layers.push(Layer { name, cost });
    }

    /// Launches in a run.
    pub fn launches(&self) -> usize {
        self.steps.len()
    }

    /// Runs it; returns before it is done.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn run(&mut self) -> Result<()> {
        match &self.graph {
            Some(graph) => graph.replay(),
            None => {
                let graph = self.gpu.0.record(&self.steps)?;
                graph.replay()?;
                self.graph = Some(graph);
                Ok(())
            }
        }
    }

    /// Launches one by one, without recording a graph: for what runs once.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn run_once(&self) -> Result<()> {
        self.gpu.0.launch(&self.steps)
    }

    /// Runs it launch by launch between device events; waits. Gives the time of each layer's call.
    ///
    /// # Errors
    /// A driver or a launch that fails.
    pub fn run_timed(&self) -> Result<Vec<LayerTime<C>>> {
        let marks = self.gpu.0.launch_timed(&self.steps)?;
        let micros = |us: f64| Duration::from_secs_f64(us.max(0.0) * 1e-6);
        let mut times: Vec<LayerTime<C>> = Vec::with_capacity(self.layers.len());
        let mut last = usize::MAX;
        for (i, step) in self.steps.iter().enumerate() {
            let (start, end) = (micros(marks[i]), micros(marks[i + 1]));
            if step.layer == last
                && let Some(time) = times.last_mut()
            {
                time.time = end.saturating_sub(time.start);
            } else {
                let layer = &self.layers[step.layer];
                times.push(LayerTime {
                    name: layer.name,
                    cost: layer.cost,
                    start,
                    time: end.saturating_sub(start),
                });
                last = step.layer;
            }
        }
        Ok(times)
    }

    /// Runs it launch by launch and looks at every result: the first layer that wrote a value that is not finite.
    ///
    /// # Errors
    /// A driver or a launch that fails.
    pub fn first_not_finite(&self) -> Result<Option<&'static str>> {
        for step in &self.steps {
            self.gpu.0.launch(std::slice::from_ref(step))?;
            let written = step.result;
            let mut bytes = vec![0; written.values * written.element.size()];
            self.gpu.0.download(written.at, &mut bytes)?;
            if written
                .element
                .decode(&bytes)
                .iter()
                .any(|v| !v.is_finite())
            {
                return Ok(Some(self.layers[step.layer].name));
            }
        }
        Ok(None)
    }

    /// Adds a launch to the current layer.
    pub(crate) fn push<P: Copy>(
        &mut self,
        kernel: String,
        grid: [usize; 3],
        threads: usize,
        shared: usize,
        params: &P,
        result: Written,
    ) {
        // Kernels take their argument from 8-byte words, so the struct is copied into such.
        let bytes = std::mem::size_of::<P>();
        let mut words = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: `params` is a plain `repr(C)` value of `bytes` bytes and `words` has room for them.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::from_ref(params).cast::<u8>(),
                words.as_mut_ptr().cast::<u8>(),
                bytes,
            );
        }
        self.steps.push(Step {
            kernel,
            grid: grid.map(|n| n as u32),
            threads: threads as u32,
            shared: shared as u32,
            params: words,
            layer: self.layers.len().saturating_sub(1),
            result,
        });
    }
}

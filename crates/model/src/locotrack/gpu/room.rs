//! Device memory that is kept between clips.

use std::collections::HashMap;

use candle_core::Result;
use track_kernels::cuda::{Buffer, Gpu, Slice};

/// Buffers by name. They grow and never shrink, so that clips of a size seen before allocate nothing.
#[derive(Debug)]
pub(super) struct Room {
    gpu: Gpu,
    buffers: HashMap<&'static str, Buffer>,
    generation: u64,
}

impl Room {
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self {
            gpu: gpu.clone(),
            buffers: HashMap::new(),
            generation: 0,
        }
    }

    /// A buffer of at least so many bytes. Larger than before, it is a new one: what it held is lost, and everything
    /// recorded on the old one is void.
    pub(super) fn take(&mut self, name: &'static str, bytes: usize) -> Result<Slice> {
        if let Some(buffer) = self.buffers.get(name)
            && buffer.bytes() >= bytes
        {
            return Ok(buffer.all());
        }
        self.gpu.wait()?;
        self.buffers.remove(name);
        self.generation += 1;
        let buffer = Buffer::new(&self.gpu, bytes)?;
        // Padding is never written, and must not be a NaN that a product spreads.
        buffer.fill(0)?;
        Ok(self.buffers.entry(name).or_insert(buffer).all())
    }

    /// The same, with the first `kept` bytes of the old buffer.
    pub(super) fn grow(&mut self, name: &'static str, bytes: usize, kept: usize) -> Result<Slice> {
        if let Some(old) = self.buffers.get(name)
            && old.bytes() < bytes
        {
            let buffer = Buffer::new(&self.gpu, bytes)?;
            buffer.copy_from(old, kept)?;
            self.gpu.wait()?;
            self.generation += 1;
            self.buffers.insert(name, buffer);
        }
        self.take(name, bytes)
    }

    /// A buffer that was taken.
    pub(super) fn buffer(&self, name: &'static str) -> Result<&Buffer> {
        match self.buffers.get(name) {
            Some(buffer) => Ok(buffer),
            None => candle_core::bail!("the buffer {name} was never taken"),
        }
    }

    /// Changes whenever a buffer does.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of all buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.buffers.values().map(|b| b.bytes() as u64).sum()
    }
}

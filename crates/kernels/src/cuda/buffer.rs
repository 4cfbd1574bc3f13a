//! Memory on a device.

use candle_core::{Result, Tensor, bail};

use super::{Element, Gpu};

/// A part of a [`Buffer`]. It does not keep the buffer: whoever records launches on it holds the buffer as long as
/// they may run.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    at: u64,
    bytes: usize,
}

impl Slice {
    /// Its address, if it has room for so many values.
    pub(crate) fn room(self, values: usize, size: usize) -> Result<u64> {
        if values * size > self.bytes {
            bail!(
                "{values} values of {size} bytes do not fit {} bytes of device memory",
                self.bytes
            )
        }
        Ok(self.at)
    }

    /// What begins so many bytes further on.
    ///
    /// # Errors
    /// A place outside the slice.
    pub fn skip(self, bytes: usize) -> Result<Self> {
        if bytes > self.bytes {
            bail!("{bytes} is outside {} bytes of device memory", self.bytes)
        }
        Ok(Self {
            at: self.at + bytes as u64,
            bytes: self.bytes - bytes,
        })
    }
}

/// Bytes on a device, freed with the value. Launches that use it must be done by then: whoever drops buffers waits.
#[derive(Debug)]
pub struct Buffer {
    gpu: Gpu,
    at: u64,
    bytes: usize,
}

impl Buffer {
    /// Memory of so many bytes. What it holds is not defined.
    ///
    /// # Errors
    /// Not enough memory on the device.
    pub fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        // Kernels copy 16 bytes at a time; an empty buffer still has an address.
        let bytes = bytes.max(1).next_multiple_of(256);
        Ok(Self {
            gpu: gpu.clone(),
            at: gpu.0.allocate(bytes)?,
            bytes,
        })
    }

    /// Memory that holds values.
    ///
    /// # Errors
    /// Not enough memory on the device, or a failing copy.
    pub fn of(gpu: &Gpu, element: Element, values: &[f32]) -> Result<Self> {
        let buffer = Self::new(gpu, values.len() * element.size())?;
        buffer.write(0, &element.encode(values))?;
        Ok(buffer)
    }

    /// A tensor's values, as they lie in order.
    ///
    /// # Errors
    /// As [`Buffer::of`].
    pub fn of_tensor(gpu: &Gpu, element: Element, tensor: &Tensor) -> Result<Self> {
        let values = tensor
            .to_dtype(candle_core::DType::F32)?
            .flatten_all()?
            .to_vec1::<f32>()?;
        Self::of(gpu, element, &values)
    }

    /// All of it.
    pub fn all(&self) -> Slice {
        Slice {
            at: self.at,
            bytes: self.bytes,
        }
    }

    /// What begins at this byte.
    ///
    /// # Errors
    /// A place outside the buffer.
    pub fn from(&self, offset: usize) -> Result<Slice> {
        self.check(offset, 0)?;
        Ok(Slice {
            at: self.at + offset as u64,
            bytes: self.bytes - offset,
        })
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies bytes from the host to `offset`.
    ///
    /// # Errors
    /// A copy that does not fit or fails.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        self.gpu.0.upload(from, self.at + offset as u64)
    }

    /// Copies bytes from `offset` to the host, after everything launched before.
    ///
    /// # Errors
    /// A copy that does not fit or fails, or a launch before it that failed.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        self.check(offset, to.len())?;
        self.gpu.0.download(self.at + offset as u64, to)
    }

    /// The first `count` values.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn values(&self, element: Element, count: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; count * element.size()];
        self.read(0, &mut bytes)?;
        Ok(element.decode(&bytes))
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// A driver that fails.
    pub fn fill(&self, value: u8) -> Result<()> {
        self.gpu.0.fill(self.at, value, self.bytes)
    }

    /// Copies `bytes` from the start of another buffer of the device.
    ///
    /// # Errors
    /// A copy that does not fit or fails.
    pub fn copy_from(&self, other: &Buffer, bytes: usize) -> Result<()> {
        self.check(0, bytes)?;
        other.check(0, bytes)?;
        self.gpu.0.copy(other.at, self.at, bytes)
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<()> {
        if offset + bytes > self.bytes {
            bail!(
                "{bytes} bytes at {offset} are outside a buffer of {}",
                self.bytes
            )
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.gpu.0.free(self.at);
    }
}

//! The emulator as a device: memory is the host's, launches run at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use candle_core::{Result, bail};

use super::device::{Backend, DeviceInfo, Mark, Replay, TensorDesc};
use super::emulate;
use super::tape::Step;

/// Bytes on either side of an allocation that must stay as they are.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

#[derive(Debug)]
pub(crate) struct Emulator {
    info: DeviceInfo,
    memory: Memory,
}

/// Every allocation by its address: what it lies in, and its bytes. Clones are the same memory.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<HashMap<u64, Allocation>>>);

type Allocation = (Vec<u64>, usize);

impl Memory {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Allocation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses bytes that lie in no allocation.
    fn check(&self, at: u64, bytes: usize) -> Result<()> {
        let fits = self
            .all()
            .iter()
            .any(|(start, (_, size))| at >= *start && at + bytes as u64 <= start + *size as u64);
        if !fits {
            bail!("{bytes} bytes at {at:#x} are no memory of the emulator")
        }
        Ok(())
    }

    /// Whether launches have left everything around allocations alone.
    fn check_guards(&self, kernel: &str) -> Result<()> {
        let intact = u64::from_ne_bytes([GUARD_BYTE; 8]);
        for (at, (words, bytes)) in self.all().iter() {
            let first = (*at - words.as_ptr() as u64) as usize / 8;
            let ends = [&words[..first], &words[first + bytes / 8..]];
            if ends.iter().any(|end| end.iter().any(|w| *w != intact)) {
                bail!("{kernel} wrote outside its memory")
            }
        }
        Ok(())
    }

    /// Runs kernels one after the other.
    fn launch(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            // SAFETY: a step's addresses are of buffers that its tape's owner keeps.
            unsafe {
                emulate::launch(
                    &step.kernel,
                    step.grid,
                    [step.threads, 1, 1],
                    step.shared as usize,
                    &step.params,
                )
            }?;
            self.check_guards(&step.kernel)?;
        }
        Ok(())
    }
}

impl Emulator {
    pub(crate) fn new() -> Self {
        Self {
            info: DeviceInfo {
                ordinal: 0,
                name: "the emulator".to_owned(),
                capability: (8, 0),
                code: 80,
                from_ptx: false,
                driver: "none".to_owned(),
                memory: 16 << 30,
                l2: 0,
                multiprocessors: 1,
                clock_mhz: 0,
                memory_clock_mhz: 0,
            },
            memory: Memory::default(),
        }
    }
}

impl Backend for Emulator {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        let bytes = bytes.next_multiple_of(8);
        let intact = u64::from_ne_bytes([GUARD_BYTE; 8]);
        let mut words = vec![intact; (bytes + 3 * GUARD) / 8];
        // What is handed out is aligned to 256 bytes, with a guard on either side.
        let start = words.as_ptr() as u64;
        let at = (start + 1).next_multiple_of(GUARD as u64);
        let first = (at - start) as usize / 8;
        // A NaN in every precision where nothing was written yet.
        words[first..first + bytes / 8].fill(u64::MAX);
        self.memory.all().insert(at, (words, bytes));
        Ok(at)
    }

    fn free(&self, at: u64) {
        self.memory.all().remove(&at);
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<()> {
        self.memory.check(to, from.len())?;
        // SAFETY: the range lies inside one live allocation, which nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.memory.check(from, to.len())?;
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.memory.check(from, bytes)?;
        self.memory.check(to, bytes)?;
        // SAFETY: as above; ranges of different buffers.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn fill(&self, at: u64, value: u8, bytes: usize) -> Result<()> {
        self.memory.check(at, bytes)?;
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(at as *mut u8, value, bytes) };
        Ok(())
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.info.memory)
    }

    fn launch(&self, steps: &[Step]) -> Result<()> {
        self.memory.launch(steps)
    }

    fn record(&self, steps: &[Step]) -> Result<Box<dyn Replay>> {
        Ok(Box::new(Recorded {
            steps: steps.to_vec(),
            memory: self.memory.clone(),
        }))
    }

    fn launch_timed(&self, steps: &[Step]) -> Result<Vec<f64>> {
        let start = Instant::now();
        let mut marks = vec![0.0];
        for step in steps {
            self.launch(std::slice::from_ref(step))?;
            marks.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(marks)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn tensor_map(&self, _: &TensorDesc) -> Result<[u64; 16]> {
        bail!("the emulator has no copy engine")
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        Ok(Box::new(Moment(Instant::now())))
    }
}

#[derive(Debug)]
struct Recorded {
    steps: Vec<Step>,
    memory: Memory,
}

impl Replay for Recorded {
    fn replay(&self) -> Result<()> {
        self.memory.launch(&self.steps)
    }
}

#[derive(Debug)]
struct Moment(Instant);

impl Mark for Moment {
    fn since(&self, earlier: &dyn Mark) -> Result<f64> {
        match earlier.as_any().downcast_ref::<Self>() {
            Some(earlier) => Ok(self.0.duration_since(earlier.0).as_secs_f64() * 1e6),
            None => bail!("marks of two kinds of device cannot be compared"),
        }
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

//! Devices of the CUDA driver, opened at run time.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Result, bail};
use cudarc::driver::{CudaContext, CudaFunction, CudaGraph, CudaModule, CudaStream, result, sys};

use super::Element;
use super::device::{Backend, DeviceInfo, Mark, Replay, TensorDesc};
use super::tape::Step;

include!(concat!(env!("OUT_DIR"), "/device_code.rs"));

/// What makes another architecture's code run, for tests.
const FORCE: &str = "TRACK_FORCE_ARCH";

/// Every entry point that is called, here or in `cudarc`, which panics where one is missing. A library without them is no
/// driver, or one that is too old.
const NEEDED: &[&str] = include!("entries.in");

#[derive(Debug)]
struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    modules: Vec<Arc<CudaModule>>,
    functions: Mutex<HashMap<String, CudaFunction>>,
    info: DeviceInfo,
}

/// Opens the device of this number.
pub(crate) fn open(ordinal: usize) -> Result<Arc<dyn Backend>> {
    // SAFETY: opening the driver's library runs its own initialisers, which is what a driver is for.
    if !unsafe { sys::is_culib_present() } {
        bail!("no NVIDIA driver is installed (libcuda was not found)")
    }
    for name in NEEDED {
        // SAFETY: the symbol is looked up, never called through this type.
        if unsafe { sys::culib().get::<*const c_void>(name.as_bytes()) }.is_err() {
            bail!("the NVIDIA driver's library is incomplete or far too old")
        }
    }
    let context = CudaContext::new(ordinal).map_err(|e| refusal(ordinal, &e))?;
    // One stream orders everything, so nothing needs the events that would order several.
    // SAFETY: all work of a device goes through its one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().map_err(fault)?;
    let mut info = describe(&context, ordinal)?;
    let forced = forced()?;
    let images = match forced {
        Some(75) => DEVICE_CODE_PTX_75,
        Some(_) => DEVICE_CODE_PTX_80,
        None => DEVICE_CODE,
    };
    let capability = info.capability.0 * 10 + info.capability.1;
    let compiled = [90, 89, 86, 80, 75];
    // Machine code runs within its major version only; anything newer takes the newest PTX.
    let fits = |arch: &u32| *arch <= capability && arch / 10 == capability / 10;
    (info.code, info.from_ptx) = match (forced, compiled.iter().find(|a| fits(a))) {
        (Some(arch), _) => (arch, true),
        (None, Some(arch)) => (*arch, false),
        (None, None) if capability > 80 => (80, true),
        (None, None) => bail!(
            "{} has compute capability {}.{}; 7.5 (Turing: T4, RTX 20) is the oldest that is supported",
            info.name,
            info.capability.0,
            info.capability.1
        ),
    };
    let modules = images
        .iter()
        .map(|image| {
            context
                .load_module(cudarc::nvrtc::Ptx::from_binary(image.to_vec()))
                .map_err(fault)
        })
        .collect::<Result<_>>()?;
    Ok(Arc::new(Device {
        context,
        stream,
        modules,
        functions: Mutex::default(),
        info,
    }))
}

fn forced() -> Result<Option<u32>> {
    match std::env::var(FORCE).ok().as_deref() {
        None | Some("") => Ok(None),
        Some("75") => Ok(Some(75)),
        Some("80") => Ok(Some(80)),
        Some(other) => bail!("{FORCE} is '{other}'; it can be 75 or 80"),
    }
}

fn describe(context: &CudaContext, ordinal: usize) -> Result<DeviceInfo> {
    use sys::CUdevice_attribute_enum as A;
    let attribute = |a| context.attribute(a).map_err(fault);
    let mut version = 0;
    // SAFETY: the pointer is to a live integer.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .map_err(fault)?;
    let (major, minor) = context.compute_capability().map_err(fault)?;
    // SAFETY: the device belongs to a live context.
    let memory = unsafe { result::device::total_mem(context.cu_device()) }.map_err(fault)?;
    Ok(DeviceInfo {
        ordinal,
        name: context.name().map_err(fault)?,
        capability: (major as u32, minor as u32),
        code: 0,
        from_ptx: false,
        driver: format!("{}.{}", version / 1000, version % 1000 / 10),
        memory: memory as u64,
        l2: attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as u64,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        clock_mhz: attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)? as u32 / 1000,
        memory_clock_mhz: attribute(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)? as u32 / 1000,
    })
}

/// Why a device cannot be had.
fn refusal(ordinal: usize, e: &result::DriverError) -> candle_core::Error {
    let text = match e.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => "the NVIDIA driver sees no device".to_owned(),
        sys::CUresult::CUDA_ERROR_INVALID_DEVICE => {
            let count = result::device::get_count().unwrap_or(0);
            format!("there is no device {ordinal}; the NVIDIA driver sees {count}")
        }
        _ => format!("the NVIDIA driver does not answer: {}", words(e)),
    };
    candle_core::Error::Msg(text)
}

/// A driver's error, as it names it.
fn words(e: &result::DriverError) -> String {
    // A stub or a foreign library may have no words for its own number.
    match e.error_string() {
        Ok(text) if !text.is_empty() => text.to_string_lossy().into_owned(),
        _ => format!("error {}", e.0 as u32),
    }
}

fn fault(e: result::DriverError) -> candle_core::Error {
    let text = match e.0 {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => "the device is out of memory".to_owned(),
        _ => format!("the CUDA driver reports: {}", words(&e)),
    };
    candle_core::Error::Msg(text)
}

impl Device {
    fn function(&self, step: &Step) -> Result<CudaFunction> {
        let mut functions = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&step.kernel) {
            return Ok(function.clone());
        }
        for module in &self.modules {
            if let Ok(function) = module.load_function(&step.kernel) {
                // Above 48 KiB shared memory has to be asked for; the kernel's own static arrays count too.
                let attribute =
                    sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                if step.shared > 48 * 1024 {
                    function
                        .set_attribute(attribute, step.shared as i32)
                        .map_err(fault)?;
                }
                functions.insert(step.kernel.clone(), function.clone());
                return Ok(function);
            }
        }
        bail!("the device code has no kernel {}", step.kernel)
    }

    fn one(&self, step: &Step) -> Result<()> {
        let function = self.function(step)?;
        let mut arguments = [step.params.as_ptr().cast_mut().cast::<c_void>()];
        let failed = |e| candle_core::Error::Msg(format!("{}: {}", step.kernel, fault(e)));
        // SAFETY: the kernel takes one struct, which `params` holds; addresses in it belong to live buffers, whose
        // owners wait for the stream before they free them.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (step.grid[0], step.grid[1], step.grid[2]),
                (step.threads, 1, 1),
                step.shared,
                self.stream.cu_stream(),
                &mut arguments,
            )
        }
        .map_err(failed)
    }

    fn bind(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(fault)
    }
}

impl Backend for Device {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.bind()?;
        // SAFETY: the memory is only handed out as an address; kernels write before they read.
        unsafe { result::malloc_sync(bytes) }.map_err(|e| match e.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = self.free_memory().unwrap_or(0);
                candle_core::Error::Msg(format!(
                    "the device is out of memory: {:.1} GiB are needed, {:.1} GiB are free",
                    bytes as f64 / f64::from(1 << 30),
                    free as f64 / f64::from(1 << 30)
                ))
            }
            _ => fault(e),
        })
    }

    fn free(&self, at: u64) {
        // Nothing can be done about a failure here; the context's end frees everything.
        // SAFETY: `at` came from `allocate` and is freed once; freeing waits for the device.
        let _ = self
            .bind()
            .and_then(|()| unsafe { result::free_sync(at) }.map_err(fault));
    }

    fn upload(&self, from: &[u8], to: u64) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller checked the buffer's bounds; the host's memory is read before the call returns.
        unsafe { result::memcpy_htod_async(to, from, self.stream.cu_stream()) }.map_err(fault)?;
        self.wait()
    }

    fn download(&self, from: u64, to: &mut [u8]) -> Result<()> {
        self.bind()?;
        // SAFETY: as above; the wait ends before `to` is used.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) }.map_err(fault)?;
        self.wait()
    }

    fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller checked both buffers' bounds.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }
            .map_err(fault)
    }

    fn fill(&self, at: u64, value: u8, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller owns these bytes.
        unsafe { result::memset_d8_async(at, value, bytes, self.stream.cu_stream()) }.map_err(fault)
    }

    fn free_memory(&self) -> Result<u64> {
        self.bind()?;
        Ok(result::mem_get_info().map_err(fault)?.0 as u64)
    }

    fn launch(&self, steps: &[Step]) -> Result<()> {
        self.bind()?;
        steps.iter().try_for_each(|step| self.one(step))
    }

    fn record(&self, steps: &[Step]) -> Result<Box<dyn Replay>> {
        self.bind()?;
        // Functions are loaded before the capture, which allows nothing but launches.
        for step in steps {
            self.function(step)?;
        }
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(fault)?;
        let launched = steps.iter().try_for_each(|step| self.one(step));
        // The type has no name for no flags at all; this one does nothing to a graph that allocates nothing.
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = self.stream.end_capture(flags).map_err(fault);
        launched?;
        match graph? {
            Some(graph) => Ok(Box::new(Graph(graph))),
            None => bail!("the CUDA driver recorded no graph"),
        }
    }

    fn launch_timed(&self, steps: &[Step]) -> Result<Vec<f64>> {
        self.bind()?;
        let mut marks = vec![self.event()?];
        for step in steps {
            self.one(step)?;
            marks.push(self.event()?);
        }
        marks.iter().map(|mark| mark.since(&marks[0])).collect()
    }

    fn wait(&self) -> Result<()> {
        self.bind()?;
        self.stream.synchronize().map_err(fault)
    }

    fn tensor_map(&self, tensor: &TensorDesc) -> Result<[u64; 16]> {
        use sys::{
            CUtensorMapDataType_enum as Type, CUtensorMapFloatOOBfill_enum as Outside,
            CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
            CUtensorMapSwizzle_enum as Swizzle,
        };
        self.bind()?;
        let kind = match tensor.element {
            Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Element::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Element::F32 | Element::Tf32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        };
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: all arrays have at least `rank` entries; the driver only reads them and fills in `map`.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                kind,
                tensor.rank as u32,
                tensor.address as *mut c_void,
                tensor.dims.as_ptr(),
                tensor.strides.as_ptr(),
                tensor.boxes.as_ptr(),
                tensor.steps.as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                Outside::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()
        .map_err(|e| candle_core::Error::Msg(format!("{}: {tensor:?}", fault(e))))?;
        Ok(map.opaque)
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        self.bind()?;
        Ok(Box::new(self.event()?))
    }
}

impl Device {
    fn event(&self) -> Result<Event> {
        let event =
            result::event::create(sys::CUevent_flags_enum::CU_EVENT_DEFAULT).map_err(fault)?;
        let event = Event {
            event,
            context: Arc::clone(&self.context),
        };
        // SAFETY: both are alive.
        unsafe { result::event::record(event.event, self.stream.cu_stream()) }.map_err(fault)?;
        Ok(event)
    }
}

/// A recorded event.
#[derive(Debug)]
struct Event {
    event: sys::CUevent,
    context: Arc<CudaContext>,
}

// SAFETY: an event is a handle that the driver lets any thread use.
unsafe impl Send for Event {}

impl Event {
    fn since(&self, earlier: &Self) -> Result<f64> {
        self.context.bind_to_thread().map_err(fault)?;
        // SAFETY: both events are alive and recorded.
        unsafe {
            result::event::synchronize(self.event).map_err(fault)?;
            let ms = result::event::elapsed(earlier.event, self.event).map_err(fault)?;
            Ok(f64::from(ms) * 1e3)
        }
    }
}

impl Mark for Event {
    fn since(&self, earlier: &dyn Mark) -> Result<f64> {
        match earlier.as_any().downcast_ref::<Self>() {
            Some(earlier) => Self::since(self, earlier),
            None => bail!("marks of two kinds of device cannot be compared"),
        }
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is destroyed once; a failure leaves nothing to do.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

/// A captured graph.
struct Graph(CudaGraph);

// SAFETY: a graph is used by one thread at a time, which its one owner sees to.
unsafe impl Send for Graph {}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Graph")
    }
}

impl Replay for Graph {
    fn replay(&self) -> Result<()> {
        self.0.launch().map_err(fault)
    }
}

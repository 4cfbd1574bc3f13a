//! Weights in, whatever file they come in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::pickle::PthTensors;
use candle_core::safetensors::MmapedSafetensors;
use candle_core::{DType, Device, Tensor, bail};

use crate::locotrack::{Config, LocoTrack};
use crate::{Error, ModelKind, PointTracker, Precision, Result};

/// Where weights come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightSource {
    /// A `.safetensors` file, which is memory-mapped, or a PyTorch checkpoint.
    File(PathBuf),
    /// A safetensors file that is part of the program.
    Embedded {
        /// What messages call it.
        name: &'static str,
        /// The file's bytes.
        bytes: &'static [u8],
    },
}

impl WeightSource {
    fn name(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Embedded { name, .. } => PathBuf::from(name),
        }
    }
}

/// Loads weights; which model they belong to follows from their names and shapes.
///
/// # Errors
/// Weights that cannot be read, that belong to no model known here or to another than `expected`, tensors
/// that are missing, left over or misshapen, or a precision that `device` does not have.
pub fn load(
    source: &WeightSource,
    expected: Option<ModelKind>,
    device: &crate::Device,
    precision: Precision,
) -> Result<Box<dyn PointTracker>> {
    precision.check(device)?;
    let path = source.name();
    let tensors = read(source)?;
    let kind = recognise(&tensors).map_err(|reason| Error::WeightsUnknown {
        path: path.clone(),
        reason,
    })?;
    if let Some(expected) = expected
        && expected != kind
    {
        let reason = format!("they are {kind}, not {expected}");
        return Err(Error::WeightsUnknown { path, reason });
    }
    let config = Config::of(kind);
    let problems = compare(&tensors, &config.tensors());
    if !problems.is_empty() {
        return Err(Error::WeightsMismatch {
            path,
            kind,
            problems,
        });
    }
    // Weights come in as f32 and are rounded once, where they are laid out.
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.to_dtype(DType::F32)?)))
        .collect::<Result<_>>()?;
    let weights = Weights(tensors);
    match device {
        crate::Device::Cpu => Ok(Box::new(LocoTrack::new(config, &weights, &Device::Cpu)?)),
        #[cfg(any(feature = "cuda", feature = "emulate"))]
        crate::Device::Gpu(gpu) => {
            let model = crate::locotrack::GpuLocoTrack::new(config, &weights, gpu, precision)?;
            Ok(Box::new(model))
        }
    }
}

/// Checked tensors by published name.
#[derive(Debug)]
pub(crate) struct Weights(BTreeMap<String, Tensor>);

impl Weights {
    /// A tensor that the model's list names.
    pub(crate) fn get(&self, name: &str) -> candle_core::Result<&Tensor> {
        match self.0.get(name) {
            Some(tensor) => Ok(tensor),
            None => bail!("the model asks for a tensor {name} that its own list does not name"),
        }
    }

    /// Weights and biases of several layers of the same inputs, their outputs side by side.
    pub(crate) fn joined(&self, names: &[String]) -> candle_core::Result<(Tensor, Tensor)> {
        let pairs: Vec<_> = names
            .iter()
            .map(|name| self.pair(name))
            .collect::<candle_core::Result<_>>()?;
        let side_by_side = |pick: fn(&(Tensor, Tensor)) -> &Tensor| {
            Tensor::cat(&pairs.iter().map(pick).collect::<Vec<_>>(), 0)
        };
        Ok((side_by_side(|p| &p.0)?, side_by_side(|p| &p.1)?))
    }

    /// A layer's weight and bias.
    pub(crate) fn pair(&self, name: &str) -> candle_core::Result<(Tensor, Tensor)> {
        Ok((
            self.get(&format!("{name}.weight"))?.clone(),
            self.get(&format!("{name}.bias"))?.clone(),
        ))
    }
}

/// All tensors of a file on the CPU, the wrapper's prefix taken off their names.
fn read(source: &WeightSource) -> Result<BTreeMap<String, Tensor>> {
    let unreadable = |reason: &dyn std::fmt::Display| Error::WeightsUnreadable {
        path: source.name(),
        reason: one_line(reason),
    };
    let named = match source {
        WeightSource::Embedded { bytes, .. } => {
            let tensors = candle_core::safetensors::load_buffer(bytes, &Device::Cpu)
                .map_err(|e| unreadable(&e))?;
            tensors.into_iter().collect::<Vec<_>>()
        }
        WeightSource::File(path) => {
            let start = first_bytes(path).map_err(|e| unreadable(&e))?;
            // PyTorch writes zip archives; a safetensors file starts with the length of its JSON header.
            if start.starts_with(b"PK") {
                read_checkpoint(path).map_err(|e| unreadable(&e))?
            } else if start.get(8) == Some(&b'{') {
                read_safetensors(path).map_err(|e| unreadable(&e))?
            } else {
                return Err(unreadable(
                    &"it is neither a .safetensors file nor a PyTorch checkpoint (.ckpt, .pth)",
                ));
            }
        }
    };
    let strip = |name: String| {
        name.strip_prefix("model.")
            .map(str::to_owned)
            .unwrap_or(name)
    };
    Ok(named
        .into_iter()
        .map(|(name, tensor)| (strip(name), tensor))
        .collect())
}

fn first_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(9).read_to_end(&mut start)?;
    Ok(start)
}

#[allow(unsafe_code)]
fn read_safetensors(path: &Path) -> candle_core::Result<Vec<(String, Tensor)>> {
    // SAFETY: the map is only read, and dropped before this function returns. Another program that cuts the
    // file short in this moment could end the process; it cannot make it read anything else.
    let file = unsafe { MmapedSafetensors::new(path)? };
    file.tensors()
        .into_iter()
        .map(|(name, _)| Ok((name.clone(), file.load(&name, &Device::Cpu)?)))
        .collect()
}

/// A PyTorch checkpoint: the tensors themselves, or a training state that holds them under `state_dict`.
fn read_checkpoint(path: &Path) -> candle_core::Result<Vec<(String, Tensor)>> {
    let nested = PthTensors::new(path, Some("state_dict"));
    let tensors = match nested {
        Ok(tensors) if !tensors.tensor_infos().is_empty() => tensors,
        _ => PthTensors::new(path, None)?,
    };
    let mut named = Vec::new();
    for name in tensors.tensor_infos().keys() {
        if let Some(tensor) = tensors.get(name)? {
            named.push((name.clone(), tensor));
        }
    }
    if named.is_empty() {
        bail!("the checkpoint holds no tensors")
    }
    Ok(named)
}

/// Which model tensors belong to, by the ones that tell the models apart.
fn recognise(tensors: &BTreeMap<String, Tensor>) -> Result<ModelKind, String> {
    const TELLING: &str = "torch_pips_mixer.input_proj.weight";
    let known = || {
        let names: Vec<_> = ModelKind::ALL.iter().map(|kind| kind.name()).collect();
        names.join(", ")
    };
    let Some(tensor) = tensors.get(TELLING) else {
        let some: Vec<_> = tensors.keys().take(3).map(String::as_str).collect();
        return Err(format!(
            "no tensor {TELLING} among {} tensors ({}{}), so they are of no model known here ({})",
            tensors.len(),
            some.join(", "),
            if tensors.len() > 3 { ", …" } else { "" },
            known()
        ));
    };
    let dims = tensor.dims();
    ModelKind::ALL
        .into_iter()
        .find(|&kind| dims.first() == Some(&Config::of(kind).dim))
        .ok_or_else(|| {
            format!(
                "{TELLING} is {dims:?}, which is the width of no model known here ({})",
                known()
            )
        })
}

/// One phrase for each tensor that is missing, misshapen or left over.
fn compare(tensors: &BTreeMap<String, Tensor>, wanted: &[(String, Vec<usize>)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, shape) in wanted {
        match tensors.get(name) {
            None => problems.push(format!("{name} {shape:?} is missing")),
            Some(t) if t.dims() != shape.as_slice() => {
                problems.push(format!("{name} is {:?} instead of {shape:?}", t.dims()));
            }
            Some(t)
                if !matches!(
                    t.dtype(),
                    DType::F32 | DType::F16 | DType::BF16 | DType::F64
                ) =>
            {
                problems.push(format!(
                    "{name} holds {:?}, not floating-point numbers",
                    t.dtype()
                ));
            }
            Some(_) => {}
        }
    }
    let extra = tensors
        .keys()
        .filter(|name| !wanted.iter().any(|(w, _)| w == *name));
    problems.extend(extra.map(|name| format!("{name} is not part of the model")));
    problems
}

/// The first line of a message: some readers append their backtrace.
fn one_line(message: &dyn std::fmt::Display) -> String {
    message
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

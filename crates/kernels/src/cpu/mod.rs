//! What the CPU forms share: slices of tensors, the matrix product, scratch memory, vectorised loops.

pub(crate) mod math;
pub(crate) mod winograd;

use std::cell::RefCell;
use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Device, Result, Shape, Storage, Tensor, bail};
use gemm::Parallelism;

/// Whether the CPU form can take these tensors: f32, on the CPU.
pub(crate) fn suits(tensors: &[&Tensor]) -> bool {
    tensors
        .iter()
        .all(|t| t.device().is_cpu() && t.dtype() == candle_core::DType::F32)
}

/// The values of a contiguous f32 tensor on the CPU, borrowed.
struct Floats<G> {
    /// Candle's guard, whose own type belongs to a crate that it does not name.
    storage: G,
    range: Range<usize>,
}

impl<G: Deref<Target = Storage>> Deref for Floats<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.clone()],
            // `floats` let nothing else in.
            _ => &[],
        }
    }
}

/// Borrows a tensor's values in row-major order.
pub(crate) fn floats(tensor: &Tensor) -> Result<impl Deref<Target = [f32]> + Sync> {
    let (storage, layout) = tensor.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!(
            "a CPU kernel was given a tensor that is not contiguous: {:?}",
            tensor.shape()
        )
    };
    if !matches!(&*storage, Storage::Cpu(CpuStorage::F32(_))) {
        bail!(
            "a CPU kernel was given {:?} on {:?}",
            tensor.dtype(),
            tensor.device().location()
        )
    }
    Ok(Floats {
        storage,
        range: start..end,
    })
}

/// A tensor made of a kernel's result, without a copy.
pub(crate) fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// A matrix operand: element (r, c) lies at `data[r * rs + c * cs]`.
#[derive(Clone, Copy)]
pub(crate) struct Mat<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rs: usize,
    pub(crate) cs: usize,
}

impl<'a> Mat<'a> {
    /// Rows of `width` values that follow each other.
    pub(crate) fn rows(data: &'a [f32], width: usize) -> Self {
        Self {
            data,
            rs: width,
            cs: 1,
        }
    }

    /// The transpose of rows of `width` values.
    pub(crate) fn transposed(data: &'a [f32], width: usize) -> Self {
        Self {
            data,
            rs: 1,
            cs: width,
        }
    }
}

/// `dst = lhs · rhs` (or `dst += …` with `accumulate`), on the calling thread.
///
/// `lhs`: m×k, `rhs`: k×n, `dst`: m×n with rows `dst_rs` apart. Accumulates in f32.
///
/// # Panics
/// Where an operand is shorter than its shape needs: a fault in a kernel, never in its input.
#[allow(clippy::too_many_arguments)]
pub(crate) fn matmul(
    m: usize,
    n: usize,
    k: usize,
    dst: &mut [f32],
    dst_rs: usize,
    accumulate: bool,
    lhs: Mat<'_>,
    rhs: Mat<'_>,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(k > 0, "a product over nothing");
    assert!((m - 1) * dst_rs + n <= dst.len(), "dst is too short");
    assert!(
        (m - 1) * lhs.rs + (k - 1) * lhs.cs < lhs.data.len(),
        "lhs is too short"
    );
    assert!(
        (k - 1) * rhs.rs + (n - 1) * rhs.cs < rhs.data.len(),
        "rhs is too short"
    );
    // SAFETY: the assertions above bound every element that the product touches, and `dst` is exclusive.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr(),
            1,
            dst_rs as isize,
            accumulate,
            lhs.data.as_ptr(),
            lhs.cs as isize,
            lhs.rs as isize,
            rhs.data.as_ptr(),
            rhs.cs as isize,
            rhs.rs as isize,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with a buffer of `len` values that the thread keeps for the next time. Its contents are
/// whatever the last user left.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    // A stack of buffers, so that a piece of work stolen while another waits gets a buffer of its own.
    let mut buffer = SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    let result = work(&mut buffer[..len]);
    SCRATCH.with_borrow_mut(|stack| stack.push(buffer));
    result
}

/// Runs a loop compiled for the widest vectors that this processor has.
#[inline(always)]
pub(crate) fn simd<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(Vectorised(work))
}

struct Vectorised<F>(F);

impl<R, F: FnOnce() -> R> pulp::WithSimd for Vectorised<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _simd: S) -> R {
        (self.0)()
    }
}

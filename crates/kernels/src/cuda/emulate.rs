//! The device code as C++ on this machine's CPU (`cuda/emulate.hpp`).

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use candle_core::{Result, bail};

unsafe extern "C" {
    fn track_emulate_launch(
        name: *const c_char,
        grid: *const c_uint,
        block: *const c_uint,
        shared_bytes: usize,
        params: *const c_void,
        params_bytes: usize,
        threads: c_uint,
        error: *mut c_char,
        error_bytes: usize,
    ) -> c_int;
    fn track_emulate_has(name: *const c_char) -> c_int;
    fn track_emulate_order(order: c_uint);
}

/// Runs one kernel to its end, its blocks spread over all cores.
///
/// `shared` is the dynamic shared memory in bytes; `params` the kernel's argument, as long as its struct in 8-byte
/// words. What a block does wrong (see `emulate.hpp`) is an error that names kernel, block and thread.
///
/// # Safety
/// Addresses in `params` must be this process's memory, as large as the kernel takes them to be.
pub(crate) unsafe fn launch(
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
    params: &[u64],
) -> Result<()> {
    let name = CString::new(kernel).map_err(candle_core::Error::wrap)?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut error = [0u8; 512];
    // SAFETY: the arrays are as long as they are said to be, `name` ends in a zero, and the caller vouches for what
    // the kernel reads and writes.
    let failed = unsafe {
        track_emulate_launch(
            name.as_ptr(),
            grid.as_ptr(),
            block.as_ptr(),
            shared,
            params.as_ptr().cast(),
            std::mem::size_of_val(params),
            threads,
            error.as_mut_ptr().cast(),
            error.len(),
        )
    };
    if failed != 0 {
        let end = error.iter().position(|b| *b == 0).unwrap_or(error.len());
        bail!("{}", String::from_utf8_lossy(&error[..end]))
    }
    Ok(())
}

/// Whether the device code has a kernel of this name.
#[allow(dead_code)]
pub(crate) fn has(kernel: &str) -> bool {
    // SAFETY: the name ends in a zero.
    CString::new(kernel).is_ok_and(|name| unsafe { track_emulate_has(name.as_ptr()) } != 0)
}

/// Which of four ways block 0 of later launches runs in, other blocks following by their index. Bit 0: warps and
/// lanes from the last to the first; bit 1: asynchronous copies arrive at once instead of as late as they may.
#[allow(dead_code)]
pub(crate) fn set_order(order: u32) {
    // SAFETY: it stores one number.
    unsafe { track_emulate_order(order) };
}

#[cfg(test)]
#[path = "emulate_tests.rs"]
mod tests;

//! Products on Hopper, whose copy engine streams the operands (`cuda/stream.cu`).

use candle_core::Result;

use super::device::{DeviceInfo, TensorDesc};
use super::product::{Params, SLICE, TILE_ROWS, small};
use super::tape::Written;
use super::{Element, Tape, Window};

/// As `StreamParams` in stream.cu.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct StreamParams {
    x: [u64; 16],
    weight: [u64; 16],
    params: Params,
    blocks: i32,
    slices: i32,
}

/// Threads of a block: eight warps that multiply and one that streams.
const THREADS: usize = 288;
/// Room for the barriers behind the slices.
const BARRIERS: usize = 128;

/// Slices in shared memory, as `STREAM_STAGES` in stream.cu.
fn stages(columns: usize) -> usize {
    if columns == 128 { 3 } else { 4 }
}

/// Whether the device has the engine and the instructions.
pub(super) fn available(info: &DeviceInfo, element: Element) -> bool {
    info.code == 90 && !info.from_ptx && element != Element::F32
}

/// Output columns, rows and pictures whose pixels make a tile of 128, if tiles can be cut that way.
pub(super) fn tile(window: &Window) -> Option<[usize; 3]> {
    let [height, width] = window.out;
    if width >= TILE_ROWS {
        return width.is_multiple_of(TILE_ROWS).then_some([TILE_ROWS, 1, 1]);
    }
    if width == 0 || !TILE_ROWS.is_multiple_of(width) {
        return None;
    }
    let rows = TILE_ROWS / width;
    if height >= rows {
        return height.is_multiple_of(rows).then_some([width, rows, 1]);
    }
    (height > 0 && rows.is_multiple_of(height)).then(|| [width, height, rows / height])
}

/// A product's operands as the copy engine sees them.
pub(super) struct Operands {
    pub(super) element: Element,
    /// Address of the packed weights, `[batch, columns, depth]`.
    pub(super) weight: u64,
    pub(super) depth: usize,
    /// Values from one of the batch to the next.
    pub(super) weight_batch: usize,
    pub(super) batch: usize,
    pub(super) window: Window,
    pub(super) frames: usize,
    pub(super) tile: [usize; 3],
}

impl<C: Copy> Tape<C> {
    pub(super) fn stream(
        &mut self,
        params: &Params,
        op: &Operands,
        written: Written,
    ) -> Result<()> {
        let size = op.element.size() as u64;
        let per_slice = SLICE / op.element.size();
        let columns = params.columns as usize;
        let tile = if columns.is_multiple_of(128) { 128 } else { 64 };
        let [bw, bh, bn] = op.tile;
        let [height, width] = op.window.size;
        let [sy, sx] = op.window.stride;
        let channels = params.channels as usize;
        let ld = params.ld_x as u64 * size;
        let row = width as u64 * ld;
        let picture = height as u64 * row;
        let shared_x = params.x_batch == 0;
        let x = TensorDesc {
            element: op.element,
            address: params.x,
            dims: [
                channels as u64,
                width as u64,
                height as u64,
                op.frames as u64,
                if shared_x { 1 } else { op.batch as u64 },
            ],
            strides: [
                ld,
                row,
                picture,
                if shared_x {
                    picture * op.frames as u64
                } else {
                    params.x_batch as u64 * size
                },
            ],
            boxes: [
                per_slice as u32,
                ((bw - 1) * sx + 1) as u32,
                ((bh - 1) * sy + 1) as u32,
                bn as u32,
                1,
            ],
            steps: [1, sx as u32, sy as u32, 1, 1],
            rank: 5,
        };
        let weight = TensorDesc {
            element: op.element,
            address: op.weight,
            dims: [op.depth as u64, columns as u64, op.batch as u64, 1, 1],
            strides: [
                op.depth as u64 * size,
                (op.weight_batch as u64 * size).max(16),
                0,
                0,
            ],
            boxes: [per_slice as u32, tile as u32, 1, 1, 1],
            steps: [1; 5],
            rank: 3,
        };
        let backend = &self.gpu().0;
        let params = StreamParams {
            x: backend.tensor_map(&x)?,
            weight: backend.tensor_map(&weight)?,
            params: *params,
            blocks: small(channels.div_ceil(per_slice))?,
            slices: small(op.depth / per_slice)?,
        };
        let rows = params.params.rows as usize;
        let blocks = rows.div_ceil(TILE_ROWS) * (columns / tile);
        let shared = stages(tile) * (TILE_ROWS + tile) * SLICE + BARRIERS;
        let kernel = format!("stream_{tile}_{}", op.element.product());
        self.push(
            kernel,
            [blocks, 1, op.batch],
            THREADS,
            shared,
            &params,
            written,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_whole_rows_pictures_or_several_pictures() {
        let of = |height, width, kernel, stride| tile(&Window::same(height, width, kernel, stride));
        assert_eq!(of(128, 128, 3, 1), Some([128, 1, 1]));
        assert_eq!(of(128, 128, 3, 2), Some([64, 2, 1]));
        assert_eq!(of(32, 32, 3, 1), Some([32, 4, 1]));
        assert_eq!(of(7, 7, 5, 4), Some([2, 2, 32]));
        assert_eq!(of(7, 7, 3, 2), Some([4, 4, 8]));
        assert_eq!(tile(&Window::LINEAR), Some([1, 1, 128]));
        assert_eq!(of(192, 256, 3, 1), Some([128, 1, 1]));
        assert_eq!(of(48, 64, 3, 1), Some([64, 2, 1]));
        // What does not fit takes the form that runs everywhere.
        assert_eq!(of(37, 148, 3, 1), None);
        assert_eq!(of(5, 64, 3, 1), None);
    }
}

// Convolutions and linear layers on Hopper: the products of product.cu with operands streamed by the copy engine.
//
// One warp asks the engine for slices of both operands, tile by tile of the tensors themselves: where a tap lies outside
// the picture, the engine fills in zeros. Two groups of four warps multiply straight from shared memory. Nobody computes an
// address for each row, and nobody waits for memory but at the barriers of a slice.
#include "epilogue.cuh"

#ifdef TRACK_WGMMA
#include "wgmma.cuh"

// The engine's description of a tensor (cuTensorMapEncodeTiled).
struct __align__(64) TensorMap {
    unsigned long long words[16];
};

struct StreamParams {
    TensorMap x;      // [batch][frames, height, width, channels]: boxes of 128 output pixels × 128 bytes of channels
    TensorMap weight; // [batch][columns][slices · 128 bytes], depth in the order (ky, block of channels, kx)
    ProductParams p;
    int blocks;       // slices of a tap: channels in 128-byte blocks, the last one padded with zeros
    int slices;
};

// Slices in shared memory, so that two blocks fit on a multiprocessor. (A tile of 256 columns, one block, was slower.)
template <int COLUMNS> constexpr int STREAM_STAGES = COLUMNS == 128 ? 3 : 4;
constexpr int MULTIPLIERS = 256; // threads; one more warp streams

DEVICE unsigned shared_address(const void *at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }

DEVICE void barrier_start(uint64_t *barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
DEVICE void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and has the barrier wait for so many bytes of the engine's as well.
DEVICE void barrier_expect(uint64_t *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
DEVICE void barrier_wait(uint64_t *barrier, int parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra OVER;\n"
                 "bra AGAIN;\n"
                 "OVER:\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

DEVICE void stream_x(const TensorMap &map, unsigned char *to, uint64_t *barrier, int c, int x, int y, int n, int z) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(
                     shared_address(to)),
                 "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n), "r"(z)
                 : "memory");
}
DEVICE void stream_weight(const TensorMap &map, unsigned char *to, uint64_t *barrier, int depth, int column, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
                     shared_address(to)),
                 "l"(&map), "r"(shared_address(barrier)), "r"(depth), "r"(column), "r"(z)
                 : "memory");
}

template <class E, int COLUMNS> DEVICE void stream_body(const StreamParams &q) {
    constexpr int STAGE = (TILE_ROWS + COLUMNS) * SLICE, COUNT = STREAM_STAGES<COLUMNS>;
    constexpr int DEPTH = SLICE / sizeof(typename E::T);
    DYNAMIC_SHARED(shared);
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + COUNT * STAGE), *empty = full + COUNT;
    const ProductParams &p = q.p;
    const int tiles = p.columns / COLUMNS, thread = threadIdx.x, warp = thread / 32;
    const int first_row = blockIdx.x / tiles * TILE_ROWS, first_column = blockIdx.x % tiles * COLUMNS;

    if (thread == 0) {
        for (int i = 0; i < COUNT; i++) {
            barrier_start(full + i, 1);
            barrier_start(empty + i, MULTIPLIERS / 32);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (warp == MULTIPLIERS / 32) {
        if (lane_id() == 0) {
            const int area = p.out_height * p.out_width, frame = first_row / area, pixel = first_row % area;
            const int y = pixel / p.out_width * p.stride_y - p.pad_y, x = pixel % p.out_width * p.stride_x - p.pad_x;
            int ky = 0, block = 0, kx = 0;
            for (int slice = 0; slice < q.slices; slice++) {
                const int at = slice % COUNT, round = slice / COUNT;
                if (round > 0)
                    barrier_wait(empty + at, (round - 1) & 1);
                unsigned char *stage = shared + at * STAGE;
                barrier_expect(full + at, STAGE);
                stream_x(q.x, stage, full + at, block * DEPTH, x + kx, y + ky, frame, p.x_batch ? blockIdx.z : 0);
                stream_weight(q.weight, stage + TILE_ROWS * SLICE, full + at, slice * DEPTH, first_column, blockIdx.z);
                if (++kx == p.kernel_w) {
                    kx = 0;
                    if (++block == q.blocks) {
                        block = 0;
                        ++ky;
                    }
                }
            }
        }
        return;
    }

    float acc[1][COLUMNS / 8][4]; // set by the first slice: zeros written here would make every product wait
    for (int slice = 0; slice < q.slices; slice++) {
        const int at = slice % COUNT;
        barrier_wait(full + at, slice / COUNT & 1);
        const unsigned char *stage = shared + at * STAGE;
        // The products of this slice run on while the slice before it, now done with, is given back.
        wgmma_slice<E, COLUMNS>(acc[0], stage + thread / 128 * 64 * SLICE, stage + TILE_ROWS * SLICE, slice == 0);
        if (slice > 0 && lane_id() == 0)
            barrier_arrive(empty + (slice - 1) % COUNT);
    }
    wgmma_wait<0>(acc[0]);
    auto sync = [] { asm volatile("bar.sync 1, 256;" ::: "memory"); };
    sync();
    epilogue<E, COLUMNS>(p, acc, first_row, first_column, warp * 16, 0, shared, sync);
}

#define STREAM(suffix, E)                                                                                              \
    KERNEL(stream_64_##suffix, StreamParams, MULTIPLIERS + 32, 2) { stream_body<E, 64>(p); }                           \
    KERNEL(stream_128_##suffix, StreamParams, MULTIPLIERS + 32, 2) { stream_body<E, 128>(p); }

STREAM(f16, F16)
STREAM(bf16, Bf16)
STREAM(tf32, Tf32)
#endif

// Convolutions and linear layers on Tensor Cores: an implicit matrix product with its epilogue.
//
// A block makes a tile of 128 rows × 64 or 128 columns. Both operands come in slices that are 128 bytes deep, through
// shared memory whose 16-byte chunks are swizzled (chunk ^ row % 8), several slices in flight. The epilogue works on
// the accumulators where they are: bias, residual, group norm + relu or GELU, and only then a rounding to T.
#include "product.cuh"
#ifdef TRACK_WGMMA
#include "wgmma.cuh"
#endif

// Slices in flight. The host asks for the same shared memory (engine's `product_stages`).
#if defined(TRACK_EMULATE)
#define TRACK_STAGES 3
#elif defined(TRACK_ASYNC)
#define TRACK_STAGES 3
#else
#define TRACK_STAGES 2
#endif

constexpr int TILE_ROWS = 128;
constexpr int SLICE = 128; // bytes of depth

template <class E, int COLUMNS> struct Tile {
    typedef typename E::T T;
    static constexpr int CHUNK = 16 / sizeof(T);
    static constexpr int DEPTH = SLICE / sizeof(T);
    static constexpr int STAGE = (TILE_ROWS + COLUMNS) * SLICE;
#ifdef TRACK_WGMMA
    // A warp group owns 64 rows and all columns; a warp of it 16 rows.
    static constexpr int MI = 1, NI = COLUMNS / 8;
    DEVICE_MEMBER static int row0() { return threadIdx.x / 32 * 16; }
    DEVICE_MEMBER static int column0() { return 0; }
#else
    // Eight warps, four over the rows and two over the columns.
    static constexpr int MI = 2, NI = COLUMNS / 16;
    DEVICE_MEMBER static int row0() { return threadIdx.x / 64 * 32; }
    DEVICE_MEMBER static int column0() { return threadIdx.x / 32 % 2 * (COLUMNS / 2); }
#endif
};

// One slice of both operands into the accumulators.
template <class E, int COLUMNS>
DEVICE void multiply(float (&acc)[Tile<E, COLUMNS>::MI][Tile<E, COLUMNS>::NI][4], const unsigned char *a,
                     const unsigned char *b) {
#ifdef TRACK_WGMMA
    wgmma_slice<E, COLUMNS>(acc[0], a + threadIdx.x / 128 * 64 * SLICE, b);
#else
    typedef Tile<E, COLUMNS> Shape;
    const int lane = lane_id();
    const int a_row = Shape::row0() + (lane & 15), b_row = Shape::column0() + (lane >> 4) * 8 + (lane & 7);
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t fa[Shape::MI][4], fb[Shape::NI / 2][4];
#pragma unroll
        for (int i = 0; i < Shape::MI; i++) {
            const int row = a_row + i * 16, chunk = step * 2 + (lane >> 4);
            ldmatrix4(fa[i], a + row * SLICE + ((chunk ^ (row & 7)) << 4));
        }
#pragma unroll
        for (int j = 0; j < Shape::NI / 2; j++) {
            const int row = b_row + j * 16, chunk = step * 2 + ((lane >> 3) & 1);
            ldmatrix4(fb[j], b + row * SLICE + ((chunk ^ (row & 7)) << 4));
        }
#pragma unroll
        for (int i = 0; i < Shape::MI; i++)
#pragma unroll
            for (int j = 0; j < Shape::NI; j++)
                mma<E>(acc[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
#endif
}

// Group norm over group_rows rows × 16 columns and relu, on the accumulators of a 16-row tile. Two passes.
template <int NI> DEVICE void group_norm(float (&acc)[NI][4], const ProductParams &p, const float *weight, const float *bias) {
    const int rows = p.group_rows;
    const float scale = 1.0f / (rows * 16);
#pragma unroll
    for (int j = 0; j < NI; j += 2) {
        // Sums of the thread's own two rows, kept apart unless all sixteen belong together.
        float mean[2], spread[2];
#pragma unroll
        for (int pass = 0; pass < 2; pass++) {
            float sum[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                sum[h] = 0;
#pragma unroll
                for (int k = 0; k < 2; k++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        const float v = acc[j + k][h * 2 + c];
                        sum[h] += pass == 0 ? v : (v - mean[h]) * (v - mean[h]);
                    }
                sum[h] += lane_xor(sum[h], 1);
                sum[h] += lane_xor(sum[h], 2);
                if (rows > 1) {
                    sum[h] += lane_xor(sum[h], 4);
                    sum[h] += lane_xor(sum[h], 8);
                }
                if (rows > 4)
                    sum[h] += lane_xor(sum[h], 16);
            }
            if (rows > 4)
                sum[0] = sum[1] = sum[0] + sum[1];
#pragma unroll
            for (int h = 0; h < 2; h++)
                (pass == 0 ? mean : spread)[h] = sum[h] * scale;
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int column = (j + k) * 8 + lane_id() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float v = (acc[j + k][i] - mean[i / 2]) * (1.0f / sqrtf(spread[i / 2] + NORM_EPS));
                acc[j + k][i] = fmaxf(v * weight[column + i % 2] + bias[column + i % 2], 0.0f);
            }
        }
    }
}

template <class E, int COLUMNS> DEVICE void product_body(const ProductParams &p) {
    typedef Tile<E, COLUMNS> Shape;
    typedef typename E::T T;
    DYNAMIC_SHARED(shared);
    const int tiles = p.columns / COLUMNS, thread = threadIdx.x;
    const int first_row = blockIdx.x / tiles * TILE_ROWS, first_column = blockIdx.x % tiles * COLUMNS;
    const T *x = static_cast<const T *>(p.x) + blockIdx.z * p.x_batch;

    // A thread copies one 16-byte column of every 32nd row.
    const int chunk = thread % 8, line = thread / 8;
    const unsigned place = line * SLICE + ((chunk ^ (line & 7)) << 4);
    RowWindow<T> window[TILE_ROWS / 32];
#pragma unroll
    for (int i = 0; i < TILE_ROWS / 32; i++)
        window[i].start(p, x, first_row + line + i * 32);
    const T *weight = static_cast<const T *>(p.weight) + blockIdx.z * p.weight_batch +
                      static_cast<size_t>(first_column + line) * p.depth_padded + chunk * Shape::CHUNK;
    DepthWalk at;
    at.start(p, chunk * Shape::CHUNK);
    Copy16 from_x[TILE_ROWS / 32], from_weight[COLUMNS / 32];
    auto load = [&](unsigned char *stage) {
        const int offset = at.offset(p);
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++) {
            const bool valid = window[i].has(p, at);
            from_x[i].load(stage + place + i * 32 * SLICE, valid ? window[i].origin + offset : x, valid);
        }
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; i++)
            from_weight[i].load(stage + (TILE_ROWS + i * 32) * SLICE + place,
                                weight + static_cast<size_t>(i * 32) * p.depth_padded, true);
        at.advance(p, Shape::DEPTH);
        weight += Shape::DEPTH;
    };
    auto store = [&](unsigned char *stage) {
#pragma unroll
        for (int i = 0; i < TILE_ROWS / 32; i++)
            from_x[i].store(stage + place + i * 32 * SLICE);
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; i++)
            from_weight[i].store(stage + (TILE_ROWS + i * 32) * SLICE + place);
    };

    float acc[Shape::MI][Shape::NI][4] = {};
    const int slices = p.depth_padded / Shape::DEPTH;
#ifdef TRACK_WGMMA
    // A slice may be overwritten only after both warp groups are done with it, which is known one step later.
    constexpr int AHEAD = TRACK_STAGES - 2 > 0 ? TRACK_STAGES - 2 : 1;
#else
    constexpr int AHEAD = TRACK_STAGES - 1;
#endif
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
        if (s < slices) {
            load(shared + s * Shape::STAGE);
            store(shared + s * Shape::STAGE);
        }
        copy_commit();
    }
    int reading = 0, writing = AHEAD % TRACK_STAGES;
    for (int slice = 0; slice < slices; slice++) {
        copy_wait<AHEAD - 1>();
#ifdef TRACK_WGMMA
        wgmma_see_copies();
#endif
        __syncthreads();
        const bool more = slice + AHEAD < slices;
        if (more)
            load(shared + writing * Shape::STAGE);
        copy_commit();
        const unsigned char *stage = shared + reading * Shape::STAGE;
        multiply<E, COLUMNS>(acc, stage, stage + TILE_ROWS * SLICE);
        if (more)
            store(shared + writing * Shape::STAGE);
        reading = reading + 1 == TRACK_STAGES ? 0 : reading + 1;
        writing = writing + 1 == TRACK_STAGES ? 0 : writing + 1;
    }
#ifdef TRACK_WGMMA
    wgmma_wait<0>(acc[0]);
#endif
    copy_wait<0>();
    __syncthreads();

    // Epilogue.
    const int lane = lane_id(), row0 = Shape::row0(), column0 = Shape::column0();
    const size_t vector = static_cast<size_t>(blockIdx.z) * p.columns + first_column + column0;
    if (p.bias) {
#pragma unroll
        for (int j = 0; j < Shape::NI; j++) {
            const float2 b = *reinterpret_cast<const float2 *>(p.bias + vector + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < Shape::MI; i++) {
                acc[i][j][0] += b.x, acc[i][j][1] += b.y;
                acc[i][j][2] += b.x, acc[i][j][3] += b.y;
            }
        }
    }
    if (p.group_rows > 0) {
#pragma unroll
        for (int i = 0; i < Shape::MI; i++)
            group_norm<Shape::NI>(acc[i], p, p.norm_weight + vector, p.norm_bias + vector);
    }
    T *out = static_cast<T *>(p.out) + blockIdx.z * p.out_batch;
    const T *residual = static_cast<const T *>(p.residual);
    if (sizeof(T) == 4 || p.out_f32) {
        // Two floats a lane fill whole 32-byte sectors as they are.
        float *out_f32 = static_cast<float *>(p.out) + blockIdx.z * p.out_batch;
#pragma unroll
        for (int i = 0; i < Shape::MI; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = first_row + row0 + i * 16 + h * 8 + lane / 4;
                if (row >= p.rows)
                    continue;
#pragma unroll
                for (int j = 0; j < Shape::NI; j++) {
                    const int column = first_column + column0 + j * 8 + lane % 4 * 2;
                    float a = acc[i][j][h * 2], b = acc[i][j][h * 2 + 1];
                    if (residual) {
                        const T *r = residual + static_cast<size_t>(row) * p.ld_residual + column;
                        a += to_float(r[0]), b += to_float(r[1]);
                    }
                    if (p.gelu)
                        a = gelu(a), b = gelu(b);
                    *reinterpret_cast<float2 *>(out_f32 + out_offset(p, row, column)) = make_float2(a, b);
                }
            }
        return;
    }
    // 16-bit results go through shared memory, so that memory sees whole 16-byte pieces; a residual comes in likewise.
    constexpr int LINE = COLUMNS + 8, PIECES = COLUMNS / 8;
    T *tile = reinterpret_cast<T *>(shared);
    if (residual) {
        for (int i = thread; i < TILE_ROWS * PIECES; i += 256) {
            const int row = i / PIECES, piece = i % PIECES * 8;
            if (first_row + row < p.rows)
                *reinterpret_cast<uint4 *>(tile + row * LINE + piece) = *reinterpret_cast<const uint4 *>(
                    residual + static_cast<size_t>(first_row + row) * p.ld_residual + first_column + piece);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < Shape::MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < Shape::NI; j++) {
                const int row = row0 + i * 16 + h * 8 + lane / 4, column = column0 + j * 8 + lane % 4 * 2;
                T *at = tile + row * LINE + column;
                float a = acc[i][j][h * 2], b = acc[i][j][h * 2 + 1];
                if (residual)
                    a += to_float(at[0]), b += to_float(at[1]);
                if (p.gelu)
                    a = gelu(a), b = gelu(b);
                *reinterpret_cast<uint32_t *>(at) = pack2<T>(a, b);
            }
    __syncthreads();
    for (int i = thread; i < TILE_ROWS * PIECES; i += 256) {
        const int row = i / PIECES, piece = i % PIECES * 8;
        if (first_row + row < p.rows)
            *reinterpret_cast<uint4 *>(out + out_offset(p, first_row + row, first_column + piece)) =
                *reinterpret_cast<const uint4 *>(tile + row * LINE + piece);
    }
}

// Two blocks on a multiprocessor hide each other's epilogues; sm_75 has room in shared memory for one.
#ifdef TRACK_ASYNC
#define TRACK_BLOCKS 2
#else
#define TRACK_BLOCKS 1
#endif

#define PRODUCT(suffix, E)                                                                                             \
    KERNEL(product_64_##suffix, ProductParams, 256, TRACK_BLOCKS) { product_body<E, 64>(p); }                                     \
    EXPORT(product_64_##suffix, ProductParams)                                                                         \
    KERNEL(product_128_##suffix, ProductParams, 256, TRACK_BLOCKS) { product_body<E, 128>(p); }                                   \
    EXPORT(product_128_##suffix, ProductParams)

PRODUCT(f16, F16)
PRODUCT(bf16, Bf16)
PRODUCT(tf32, Tf32)

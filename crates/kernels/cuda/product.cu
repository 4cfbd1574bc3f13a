// Convolutions and linear layers on Tensor Cores: an implicit matrix product with its epilogue.
//
// A block makes a tile of 128 rows × 64 or 128 columns. Both operands come in slices that are 128 bytes deep, through
// shared memory whose 16-byte chunks are swizzled (chunk ^ row % 8), several slices in flight. The epilogue works on
// the accumulators where they are (epilogue.cuh). Hopper has a form of its own (stream.cu); this one runs everywhere,
// and there for what that one does not take.
#include "epilogue.cuh"

// Slices in flight. The host asks for the same shared memory (engine's `product_stages`).
#if defined(TRACK_EMULATE)
#define TRACK_STAGES 3
#elif defined(TRACK_ASYNC)
#define TRACK_STAGES 3
#else
#define TRACK_STAGES 2
#endif

template <class E, int COLUMNS> struct Tile {
    typedef typename E::T T;
    static constexpr int CHUNK = 16 / sizeof(T);
    static constexpr int DEPTH = SLICE / sizeof(T);
    static constexpr int STAGE = (TILE_ROWS + COLUMNS) * SLICE;
    // Eight warps, four over the rows and two over the columns.
    static constexpr int MI = 2, NI = COLUMNS / 16;
    DEVICE_MEMBER static int row0() { return threadIdx.x / 64 * 32; }
    DEVICE_MEMBER static int column0() { return threadIdx.x / 32 % 2 * (COLUMNS / 2); }
};

// One slice of both operands into the accumulators.
template <class E, int COLUMNS>
DEVICE void multiply(float (&acc)[Tile<E, COLUMNS>::MI][Tile<E, COLUMNS>::NI][4], const unsigned char *a,
                     const unsigned char *b) {
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
    constexpr int AHEAD = TRACK_STAGES - 1;
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
    copy_wait<0>();
    __syncthreads();

    epilogue<E, COLUMNS>(p, acc, first_row, first_column, Shape::row0(), Shape::column0(), shared, [] { __syncthreads(); });
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

// The local 4D correlation: every cell around a position with every cell of the query's support.
//
// The 49 samples of a position share one fraction, so the 8×8 whole cells under them are correlated (a 64×49 product of
// depth c) and the results blended. A warp does a whole position: in the layout that Tensor Core products leave behind,
// a lane then holds all eight rows of one column of the patch, so that blending rows needs no other lane and blending
// columns one shuffle. The f32 form keeps that layout.
#include "device.cuh"

// Grid (n, ceil(frames / frames_per_block), levels), 128 threads, 61440 bytes of dynamic shared memory (above the 48 KB
// that a kernel gets unasked). A warp does every fourth frame of its block; 16 frames per block is a good choice.
//
// Result: out + ((output·2 + role)·n·frames + query·frames + frame)·49·56. Role 0: pixel = place around the position,
// channel = cell of the support; role 1: the other way round. Places and cells are numbered row·7 + column; channels
// 49..56 are zeros. A cell outside the grid counts as zeros.
struct CorrelateLevel {
    const void *grid;       // [frames, height, width, c] T; c is 64, 128 or 256
    const void *support;    // [n, 49, c] T
    int height, width, c;
    int output;             // where the level's two results go
    float scale_x, scale_y; // what a position is multiplied by to be in cells of the grid
};
struct CorrelateParams {
    const float *positions; // [n, frames, 2]: x, y, raster positions
    void *out;              // [levels, 2, n·frames, 49, 56] T
    CorrelateLevel levels[3];
    int n, frames, frames_per_block, unused;
};

#define WARPS 4
#define SLOT 4096           // 64 cells of 64 bytes
#define SUPPORT_ROW 512     // bytes of a support's row that are held at once
#define SUPPORT_ROWS 56     // 49, and zeros that make the result's spare channels
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define BLOCKS 1 // shared memory allows no more; copies wait in registers
#define F32_BLOCKS 1
#else
#define BLOCKS 3
#define F32_BLOCKS 2
#endif

// What a lane loads of one patch: column lane/4 of all eight rows, 16 bytes (lane % 4) of each 64-byte chunk.
template <class T> struct Patch {
    const T *cells;
    int row;        // values from one row to the next
    unsigned valid; // bit r: the cell in row r is inside the grid
    float fx, fy;

    DEVICE_MEMBER void locate(const CorrelateLevel &level, int frame, float2 at) {
        const int lane = lane_id();
        int top, left;
        fy = axis(at.y * level.scale_y, level.height, top);
        fx = axis(at.x * level.scale_x, level.width, left);
        const int column = left + lane / 4;
        valid = 0;
#pragma unroll
        for (int r = 0; r < 8; r++)
            valid |= static_cast<unsigned>(top + r >= 0 && top + r < level.height) << r;
        if (column < 0 || column >= level.width)
            valid = 0;
        row = level.width * level.c;
        const int64_t cell = (static_cast<int64_t>(frame) * level.height + top) * level.width + column;
        cells = static_cast<const T *>(level.grid) + cell * level.c + lane % 4 * (16 / static_cast<int>(sizeof(T)));
    }
    // The first whole cell under the neighbourhood and the fraction. Far outside is far outside: the bound keeps the
    // integers small and all cells out of the grid. What is not a number stays so in the fraction.
    DEVICE_MEMBER static float axis(float at, int size, int &first) {
        const float index = at - 0.5f;
        const float bounded = fminf(fmaxf(index, -16.0f), static_cast<float>(size) + 16.0f);
        const float low = floorf(bounded);
        first = static_cast<int>(low) - 3;
        return index != index ? index : bounded - low;
    }
};

// Rows of 64 bytes in a slot: 16-byte chunks are exchanged so that eight rows' same chunk lies in different banks.
DEVICE int in_slot(int row, int chunk) { return row * 64 + ((chunk ^ (row >> 1 & 3)) << 4); }

template <class T> DEVICE void load(Copy16 (&copies)[8], unsigned char *slot, const Patch<T> &patch, int chunk) {
    const int lane = lane_id();
    const T *from = patch.cells + chunk * (64 / static_cast<int>(sizeof(T)));
#pragma unroll
    for (int r = 0; r < 8; r++, from += patch.row)
        copies[r].load(slot + in_slot(r * 8 + lane / 4, lane % 4), from, patch.valid >> r & 1);
}
DEVICE void store(Copy16 (&copies)[8], unsigned char *slot) {
    const int lane = lane_id();
#pragma unroll
    for (int r = 0; r < 8; r++)
        copies[r].store(slot + in_slot(r * 8 + lane / 4, lane % 4));
}

// One segment of a query's support, `chunks` 16-byte chunks of each row, exchanged as in a slot.
template <class T>
DEVICE void load_support(unsigned char *shared, const CorrelateLevel &level, int query, int segment, int chunks) {
    const unsigned char *from = static_cast<const unsigned char *>(level.support) +
                                static_cast<size_t>(query) * 49 * level.c * sizeof(T) + segment * SUPPORT_ROW;
    for (int i = threadIdx.x; i < SUPPORT_ROWS * chunks; i += WARPS * 32) {
        const int row = i / chunks, chunk = i % chunks;
        unsigned char *to = shared + row * SUPPORT_ROW + ((chunk ^ (row & 7)) << 4);
        Copy16 copy;
        copy.load(to, from + static_cast<size_t>(min(row, 48)) * level.c * sizeof(T) + chunk * 16, row < 49);
        copy.store(to);
    }
}

// Patch cells × support cells. [i][j][2·half + e]: patch row 2i + half, column lane/4; support cell 8j + 2·(lane%4) + e.
typedef float Products[4][7][4];

// Adds the 64 bytes of channels in a slot; they begin at 16-byte chunk `first` of the support's rows.
template <class E> struct Multiply {
    DEVICE_MEMBER static void add(Products &acc, const unsigned char *slot, const unsigned char *support, int first) {
        const int lane = lane_id();
        const unsigned char *a_row = slot + (lane & 15) * 64;
        const unsigned char *b_row = support + ((lane & 7) + (lane >> 4) * 8) * SUPPORT_ROW;
        const unsigned char *b_last = support + (48 + (lane & 7)) * SUPPORT_ROW;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t a[4][4];
            const int a_chunk = (k * 2 + (lane >> 4)) ^ (lane >> 1 & 3);
            const int b_chunk = (first + k * 2 + (lane >> 3 & 1)) ^ (lane & 7);
#pragma unroll
            for (int i = 0; i < 4; i++)
                ldmatrix4(a[i], a_row + i * 16 * 64 + a_chunk * 16);
#pragma unroll
            for (int j = 0; j < 7; j += 2) {
                // The seventh tile has no partner: both halves read it.
                uint32_t b[4];
                ldmatrix4(b, (j < 6 ? b_row + j * 8 * SUPPORT_ROW : b_last) + b_chunk * 16);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    mma<E>(acc[i][j], a[i], b[0], b[1]);
                    if (j < 6)
                        mma<E>(acc[i][j + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
};

// Without Tensor Cores: f32 throughout.
template <> struct Multiply<F32> {
    DEVICE_MEMBER static void add(Products &acc, const unsigned char *slot, const unsigned char *support, int first) {
        const int lane = lane_id();
        const unsigned char *b_row = support + lane % 4 * 2 * SUPPORT_ROW;
#pragma unroll 1
        for (int k = 0; k < 4; k++) {
            float4 a[8];
#pragma unroll
            for (int r = 0; r < 8; r++)
                a[r] = *reinterpret_cast<const float4 *>(slot + in_slot(r * 8 + lane / 4, k));
#pragma unroll
            for (int j = 0; j < 7; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int chunk = (first + k) ^ (lane % 4 * 2 + e);
                    const float4 b = *reinterpret_cast<const float4 *>(b_row + (8 * j + e) * SUPPORT_ROW + chunk * 16);
#pragma unroll
                    for (int r = 0; r < 8; r++) {
                        float &sum = acc[r / 2][j][r % 2 * 2 + e];
                        sum = fmaf(a[r].x, b.x, sum);
                        sum = fmaf(a[r].y, b.y, sum);
                        sum = fmaf(a[r].z, b.z, sum);
                        sum = fmaf(a[r].w, b.w, sum);
                    }
                }
        }
    }
};

// 8×8 whole cells to 7×7 samples, in place: rows 0..6, and columns 0..6 in the lanes that hold them.
DEVICE void blend(Products &acc, float fx, float fy) {
    const int right = (lane_id() + 4) & 31;
#pragma unroll
    for (int j = 0; j < 7; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
            for (int h = 0; h < 7; h++) {
                const float below = acc[(h + 1) / 2][j][(h + 1) % 2 * 2 + e];
                float &value = acc[h / 2][j][h % 2 * 2 + e];
                value = value * (1.0f - fy) + below * fy;
                value = value * (1.0f - fx) + lane_from(value, right) * fx;
            }
}

template <class T> DEVICE void put2(unsigned char *to, float a, float b) {
    *reinterpret_cast<uint32_t *>(to) = pack2<T>(a, b);
}
template <> __device__ __forceinline__ void put2<float>(unsigned char *to, float a, float b) {
    *reinterpret_cast<float2 *>(to) = make_float2(a, b);
}

// A warp's bytes from shared to global memory, 16 at a time. `stage` may be written again afterwards.
DEVICE void copy_out(unsigned char *to, const unsigned char *stage, int bytes) {
    __syncwarp();
    for (int i = lane_id() * 16; i < bytes; i += 32 * 16)
        *reinterpret_cast<uint4 *>(to + i) = *reinterpret_cast<const uint4 *>(stage + i);
    __syncwarp();
}

// Writes one position's samples in both roles, through a slot that holds a part of either.
template <class T>
DEVICE void write(const Products &acc, unsigned char *stage, unsigned char *around, unsigned char *support_side) {
    constexpr int SIZE = sizeof(T), PIXEL = 56 * SIZE, PART = 8 / SIZE; // 4 of 7 rows or tiles at once in 16 bits
    const int column = lane_id() / 4, quarter = lane_id() % 4;
#pragma unroll
    for (int first = 0; first < 7; first += PART) {
        const int rows = first + PART < 7 ? PART : 7 - first;
        if (column < 7) {
#pragma unroll
            for (int h = 0; h < rows; h++)
#pragma unroll
                for (int j = 0; j < 7; j++) {
                    const int row = first + h;
                    put2<T>(stage + (h * 7 + column) * PIXEL + (8 * j + 2 * quarter) * SIZE,
                            acc[row / 2][j][row % 2 * 2], acc[row / 2][j][row % 2 * 2 + 1]);
                }
        }
        copy_out(around + first * 7 * PIXEL, stage, rows * 7 * PIXEL);
    }
#pragma unroll
    for (int first = 0; first < 7; first += PART) {
        const int tiles = first + PART < 7 ? PART : 7 - first;
#pragma unroll
        for (int j = 0; j < tiles; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int cell = 8 * j + 2 * quarter + e;
                if (8 * first + cell < 49) {
#pragma unroll
                    for (int h = 0; h < 7; h++) {
                        // Lanes of the eighth column have no sample: they write the seven spare channels.
                        const int channel = column < 7 ? h * 7 + column : 49 + h;
                        const float value = column < 7 ? acc[h / 2][first + j][h % 2 * 2 + e] : 0.0f;
                        *reinterpret_cast<T *>(stage + cell * PIXEL + channel * SIZE) = from_float<T>(value);
                    }
                }
            }
        copy_out(support_side + 8 * first * PIXEL, stage, min(8 * tiles, 49 - 8 * first) * PIXEL);
    }
}

template <class E> DEVICE void correlate(const CorrelateParams &p) {
    typedef typename E::T T;
    DYNAMIC_SHARED(shared);
    constexpr int CHUNK = 64 / sizeof(T), SEGMENT = SUPPORT_ROW / sizeof(T);
    const CorrelateLevel &level = p.levels[blockIdx.z];
    const int query = blockIdx.x, warp = threadIdx.x / 32;
    const int first = blockIdx.y * p.frames_per_block, end = min(first + p.frames_per_block, p.frames);
    const int chunks = level.c / CHUNK, in_segment = min(level.c, SEGMENT) / CHUNK;
    const int segments = sizeof(T) == 2 ? 1 : max(level.c / SEGMENT, 1);
    unsigned char *support = shared, *ring = shared + SUPPORT_ROWS * SUPPORT_ROW + warp * 2 * SLOT;
    const float2 *positions = reinterpret_cast<const float2 *>(p.positions) + static_cast<size_t>(query) * p.frames;

    // Chunks of a warp's patches follow each other through the two slots of its ring without a gap: while one is
    // multiplied, the next arrives, be it of the next frame. Warps wait for each other only where a new segment of the
    // support is loaded.
    Patch<T> patch = {};
    Copy16 copies[8];
    int slot = 0;
    if (first + warp < end) {
        patch.locate(level, first + warp, positions[first + warp]);
        load(copies, ring, patch, 0);
        store(copies, ring);
    }
    copy_commit();
    for (int group = first; group < end; group += WARPS) {
        const int frame = group + warp;
        const bool last = frame + WARPS >= end;
        const float2 upcoming = last ? make_float2(0.0f, 0.0f) : positions[frame + WARPS];
        Products acc;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 7; j++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    acc[i][j][k] = 0.0f;
        float fx = 0.0f, fy = 0.0f;
        for (int part = 0; part < segments; part++) {
            if (segments > 1 || group == first) {
                __syncthreads();
                load_support<T>(support, level, query, part, in_segment * 4);
                copy_commit();
                copy_wait<0>();
                __syncthreads();
            }
            if (frame >= end)
                continue;
            for (int within = 0; within < in_segment; within++) {
                const int chunk = part * in_segment + within;
                bool more = true;
                if (chunk + 1 == chunks) {
                    fx = patch.fx;
                    fy = patch.fy;
                    more = !last;
                    if (more)
                        patch.locate(level, frame + WARPS, upcoming);
                }
                unsigned char *next = ring + (slot ^ 1) * SLOT;
                if (more)
                    load(copies, next, patch, chunk + 1 == chunks ? 0 : chunk + 1);
                copy_commit();
                copy_wait<1>();
                __syncwarp();
                Multiply<E>::add(acc, ring + slot * SLOT, support, within * 4);
                if (more)
                    store(copies, next);
                __syncwarp();
                slot ^= 1;
            }
        }
        if (frame >= end)
            continue;
        blend(acc, fx, fy);
        const size_t tokens = static_cast<size_t>(p.n) * p.frames, token = static_cast<size_t>(query) * p.frames + frame;
        constexpr size_t VOLUME = 49 * 56 * sizeof(T);
        unsigned char *out = static_cast<unsigned char *>(p.out) + (level.output * 2 * tokens + token) * VOLUME;
        write<T>(acc, ring + (slot ^ 1) * SLOT, out, out + tokens * VOLUME);
    }
}

KERNEL(correlate_f16, CorrelateParams, 128, BLOCKS) { correlate<F16>(p); }
EXPORT(correlate_f16, CorrelateParams);
KERNEL(correlate_bf16, CorrelateParams, 128, BLOCKS) { correlate<Bf16>(p); }
EXPORT(correlate_bf16, CorrelateParams);
KERNEL(correlate_tf32, CorrelateParams, 128, BLOCKS) { correlate<Tf32>(p); }
EXPORT(correlate_tf32, CorrelateParams);
KERNEL(correlate_f32, CorrelateParams, 128, F32_BLOCKS) { correlate<F32>(p); }
EXPORT(correlate_f32, CorrelateParams);

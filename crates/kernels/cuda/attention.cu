// Attention over the frames of a track. The first half of the heads sees a frame and those before it, the second half
// a frame and those after it; each head loses a slope per frame of distance.
//
// A block does 64 frames of one head of one track, a warp 16 of them, with the softmax carried along over tiles of
// keys. Keys that no row of a tile sees are not loaded, those that no row of a warp sees not multiplied.
#include "device.cuh"

// Grid (n, heads, ceil(frames / 64)), 128 threads. Dynamic shared memory: attention_f16 and attention_bf16 24576
// bytes for up to 64 frames and 40960 above (the next tile of keys then has a place of its own); attention_f32 43008.
// attention_f32 also serves tf32: it is a small part of the whole.
struct AttentionParams {
    const void *qkv; // [n, frames, 3·c] T: queries, keys, values side by side; head h owns channels 64h..64h + 64 of each
    void *out;       // [n, frames, c] T
    int n, frames, c, heads; // heads = c / 64, even, at most 16
    float slopes[16];        // per head
};

#define HEAD 64
#define TILE 64
#define SCALE 0.125f // 1 / √64
#define LOG2_E 1.4426950408889634f
// Where a row's largest score starts: finite, so that a row that has seen nothing yet gives zeros and not NaNs.
#define LOWEST (-1e30f)

// Rows of `CHUNKS` 16-byte chunks, exchanged so that eight rows' same chunk lies in different banks.
template <int CHUNKS> DEVICE int at_chunk(int row, int chunk) { return row * CHUNKS * 16 + ((chunk ^ (row & 7)) << 4); }

// A thread's share of copying ROWS frames' head of one part (0 queries, 1 keys, 2 values) into shared memory. Frames
// behind the last become zeros.
template <class T, int ROWS> struct HeadRows {
    static constexpr int CHUNKS = HEAD * sizeof(T) / 16, COPIES = ROWS * CHUNKS / 128;
    Copy16 copies[COPIES];

    DEVICE_MEMBER void load(unsigned char *shared, const AttentionParams &p, int part, int first) {
        const T *from = static_cast<const T *>(p.qkv) +
                        static_cast<size_t>(blockIdx.x) * p.frames * 3 * p.c + part * p.c + blockIdx.y * HEAD;
#pragma unroll
        for (int i = 0; i < COPIES; i++) {
            const int row = (i * 128 + threadIdx.x) / CHUNKS, chunk = threadIdx.x % CHUNKS;
            const int frame = min(first + row, p.frames - 1);
            copies[i].load(shared + at_chunk<CHUNKS>(row, chunk),
                           from + static_cast<size_t>(frame) * 3 * p.c + chunk * (16 / static_cast<int>(sizeof(T))),
                           first + row < p.frames);
        }
    }
    DEVICE_MEMBER void store(unsigned char *shared) {
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            copies[i].store(shared + at_chunk<CHUNKS>((i * 128 + threadIdx.x) / CHUNKS, threadIdx.x % CHUNKS));
    }
};

// ---- On Tensor Cores: 16-bit types ----

// What is carried along for the two rows that a lane shares with three others: row lane/4 and the one 8 below.
struct Running {
    float top[2], sum[2];
    float out[8][4]; // [j]: channels 8j + 2·(lane%4) + {0, 1} of the first row, then of the second
};

// One tile of 64 keys for a warp's 16 rows. Pairs begin..end of its eight 8-key columns are seen by some row.
template <class E>
DEVICE void attend(Running &running, const uint32_t (&q)[4][4], const unsigned char *keys, const unsigned char *values,
                   int begin, int end, float gap, float step, float furthest, float slope) {
    typedef typename E::T T;
    const int lane = lane_id();
    float score[8][4];
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[2 * pair][i] = score[2 * pair + 1][i] = 0.0f;
        if (pair >= begin && pair < end) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                uint32_t b[4];
                ldmatrix4(b, keys + at_chunk<8>(pair * 16 + (lane & 7) + (lane >> 4) * 8, k * 2 + (lane >> 3 & 1)));
                mma<E>(score[2 * pair], q[k], b[0], b[1]);
                mma<E>(score[2 * pair + 1], q[k], b[2], b[3]);
            }
        }
    }
    // The distance of key 8j + e of this lane is gap + step·(8j + e) for the first row; what lies the other way, or
    // behind the clip's end, is not seen.
    float top[2] = {running.top[0], running.top[1]};
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int half = i / 2;
            const float distance = gap - step * static_cast<float>(8 * half) + step * static_cast<float>(8 * j + i % 2);
            const float limit = furthest - 8.0f * static_cast<float>(half);
            const bool seen = j / 2 >= begin && j / 2 < end && distance >= 0.0f && distance <= limit;
            score[j][i] = seen ? fmaf(score[j][i], SCALE * LOG2_E, -slope * distance) : -INFINITY;
            top[half] = fmaxf(top[half], score[j][i]);
        }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = fmaxf(top[half], lane_xor(top[half], 1));
        top[half] = fmaxf(top[half], lane_xor(top[half], 2));
        const float shrink = exp2f(running.top[half] - top[half]);
        running.top[half] = top[half];
        running.sum[half] *= shrink;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            running.out[j][2 * half] *= shrink;
            running.out[j][2 * half + 1] *= shrink;
        }
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[j][i] = exp2f(score[j][i] - top[i / 2]);
            running.sum[i / 2] += score[j][i];
        }
    // The products' layout is that of the next product's left side.
#pragma unroll
    for (int pair = 0; pair < 4; pair++)
        if (pair >= begin && pair < end) {
            const uint32_t a[4] = {pack2<T>(score[2 * pair][0], score[2 * pair][1]),
                                   pack2<T>(score[2 * pair][2], score[2 * pair][3]),
                                   pack2<T>(score[2 * pair + 1][0], score[2 * pair + 1][1]),
                                   pack2<T>(score[2 * pair + 1][2], score[2 * pair + 1][3])};
#pragma unroll
            for (int j = 0; j < 8; j += 2) {
                uint32_t b[4];
                ldmatrix4_trans(b, values + at_chunk<8>(pair * 16 + (lane & 15), j + (lane >> 4)));
                mma<E>(running.out[j], a, b[0], b[1]);
                mma<E>(running.out[j + 1], a, b[2], b[3]);
            }
        }
}

template <class E> DEVICE void attention(const AttentionParams &p) {
    typedef typename E::T T;
    DYNAMIC_SHARED(shared);
    unsigned char *queries = shared, *ring = shared + TILE * 128; // then per slot 64 keys, 64 values
    constexpr int PART = TILE * 128, SLOT = 2 * PART;
    const int lane = lane_id(), warp = threadIdx.x / 32, head = blockIdx.y;
    const bool back = head < p.heads / 2;
    const int first = blockIdx.z * TILE, tiles = (p.frames + TILE - 1) / TILE;
    const int from = back ? 0 : blockIdx.z, to = back ? static_cast<int>(blockIdx.z) + 1 : tiles;
    const bool active = first + warp * 16 < p.frames;
    const float slope = p.slopes[head] * LOG2_E;

    HeadRows<T, TILE> q_rows, k_rows, v_rows;
    q_rows.load(queries, p, 0, first);
    k_rows.load(ring, p, 1, from * TILE);
    v_rows.load(ring + PART, p, 2, from * TILE);
    copy_commit();
    q_rows.store(queries);
    k_rows.store(ring);
    v_rows.store(ring + PART);

    uint32_t q[4][4];
    Running running;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        running.top[half] = LOWEST;
        running.sum[half] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            running.out[j][i] = 0.0f;
    // The first of the lane's two rows.
    const int row = first + warp * 16 + lane / 4;
    const float furthest = back ? 1e30f : static_cast<float>(p.frames - 1 - row);
    int slot = 0;
    for (int tile = from; tile < to; tile++) {
        const bool more = tile + 1 < to;
        unsigned char *next = ring + (slot ^ 1) * SLOT;
        if (more) {
            k_rows.load(next, p, 1, (tile + 1) * TILE);
            v_rows.load(next + PART, p, 2, (tile + 1) * TILE);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        if (active) {
            if (tile == from) {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    ldmatrix4(q[k], queries + at_chunk<8>(warp * 16 + (lane & 15), k * 2 + (lane >> 4)));
            }
            const bool diagonal = first == tile * TILE;
            const int begin = diagonal && !back ? warp : 0;
            const int end = min(diagonal && back ? warp + 1 : 4, (p.frames - tile * TILE + 15) / 16);
            const int apart = row - (tile * TILE + 2 * (lane & 3));
            attend<E>(running, q, ring + slot * SLOT, ring + slot * SLOT + PART, begin, end,
                      static_cast<float>(back ? apart : -apart), back ? -1.0f : 1.0f, furthest, slope);
        }
        if (more) {
            k_rows.store(next);
            v_rows.store(next + PART);
        }
        __syncthreads();
        slot ^= 1;
    }
    if (!active)
        return;
    // Through the warp's own rows of the queries, which are done with, to whole rows of 128 bytes.
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = running.sum[half];
        sum += lane_xor(sum, 1);
        sum += lane_xor(sum, 2);
        const float share = 1.0f / sum;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            unsigned char *to_pair = queries + at_chunk<8>(warp * 16 + lane / 4 + half * 8, j) + lane % 4 * 4;
            *reinterpret_cast<uint32_t *>(to_pair) =
                pack2<T>(running.out[j][2 * half] * share, running.out[j][2 * half + 1] * share);
        }
    }
    __syncwarp();
    T *out = static_cast<T *>(p.out) + static_cast<size_t>(blockIdx.x) * p.frames * p.c + head * HEAD + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int local = warp * 16 + i * 4 + lane / 8;
        if (first + local < p.frames)
            *reinterpret_cast<uint4 *>(out + static_cast<size_t>(first + local) * p.c) =
                *reinterpret_cast<const uint4 *>(queries + at_chunk<8>(local, lane % 8));
    }
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define BLOCKS 2 // shared memory allows no more; copies wait in registers
#else
#define BLOCKS 4
#endif
KERNEL(attention_f16, AttentionParams, 128, BLOCKS) { attention<F16>(p); }
EXPORT(attention_f16, AttentionParams);
KERNEL(attention_bf16, AttentionParams, 128, BLOCKS) { attention<Bf16>(p); }
EXPORT(attention_bf16, AttentionParams);

// ---- Without Tensor Cores: f32 throughout ----

#define KEYS 32         // keys of a tile
#define WEIGHT_ROW 40   // floats from one row of weights to the next: four rows' columns lie in different banks

// A lane has rows lane/8 + 4r of its warp's 16. Of scores it has keys lane%8 + 8k, of the result channels
// 4·(lane%8)..+4 and 32 more.
KERNEL(attention_f32, AttentionParams, 128, BLOCKS) {
    DYNAMIC_SHARED(held);
    unsigned char *queries = held, *keys = held + TILE * 256, *values = keys + KEYS * 256;
    float *weights = reinterpret_cast<float *>(values + KEYS * 256); // [64][WEIGHT_ROW]
    const int lane = lane_id(), warp = threadIdx.x / 32, head = blockIdx.y;
    const int group = lane / 8, member = lane % 8;
    const bool back = head < p.heads / 2;
    const int first = blockIdx.z * TILE, own = first + warp * 16;
    const int begin = back ? 0 : first, end = back ? min(first + TILE, p.frames) : p.frames;
    const float slope = p.slopes[head];
    weights += warp * 16 * WEIGHT_ROW;

    HeadRows<float, TILE> q_rows;
    q_rows.load(queries, p, 0, first);
    q_rows.store(queries);
    float top[4], sum[4], out[4][8];
#pragma unroll
    for (int r = 0; r < 4; r++) {
        top[r] = LOWEST;
        sum[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[r][i] = 0.0f;
    }
    for (int tile = begin; tile < end; tile += KEYS) {
        HeadRows<float, KEYS> k_rows, v_rows;
        k_rows.load(keys, p, 1, tile);
        v_rows.load(values, p, 2, tile);
        copy_commit();
        k_rows.store(keys);
        v_rows.store(values);
        copy_wait<0>();
        __syncthreads();
        if (own < p.frames && (back ? tile <= own + 15 : tile + KEYS > own)) {
            float score[4][4];
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    score[r][k] = 0.0f;
#pragma unroll 4
            for (int chunk = 0; chunk < 16; chunk++) {
                float4 q[4], k[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    q[i] = *reinterpret_cast<const float4 *>(queries + at_chunk<16>(warp * 16 + group + 4 * i, chunk));
                    k[i] = *reinterpret_cast<const float4 *>(keys + at_chunk<16>(member + 8 * i, chunk));
                }
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        score[r][i] = fmaf(q[r].x, k[i].x, score[r][i]);
                        score[r][i] = fmaf(q[r].y, k[i].y, score[r][i]);
                        score[r][i] = fmaf(q[r].z, k[i].z, score[r][i]);
                        score[r][i] = fmaf(q[r].w, k[i].w, score[r][i]);
                    }
            }
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const int row = own + group + 4 * r;
                float highest = top[r];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int key = tile + member + 8 * k, distance = back ? row - key : key - row;
                    const bool seen = distance >= 0 && key < p.frames;
                    score[r][k] = seen ? fmaf(score[r][k], SCALE, -slope * static_cast<float>(distance)) : -INFINITY;
                    highest = fmaxf(highest, score[r][k]);
                }
                highest = lanes_max<8>(highest);
                const float shrink = expf(top[r] - highest);
                top[r] = highest;
                sum[r] *= shrink;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    out[r][i] *= shrink;
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const float weight = expf(score[r][k] - highest);
                    sum[r] += weight;
                    weights[(group + 4 * r) * WEIGHT_ROW + member + 8 * k] = weight;
                }
            }
            __syncwarp();
#pragma unroll 2
            for (int key = 0; key < KEYS; key += 4) {
                float weight[4][4];
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const float4 four = *reinterpret_cast<const float4 *>(weights + (group + 4 * r) * WEIGHT_ROW + key);
                    weight[r][0] = four.x, weight[r][1] = four.y, weight[r][2] = four.z, weight[r][3] = four.w;
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float4 low = *reinterpret_cast<const float4 *>(values + at_chunk<16>(key + i, member));
                    const float4 high = *reinterpret_cast<const float4 *>(values + at_chunk<16>(key + i, member + 8));
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        out[r][0] = fmaf(weight[r][i], low.x, out[r][0]);
                        out[r][1] = fmaf(weight[r][i], low.y, out[r][1]);
                        out[r][2] = fmaf(weight[r][i], low.z, out[r][2]);
                        out[r][3] = fmaf(weight[r][i], low.w, out[r][3]);
                        out[r][4] = fmaf(weight[r][i], high.x, out[r][4]);
                        out[r][5] = fmaf(weight[r][i], high.y, out[r][5]);
                        out[r][6] = fmaf(weight[r][i], high.z, out[r][6]);
                        out[r][7] = fmaf(weight[r][i], high.w, out[r][7]);
                    }
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const float share = 1.0f / lanes_sum<8>(sum[r]);
        const int row = own + group + 4 * r;
        if (row < p.frames) {
            float *to = static_cast<float *>(p.out) +
                        (static_cast<size_t>(blockIdx.x) * p.frames + row) * p.c + head * HEAD + member * 4;
            *reinterpret_cast<float4 *>(to) =
                make_float4(out[r][0] * share, out[r][1] * share, out[r][2] * share, out[r][3] * share);
            *reinterpret_cast<float4 *>(to + 32) =
                make_float4(out[r][4] * share, out[r][5] * share, out[r][6] * share, out[r][7] * share);
        }
    }
}
EXPORT(attention_f32, AttentionParams);

// The ends of a refinement iteration: what a token knows of its motion, and what its output corrects.
#include "rows.cuh"

// ---- Motion ----

// Columns col..col + 88 of every token. Grid ceil(n·frames·11 / 256), 256 threads, no dynamic shared memory: a thread
// per eight columns.
struct MotionParams {
    const float *positions;             // [n, frames, 2]: x, y
    const float *occlusion, *expected;  // [n, frames]: logits
    void *tokens;                       // [n·frames, ld] T
    int frames, rows;                   // rows = n·frames
    int ld, col;                        // multiples of 8 (of 4 in f32)
    float scale_x, scale_y;             // what differences are multiplied by
};

// Columns: occlusion, expected distance, m = (forward x, forward y, backward x, backward y), sin(m_c·2^k) at 4k + c for
// k = 0..9, sin(m_c·2^k + π/2) in the same order, two zeros. Differences are zero beyond the clip's ends.
template <class T> DEVICE void motion(const MotionParams &p) {
    constexpr int OCTAVES = 10, N = Pack16<T>::N;
    const int item = blockIdx.x * 256 + threadIdx.x;
    const int row = item / 11, first = item % 11 * 8;
    if (row >= p.rows)
        return;
    const int frame = row % p.frames;
    const float2 *at = reinterpret_cast<const float2 *>(p.positions) + row;
    const float2 here = *at;
    float m[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (frame + 1 < p.frames) {
        const float2 next = at[1];
        m[0] = (here.x - next.x) * p.scale_x;
        m[1] = (here.y - next.y) * p.scale_y;
    }
    if (frame > 0) {
        const float2 before = at[-1];
        m[2] = (here.x - before.x) * p.scale_x;
        m[3] = (here.y - before.y) * p.scale_y;
    }
    float value[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        // Eight columns begin at a multiple of eight, so that i decides which of m's four numbers column i takes.
        const float mine = m[(i + 2) % 4];
        const int sine = first + i - 6, cosine = sine - 4 * OCTAVES;
        if (sine < 0) {
            value[i] = mine;
        } else if (cosine < 4 * OCTAVES) {
            const int octave = (cosine < 0 ? sine : cosine) / 4;
            const float angle = __fmul_rn(mine, static_cast<float>(1 << octave));
            value[i] = sinf(cosine < 0 ? angle : __fadd_rn(angle, 1.57079632679489662f));
        } else {
            value[i] = 0.0f;
        }
    }
    if (first == 0) {
        value[0] = p.occlusion[row];
        value[1] = p.expected[row];
    }
    T *out = static_cast<T *>(p.tokens) + static_cast<size_t>(row) * p.ld + p.col + first;
#pragma unroll
    for (int i = 0; i < 8; i += N) {
        Pack16<T> pack;
#pragma unroll
        for (int k = 0; k < N; k++)
            pack.v[k] = value[i + k];
        pack.store(out + i);
    }
}

KERNEL(motion_f16, MotionParams, 256, 4) { motion<half_t>(p); }
EXPORT(motion_f16, MotionParams);
KERNEL(motion_bf16, MotionParams, 256, 4) { motion<bf16_t>(p); }
EXPORT(motion_bf16, MotionParams);
KERNEL(motion_f32, MotionParams, 256, 4) { motion<float>(p); }
EXPORT(motion_f32, MotionParams);

// ---- Output ----

// The last layer norm, the four outputs that are used, and the state moved by them. Grid ceil(tokens / 16), 256
// threads, no dynamic shared memory: a warp takes two tokens, so that it reads the weights once for both.
struct OutputParams {
    const void *h;                           // [tokens, c] T; c a multiple of 8 up to 512
    const float *norm_weight, *norm_bias;    // [c]
    const float *weight, *bias;              // [4, c], [4]: Δx, Δy, occlusion, expected distance
    float *positions;                        // [tokens, 2]: += (Δx·scale_x, Δy·scale_y)
    float *occlusion, *expected;             // [tokens]: +=
    int tokens, c;
    float scale_x, scale_y;
};

template <class T, int CHUNKS> DEVICE void output_rows(const OutputParams &p) {
    typedef RowPair<T, CHUNKS> Rows;
    constexpr int N = Rows::N, ROWS = Rows::ROWS;
    const int first = Rows::first();
    if (first >= p.tokens)
        return;
    Rows rows;
    rows.load(static_cast<const T *>(p.h), first, p.tokens, p.c);
    float dot[ROWS][4] = {};
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
        for (int part = 0; part < N; part += 4) {
            const int channel = Rows::channel(k) + part;
            if (channel >= p.c)
                continue;
            Pack16<float> norm, shift;
            norm.load(p.norm_weight + channel);
            shift.load(p.norm_bias + channel);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    rows.value[r][k].v[part + i] = rows.normed(r, k, part + i, norm.v[i], shift.v[i]);
#pragma unroll
            for (int o = 0; o < 4; o++) {
                Pack16<float> weight;
                weight.load(p.weight + o * p.c + channel);
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        dot[r][o] = fmaf(rows.value[r][k].v[part + i], weight.v[i], dot[r][o]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float out[4];
#pragma unroll
        for (int o = 0; o < 4; o++)
            out[o] = lanes_sum(dot[r][o]) + p.bias[o];
        const int token = first + r;
        if (lane_id() == 0 && token < p.tokens) {
            float2 *at = reinterpret_cast<float2 *>(p.positions) + token;
            const float2 from = *at;
            *at = make_float2(from.x + out[0] * p.scale_x, from.y + out[1] * p.scale_y);
            p.occlusion[token] += out[2];
            p.expected[token] += out[3];
        }
    }
}

template <class T> DEVICE void output(const OutputParams &p) {
    const int chunks = (p.c + 32 * Pack16<T>::N - 1) / (32 * Pack16<T>::N);
    if (chunks <= 1)
        output_rows<T, 1>(p);
    else if (chunks == 2)
        output_rows<T, 2>(p);
    else
        output_rows<T, 4>(p);
}

KERNEL(output_f16, OutputParams, 256, 2) { output<half_t>(p); }
EXPORT(output_f16, OutputParams);
KERNEL(output_bf16, OutputParams, 256, 2) { output<bf16_t>(p); }
EXPORT(output_bf16, OutputParams);
KERNEL(output_f32, OutputParams, 256, 2) { output<float>(p); }
EXPORT(output_f32, OutputParams);

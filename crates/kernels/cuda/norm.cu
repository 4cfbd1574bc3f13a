// Normalisations. Statistics are f32 whatever the type in memory; sums have a fixed order, so that results repeat.
#include "rows.cuh"

// ---- Instance norm: statistics ----

// Grid (parts, frames), 256 threads, no dynamic shared memory. Part i of a frame is pixels i·rows..(i+1)·rows; the last
// parts may be short or empty. The block that is done last in its frame merges the frame's parts, always in the same
// order, so that results repeat whichever block that is.
struct NormStatsParams {
    const void *x;       // [frames, pixels, c] T; c is 64, 128 or 256 (a power of two from 8 to 256 will do)
    const float *weight; // [c]
    unsigned *done;      // [frames] parts that are done: zero before the first launch, and zero again after each
    float *partial;      // [frames, parts, 2, c]: a part's mean, and its sum of squared deviations from that mean
    float *moments;      // [frames, 2, c]: a frame's mean, and weight/sqrt(variance + eps)
    int pixels, c;
    int parts, rows; // parts·c is at most 4096, parts·rows at least `pixels`
};

// How a block's threads share out 16-byte columns of pixels. Widths are powers of two: no division.
template <class T> struct Columns {
    int log, channel, row, step; // columns' logarithm; a thread's first channel, first row, and rows to its next one
    DEVICE_MEMBER explicit Columns(int c) {
        log = 31 - __clz(c / Pack16<T>::N);
        channel = (threadIdx.x & ((1 << log) - 1)) * Pack16<T>::N;
        row = threadIdx.x >> log;
        step = 256 >> log;
    }
};

// Pixels of a part.
DEVICE float part_count(const NormStatsParams &p, int part) {
    return static_cast<float>(max(min(p.rows, p.pixels - part * p.rows), 0));
}

// 16 bytes as they lie in memory: several are on their way at a time in a quarter (16 bits) of the registers that their
// values would take.
template <class T> struct Raw16 {
    uint4 bits;
    DEVICE_MEMBER void load(const T *from) { bits = *reinterpret_cast<const uint4 *>(from); }
    DEVICE_MEMBER Pack16<T> values() const {
        Pack16<T> values;
        values.load(reinterpret_cast<const T *>(&bits));
        return values;
    }
};

// Adds 16 bytes of one pixel to a thread's sums. `shift` is the first value that the thread saw: sums of differences
// from it stay small, so that the variance does not come from the difference of two large numbers.
template <class T>
DEVICE void count(const Pack16<T> &x, const Pack16<T> &shift, Pack16<T> &sum, Pack16<T> &square) {
#pragma unroll
    for (int i = 0; i < Pack16<T>::N; i++) {
        const float d = x.v[i] - shift.v[i];
        sum.v[i] += d;
        square.v[i] = fmaf(d, d, square.v[i]);
    }
}

// A frame's mean and scale from its parts, by a whole block. `sums`: 256 values that nothing else uses.
DEVICE void merge_parts(const NormStatsParams &p, float *sums) {
    constexpr int MOST = 16; // parts that a thread takes
    const int log = 31 - __clz(p.c), together = 256 >> log;
    const int channel = threadIdx.x & (p.c - 1), first = threadIdx.x >> log;
    const float *partial = p.partial + static_cast<size_t>(blockIdx.y) * p.parts * 2 * p.c + channel;
    const float each = 1.0f / static_cast<float>(p.pixels);
    // Loads go past the first-level cache: other blocks wrote this. Means are averaged as differences from one of them,
    // so that the mean of a constant is that constant.
    const float base = __ldcg(partial);
    float means[MOST], mean = 0.0f, rest = 0.0f;
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int part = first + k * together;
        means[k] = part < p.parts ? __ldcg(partial + part * 2 * p.c) : 0.0f;
        rest += part < p.parts ? __ldcg(partial + (part * 2 + 1) * p.c) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int part = first + k * together;
        if (part < p.parts)
            mean = fmaf(part_count(p, part) * each, means[k] - base, mean);
    }
    sums[threadIdx.x] = mean;
    __syncthreads();
    float apart = 0.0f;
    for (int i = 0; i < together; i++)
        apart += sums[i * p.c + channel];
    mean = base + apart;
    __syncthreads();
    // The parts' means differ, which adds to the squared deviations.
#pragma unroll
    for (int k = 0; k < MOST; k++) {
        const int part = first + k * together;
        if (part < p.parts) {
            apart = means[k] - mean;
            rest = fmaf(part_count(p, part) * apart, apart, rest);
        }
    }
    sums[threadIdx.x] = rest;
    __syncthreads();
    if (first == 0) {
        rest = 0.0f;
        for (int i = 0; i < together; i++)
            rest += sums[i * p.c + channel];
        float *moments = p.moments + static_cast<size_t>(blockIdx.y) * 2 * p.c + channel;
        moments[0] = mean;
        moments[p.c] = p.weight[channel] / sqrtf(rest * each + NORM_EPS);
    }
}

template <class T> DEVICE void norm_stats(const NormStatsParams &p) {
    constexpr int N = Pack16<T>::N, UNROLL = 4;
    // Mean and squared deviations of groups of threads, [groups][c], and how many pixels each group saw.
    __shared__ __align__(16) float means[256 * N], squares[256 * N], counts[8];
    __shared__ unsigned before;
    const Columns<T> own(p.c);
    const int step = own.step, channel = own.channel;
    const int begin = min(static_cast<int>(blockIdx.x) * p.rows, p.pixels), end = min(begin + p.rows, p.pixels);

    int row = begin + own.row;
    const T *x = static_cast<const T *>(p.x) + (static_cast<size_t>(blockIdx.y) * p.pixels + row) * p.c + channel;
    const int stride = 256 * N;
    Pack16<T> shift, sum, square;
#pragma unroll
    for (int i = 0; i < N; i++)
        shift.v[i] = sum.v[i] = square.v[i] = 0.0f;
    float n = row < end ? static_cast<float>((end - row + step - 1) >> (8 - own.log)) : 0.0f;
    for (bool first = true; row < end; first = false, row += UNROLL * step, x += UNROLL * stride) {
        Raw16<T> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (row + u * step < end)
                raw[u].load(x + u * stride);
        if (first)
            shift = raw[0].values();
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (row + u * step < end)
                count(raw[u].values(), shift, sum, square);
    }

    // From here on `shift` is a mean and `square` the squared deviations from it, of n pixels.
    const float share = n > 0.0f ? 1.0f / n : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float apart = sum.v[i] * share;
        shift.v[i] += apart;
        square.v[i] = fmaxf(fmaf(-apart, sum.v[i], square.v[i]), 0.0f);
    }
    // Lanes of a warp that have the same channels. The means differ, which adds to the squared deviations.
    for (int mask = 1 << own.log; mask < 32; mask *= 2) {
        const float others = lane_xor(n, mask), both = n + others;
        const float share = both > 0.0f ? others / both : 0.0f, spread = n * share;
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float apart = lane_xor(shift.v[i], mask) - shift.v[i];
            square.v[i] += fmaf(apart * spread, apart, lane_xor(square.v[i], mask));
            shift.v[i] = fmaf(apart, share, shift.v[i]);
        }
        n = both;
    }
    // A group is a warp, or the warps that share a row.
    const int wide = max(own.log, 5), group = threadIdx.x >> wide;
    if ((static_cast<int>(threadIdx.x) & 31) < 1 << own.log) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const int at = group * p.c + channel + i;
            *reinterpret_cast<float4 *>(means + at) =
                make_float4(shift.v[i], shift.v[i + 1], shift.v[i + 2], shift.v[i + 3]);
            *reinterpret_cast<float4 *>(squares + at) =
                make_float4(square.v[i], square.v[i + 1], square.v[i + 2], square.v[i + 3]);
        }
        if (channel == 0)
            counts[group] = n;
    }
    __syncthreads();

    // The groups together.
    if (static_cast<int>(threadIdx.x) < p.c) {
        const int groups = 256 >> wide;
        const float each = begin < end ? 1.0f / static_cast<float>(end - begin) : 0.0f;
        const float base = means[threadIdx.x];
        float mean = 0.0f, rest = 0.0f;
#pragma unroll 4
        for (int i = 0; i < groups; i++)
            mean = fmaf(counts[i] * each, means[i * p.c + threadIdx.x] - base, mean);
        mean += base;
#pragma unroll 4
        for (int i = 0; i < groups; i++) {
            const float apart = means[i * p.c + threadIdx.x] - mean;
            rest += fmaf(counts[i] * apart, apart, squares[i * p.c + threadIdx.x]);
        }
        float *out = p.partial + (static_cast<size_t>(blockIdx.y) * p.parts + blockIdx.x) * 2 * p.c;
        out[threadIdx.x] = mean;
        out[p.c + threadIdx.x] = rest;
    }

    // What the block wrote is seen everywhere before its count is. The last count turns back to zero by itself.
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        before = atomicInc(p.done + blockIdx.y, p.parts - 1);
        __threadfence();
    }
    __syncthreads();
    if (before == static_cast<unsigned>(p.parts - 1))
        merge_parts(p, means);
}

KERNEL(norm_stats_f16, NormStatsParams, 256, 4) { norm_stats<half_t>(p); }
EXPORT(norm_stats_f16, NormStatsParams);
KERNEL(norm_stats_bf16, NormStatsParams, 256, 4) { norm_stats<bf16_t>(p); }
EXPORT(norm_stats_bf16, NormStatsParams);
KERNEL(norm_stats_f32, NormStatsParams, 256, 4) { norm_stats<float>(p); }
EXPORT(norm_stats_f32, NormStatsParams);

// ---- Instance norm: applied, with ReLU ----

// y = relu((x − mean)·weight/sqrt(variance + eps) + bias). Grid (ceil(pixels / rows), frames), 256 threads, no shared
// memory; a block normalises `rows` pixels of one frame. y may be x.
struct NormApplyParams {
    const void *x;        // [frames, pixels, c] T
    void *y;              // [frames, pixels, c] T
    const float *moments; // [frames, 2, c]: see NormStatsParams
    const float *bias;    // [c]
    int pixels, c, rows;
};

template <class T> DEVICE void norm_apply(const NormApplyParams &p) {
    constexpr int N = Pack16<T>::N, UNROLL = 4;
    const Columns<T> own(p.c);
    const int step = own.step, channel = own.channel;
    const float *moments = p.moments + static_cast<size_t>(blockIdx.y) * 2 * p.c + channel;
    Pack16<float> mean[N / 4], scale[N / 4], bias[N / 4];
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        mean[i].load(moments + i * 4);
        scale[i].load(moments + p.c + i * 4);
        bias[i].load(p.bias + channel + i * 4);
    }
    const int end = min((static_cast<int>(blockIdx.x) + 1) * p.rows, p.pixels);
    int row = blockIdx.x * p.rows + own.row;
    const size_t first = (static_cast<size_t>(blockIdx.y) * p.pixels + row) * p.c + channel;
    const int stride = 256 * N;
    const T *x = static_cast<const T *>(p.x) + first;
    T *y = static_cast<T *>(p.y) + first;
    for (; row < end; row += UNROLL * step, x += UNROLL * stride, y += UNROLL * stride) {
        Raw16<T> raw[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (row + u * step < end)
                raw[u].load(x + u * stride);
        // The mean is taken off first: folded into the bias, it would cancel badly where a picture is nearly constant.
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (row + u * step >= end)
                break;
            Pack16<T> value = raw[u].values();
#pragma unroll
            for (int i = 0; i < N; i++)
                value.v[i] =
                    relu(fmaf(value.v[i] - mean[i / 4].v[i % 4], scale[i / 4].v[i % 4], bias[i / 4].v[i % 4]));
            value.store(y + u * stride);
        }
    }
}

KERNEL(norm_apply_f16, NormApplyParams, 256, 4) { norm_apply<half_t>(p); }
EXPORT(norm_apply_f16, NormApplyParams);
KERNEL(norm_apply_bf16, NormApplyParams, 256, 4) { norm_apply<bf16_t>(p); }
EXPORT(norm_apply_bf16, NormApplyParams);
KERNEL(norm_apply_f32, NormApplyParams, 256, 4) { norm_apply<float>(p); }
EXPORT(norm_apply_f32, NormApplyParams);

// ---- Channels divided by their Euclidean norm ----

// y = x / sqrt(max(Σx², 1e-12)). 256 threads, no dynamic shared memory. A row is shared by l = min(32, c·bytes(T)/16)
// lanes: grid ceil(rows / (256 / l)), that is rows per block 32, 16, 8 for c = 64, 128, 256 in 16 bits and 16, 8, 8 in
// f32. y may be x.
struct L2NormParams {
    const void *x; // [rows, c] T; c is 64, 128 or 256
    void *y;       // [rows, c] T
    int rows, c;
};

template <class T, int LANES, int CHUNKS> DEVICE void l2_rows(const L2NormParams &p) {
    constexpr int N = Pack16<T>::N;
    const int row = blockIdx.x * (256 / LANES) + threadIdx.x / LANES;
    // Lanes behind the last row keep the others company in the sums.
    const size_t at = static_cast<size_t>(min(row, p.rows - 1)) * (LANES * CHUNKS * N) + threadIdx.x % LANES * N;
    const T *x = static_cast<const T *>(p.x) + at;
    T *y = static_cast<T *>(p.y) + at;
    Pack16<T> value[CHUNKS];
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
        value[k].load(x + k * LANES * N);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int i = 0; i < N; i++)
            sum = fmaf(value[k].v[i], value[k].v[i], sum);
    const float scale = 1.0f / sqrtf(fmaxf(lanes_sum<LANES>(sum), 1e-12f));
    if (row < p.rows) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
            for (int i = 0; i < N; i++)
                value[k].v[i] *= scale;
            value[k].store(y + k * LANES * N);
        }
    }
}

template <class T> DEVICE void l2_normalize(const L2NormParams &p) {
    const int chunks = p.c / Pack16<T>::N;
    if (chunks == 8)
        l2_rows<T, 8, 1>(p);
    else if (chunks == 16)
        l2_rows<T, 16, 1>(p);
    else if (chunks == 32)
        l2_rows<T, 32, 1>(p);
    else
        l2_rows<T, 32, 2>(p);
}

KERNEL(l2_normalize_f16, L2NormParams, 256, 4) { l2_normalize<half_t>(p); }
EXPORT(l2_normalize_f16, L2NormParams);
KERNEL(l2_normalize_bf16, L2NormParams, 256, 4) { l2_normalize<bf16_t>(p); }
EXPORT(l2_normalize_bf16, L2NormParams);
KERNEL(l2_normalize_f32, L2NormParams, 256, 4) { l2_normalize<float>(p); }
EXPORT(l2_normalize_f32, L2NormParams);

// ---- Layer norm ----

// y = (x − mean)·weight/sqrt(variance + eps) + bias over each row. Grid ceil(rows / 16), 256 threads, no dynamic
// shared memory: a warp takes two rows, so that it reads weight and bias once for both. y may be x.
struct LayerNormParams {
    const void *x; // [rows, c] T; c a multiple of 8 up to 1024
    void *y;       // [rows, c] T
    const float *weight, *bias; // [c]
    int rows, c;
};

template <class T, int CHUNKS> DEVICE void layer_norm_rows(const LayerNormParams &p) {
    typedef RowPair<T, CHUNKS> Rows;
    constexpr int N = Rows::N, ROWS = Rows::ROWS;
    const int first = Rows::first();
    if (first >= p.rows)
        return;
    Rows rows;
    rows.load(static_cast<const T *>(p.x), first, p.rows, p.c);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int channel = Rows::channel(k);
        if (channel >= p.c)
            continue;
        Pack16<float> weight[N / 4], bias[N / 4];
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            weight[i].load(p.weight + channel + i * 4);
            bias[i].load(p.bias + channel + i * 4);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < N; i++)
                rows.value[r][k].v[i] = rows.normed(r, k, i, weight[i / 4].v[i % 4], bias[i / 4].v[i % 4]);
            if (first + r < p.rows)
                rows.value[r][k].store(static_cast<T *>(p.y) + static_cast<size_t>(first + r) * p.c + channel);
        }
    }
}

template <class T> DEVICE void layer_norm(const LayerNormParams &p) {
    const int chunks = (p.c + 32 * Pack16<T>::N - 1) / (32 * Pack16<T>::N);
    if (chunks <= 1)
        layer_norm_rows<T, 1>(p);
    else if (chunks == 2)
        layer_norm_rows<T, 2>(p);
    else if (chunks <= 4)
        layer_norm_rows<T, 4>(p);
    else
        layer_norm_rows<T, 32 / Pack16<T>::N>(p);
}

KERNEL(layer_norm_f16, LayerNormParams, 256, 2) { layer_norm<half_t>(p); }
EXPORT(layer_norm_f16, LayerNormParams);
KERNEL(layer_norm_bf16, LayerNormParams, 256, 2) { layer_norm<bf16_t>(p); }
EXPORT(layer_norm_bf16, LayerNormParams);
KERNEL(layer_norm_f32, LayerNormParams, 256, 2) { layer_norm<float>(p); }
EXPORT(layer_norm_f32, LayerNormParams);

// ---- Group norm with ReLU, of the correlation encoder in f32 ----

// `pixels` consecutive rows are a picture; 16 consecutive channels of a picture are a group. y = relu((x − mean)·
// weight/sqrt(variance + eps) + bias). Grid (ceil(rows / pixels · c / 4 / 256), batch), 256 threads, no dynamic shared
// memory: four lanes share a group.
//
// Row r, channel k of batch entry z goes to out[(r % period)·ld + column + (r / period)·step + z·out_stride + k]: with
// period = rows, ld = c and out_stride = in_stride that is where it came from (out may be x), and the last layer can
// write its vectors side by side into the rows of the token matrix.
struct GroupNormParams {
    const float *x;             // [batch] × [rows, c], entries `in_stride` values apart; c a multiple of 16
    float *out;                 // ld, column, step and the strides are multiples of 4
    const float *weight, *bias; // [batch] × [c], entries `affine_stride` values apart
    int64_t in_stride, out_stride;
    int rows, pixels, c, affine_stride;
    int period, ld, column, step;
};

KERNEL(group_norm_relu_f32, GroupNormParams, 256, 4) {
    const int quads = p.c / 4, item = blockIdx.x * 256 + threadIdx.x;
    const int pictures = p.rows / p.pixels;
    // Lanes behind the last group keep the others company in the sums.
    const int picture = min(item / quads, pictures - 1), channel = item % quads * 4;
    const float *x = p.x + blockIdx.y * p.in_stride + static_cast<size_t>(picture) * p.pixels * p.c + channel;
    const float each = 1.0f / static_cast<float>(p.pixels * 16);
    float sum = 0.0f, square = 0.0f;
#pragma unroll 4
    for (int i = 0; i < p.pixels; i++) {
        const float4 v = *reinterpret_cast<const float4 *>(x + static_cast<size_t>(i) * p.c);
        sum += (v.x + v.y) + (v.z + v.w);
    }
    const float mean = lanes_sum<4>(sum) * each;
    // A group is a few KB at most: what is read again comes from the nearest cache.
#pragma unroll 4
    for (int i = 0; i < p.pixels; i++) {
        const float4 v = *reinterpret_cast<const float4 *>(x + static_cast<size_t>(i) * p.c);
        const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
        square = fmaf(a, a, square);
        square = fmaf(b, b, square);
        square = fmaf(c, c, square);
        square = fmaf(d, d, square);
    }
    const float scale = 1.0f / sqrtf(lanes_sum<4>(square) * each + NORM_EPS);
    if (item >= pictures * quads)
        return;
    const float4 weight = *reinterpret_cast<const float4 *>(p.weight + blockIdx.y * p.affine_stride + channel);
    const float4 bias = *reinterpret_cast<const float4 *>(p.bias + blockIdx.y * p.affine_stride + channel);
    float *out = p.out + blockIdx.y * p.out_stride + p.column + channel;
#pragma unroll 4
    for (int i = 0; i < p.pixels; i++) {
        float4 v = *reinterpret_cast<const float4 *>(x + static_cast<size_t>(i) * p.c);
        v.x = relu(fmaf((v.x - mean) * scale, weight.x, bias.x));
        v.y = relu(fmaf((v.y - mean) * scale, weight.y, bias.y));
        v.z = relu(fmaf((v.z - mean) * scale, weight.z, bias.z));
        v.w = relu(fmaf((v.w - mean) * scale, weight.w, bias.w));
        const int row = picture * p.pixels + i;
        *reinterpret_cast<float4 *>(out + static_cast<size_t>(row % p.period) * p.ld +
                                    static_cast<size_t>(row / p.period) * p.step) = v;
    }
}
EXPORT(group_norm_relu_f32, GroupNormParams);

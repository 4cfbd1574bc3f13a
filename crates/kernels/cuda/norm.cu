// Normalisations. Statistics are f32 whatever the type in memory; sums have a fixed order, so that results repeat.
#include "device.cuh"

// Added to a variance before its root.
#define EPSILON 1e-5f

// ---- Instance norm: statistics ----

// Grid (parts, frames), 256 threads, no dynamic shared memory. Part i of a frame is rows i·r..(i+1)·r of its pixels,
// r = ceil(pixels / parts); the last parts may be short or empty.
struct NormStatsParams {
    const void *x;  // [frames, pixels, c] T; c is 64, 128 or 256 (8 to 256 and a power of two will do)
    float *partial; // [frames, parts, 2, c]: a part's mean, and its sum of squared deviations from that mean
    int pixels, c, parts;
};

struct Rows {
    int begin, end;
    DEVICE_MEMBER Rows(int part, int parts, int pixels) {
        const int rows = (pixels + parts - 1) / parts;
        begin = min(part * rows, pixels);
        end = min(begin + rows, pixels);
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

template <class T> DEVICE void norm_stats(const NormStatsParams &p) {
    constexpr int N = Pack16<T>::N, UNROLL = 4;
    // Each thread's mean and squared deviations: [rows in a step][c].
    __shared__ __align__(16) float means[256 * N], squares[256 * N];
    const int columns = p.c / N, step = 256 / columns;
    const int channel = threadIdx.x % columns * N, lane = threadIdx.x / columns;
    const Rows rows(blockIdx.x, p.parts, p.pixels);
    const T *x = static_cast<const T *>(p.x) + static_cast<size_t>(blockIdx.y) * p.pixels * p.c + channel;

    int row = rows.begin + lane;
    Pack16<T> shift, sum, square;
#pragma unroll
    for (int i = 0; i < N; i++)
        shift.v[i] = sum.v[i] = square.v[i] = 0.0f;
    const int seen = row < rows.end ? (rows.end - row + step - 1) / step : 0;
    if (seen > 0)
        shift.load(x + static_cast<size_t>(row) * p.c);
    for (; row + (UNROLL - 1) * step < rows.end; row += UNROLL * step) {
        Pack16<T> value[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            value[u].load(x + static_cast<size_t>(row + u * step) * p.c);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            count(value[u], shift, sum, square);
    }
    for (; row < rows.end; row += step) {
        Pack16<T> value;
        value.load(x + static_cast<size_t>(row) * p.c);
        count(value, shift, sum, square);
    }
    const float share = seen > 0 ? 1.0f / static_cast<float>(seen) : 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float mean[4], rest[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float apart = sum.v[i + k] * share;
            mean[k] = shift.v[i + k] + apart;
            rest[k] = fmaxf(fmaf(-apart, sum.v[i + k], square.v[i + k]), 0.0f);
        }
        *reinterpret_cast<float4 *>(means + lane * p.c + channel + i) = make_float4(mean[0], mean[1], mean[2], mean[3]);
        *reinterpret_cast<float4 *>(squares + lane * p.c + channel + i) =
            make_float4(rest[0], rest[1], rest[2], rest[3]);
    }
    __syncthreads();

    // All threads' rows together: their means differ, which adds to the squared deviations.
    if (static_cast<int>(threadIdx.x) < p.c) {
        const int total = rows.end - rows.begin;
        const float each = total > 0 ? 1.0f / static_cast<float>(total) : 0.0f;
        float mean = 0.0f, rest = 0.0f;
        for (int i = 0; i < step; i++) {
            const float n = static_cast<float>(max(total - i + step - 1, 0) / step);
            mean = fmaf(n * each, means[i * p.c + threadIdx.x], mean);
        }
        for (int i = 0; i < step; i++) {
            const float n = static_cast<float>(max(total - i + step - 1, 0) / step);
            const float apart = means[i * p.c + threadIdx.x] - mean;
            rest += fmaf(n * apart, apart, squares[i * p.c + threadIdx.x]);
        }
        float *out = p.partial + (static_cast<size_t>(blockIdx.y) * p.parts + blockIdx.x) * 2 * p.c;
        out[threadIdx.x] = mean;
        out[p.c + threadIdx.x] = rest;
    }
}

KERNEL(norm_stats_f16, NormStatsParams, 256, 4) { norm_stats<half_t>(p); }
EXPORT(norm_stats_f16, NormStatsParams);
KERNEL(norm_stats_bf16, NormStatsParams, 256, 4) { norm_stats<bf16_t>(p); }
EXPORT(norm_stats_bf16, NormStatsParams);
KERNEL(norm_stats_f32, NormStatsParams, 256, 4) { norm_stats<float>(p); }
EXPORT(norm_stats_f32, NormStatsParams);

// ---- Instance norm: applied, with ReLU ----

// y = relu((x − mean)·weight/sqrt(variance + eps) + bias). Grid (ceil(pixels / rows), frames), 256 threads, no dynamic
// shared memory; a block normalises `rows` pixels of one frame, and reads all parts of that frame first: choose rows
// large against `parts`. y may be x.
struct NormApplyParams {
    const void *x; // [frames, pixels, c] T
    void *y;       // [frames, pixels, c] T
    const float *partial;
    const float *weight, *bias; // [c]
    int pixels, c, parts, rows;
};

template <class T> DEVICE void norm_apply(const NormApplyParams &p) {
    constexpr int N = Pack16<T>::N, UNROLL = 4;
    __shared__ __align__(16) float means[256], scales[256];
    if (static_cast<int>(threadIdx.x) < p.c) {
        const float *partial = p.partial + static_cast<size_t>(blockIdx.y) * p.parts * 2 * p.c + threadIdx.x;
        const float each = 1.0f / static_cast<float>(p.pixels);
        float mean = 0.0f, rest = 0.0f;
#pragma unroll 4
        for (int i = 0; i < p.parts; i++) {
            const Rows part(i, p.parts, p.pixels);
            mean = fmaf(static_cast<float>(part.end - part.begin) * each, partial[i * 2 * p.c], mean);
        }
#pragma unroll 4
        for (int i = 0; i < p.parts; i++) {
            const Rows part(i, p.parts, p.pixels);
            const float apart = partial[i * 2 * p.c] - mean;
            rest += fmaf(static_cast<float>(part.end - part.begin) * apart, apart, partial[(i * 2 + 1) * p.c]);
        }
        means[threadIdx.x] = mean;
        scales[threadIdx.x] = p.weight[threadIdx.x] / sqrtf(rest * each + EPSILON);
    }
    __syncthreads();

    const int columns = p.c / N, step = 256 / columns;
    const int channel = threadIdx.x % columns * N;
    float mean[N], scale[N], bias[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        mean[i] = means[channel + i];
        scale[i] = scales[channel + i];
        bias[i] = p.bias[channel + i];
    }
    const size_t first = static_cast<size_t>(blockIdx.y) * p.pixels * p.c + channel;
    const T *x = static_cast<const T *>(p.x) + first;
    T *y = static_cast<T *>(p.y) + first;
    const int end = min((static_cast<int>(blockIdx.x) + 1) * p.rows, p.pixels);
    int row = blockIdx.x * p.rows + threadIdx.x / columns;
    // The mean is taken off first: folded into the bias, it would cancel badly where a picture is nearly constant.
    for (; row + (UNROLL - 1) * step < end; row += UNROLL * step) {
        Pack16<T> value[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            value[u].load(x + static_cast<size_t>(row + u * step) * p.c);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
#pragma unroll
            for (int i = 0; i < N; i++)
                value[u].v[i] = fmaxf(fmaf(value[u].v[i] - mean[i], scale[i], bias[i]), 0.0f);
            value[u].store(y + static_cast<size_t>(row + u * step) * p.c);
        }
    }
    for (; row < end; row += step) {
        Pack16<T> value;
        value.load(x + static_cast<size_t>(row) * p.c);
#pragma unroll
        for (int i = 0; i < N; i++)
            value.v[i] = fmaxf(fmaf(value.v[i] - mean[i], scale[i], bias[i]), 0.0f);
        value.store(y + static_cast<size_t>(row) * p.c);
    }
}

KERNEL(norm_apply_f16, NormApplyParams, 256, 3) { norm_apply<half_t>(p); }
EXPORT(norm_apply_f16, NormApplyParams);
KERNEL(norm_apply_bf16, NormApplyParams, 256, 3) { norm_apply<bf16_t>(p); }
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

// CHUNKS: 16-byte chunks of a row that a lane holds.
template <class T, int CHUNKS> DEVICE void layer_norm_rows(const LayerNormParams &p) {
    constexpr int N = Pack16<T>::N, ROWS = 2;
    const int first = (blockIdx.x * 8 + threadIdx.x / 32) * ROWS, lane = lane_id();
    if (first >= p.rows)
        return;
    Pack16<T> value[ROWS][CHUNKS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const T *x = static_cast<const T *>(p.x) + static_cast<size_t>(min(first + r, p.rows - 1)) * p.c;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int channel = (k * 32 + lane) * N;
            if (channel < p.c) {
                value[r][k].load(x + channel);
            } else {
#pragma unroll
                for (int i = 0; i < N; i++)
                    value[r][k].v[i] = 0.0f;
            }
        }
    }
    const float each = 1.0f / static_cast<float>(p.c);
    float mean[ROWS], scale[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum = 0.0f, square = 0.0f;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
#pragma unroll
            for (int i = 0; i < N; i++)
                sum += value[r][k].v[i];
        mean[r] = lanes_sum(sum) * each;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++)
            if ((k * 32 + lane) * N < p.c)
#pragma unroll
                for (int i = 0; i < N; i++) {
                    const float d = value[r][k].v[i] - mean[r];
                    square = fmaf(d, d, square);
                }
        scale[r] = 1.0f / sqrtf(lanes_sum(square) * each + EPSILON);
    }
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        const int channel = (k * 32 + lane) * N;
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
                value[r][k].v[i] =
                    fmaf((value[r][k].v[i] - mean[r]) * scale[r], weight[i / 4].v[i % 4], bias[i / 4].v[i % 4]);
            if (first + r < p.rows)
                value[r][k].store(static_cast<T *>(p.y) + static_cast<size_t>(first + r) * p.c + channel);
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
    const float scale = 1.0f / sqrtf(lanes_sum<4>(square) * each + EPSILON);
    if (item >= pictures * quads)
        return;
    const float4 weight = *reinterpret_cast<const float4 *>(p.weight + blockIdx.y * p.affine_stride + channel);
    const float4 bias = *reinterpret_cast<const float4 *>(p.bias + blockIdx.y * p.affine_stride + channel);
    float *out = p.out + blockIdx.y * p.out_stride + p.column + channel;
#pragma unroll 4
    for (int i = 0; i < p.pixels; i++) {
        float4 v = *reinterpret_cast<const float4 *>(x + static_cast<size_t>(i) * p.c);
        v.x = fmaxf(fmaf((v.x - mean) * scale, weight.x, bias.x), 0.0f);
        v.y = fmaxf(fmaf((v.y - mean) * scale, weight.y, bias.y), 0.0f);
        v.z = fmaxf(fmaf((v.z - mean) * scale, weight.z, bias.z), 0.0f);
        v.w = fmaxf(fmaf((v.w - mean) * scale, weight.w, bias.w), 0.0f);
        const int row = picture * p.pixels + i;
        *reinterpret_cast<float4 *>(out + static_cast<size_t>(row % p.period) * p.ld +
                                    static_cast<size_t>(row / p.period) * p.step) = v;
    }
}
EXPORT(group_norm_relu_f32, GroupNormParams);

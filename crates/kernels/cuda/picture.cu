// Pictures to what the encoder reads, and queries' supports from what it gives.
#include "resize.cuh"

// ---- Pictures ----

// One launch for n pictures. Grid (ceil(h·w / 256), n), 256 threads, no dynamic shared memory: a thread per pixel of
// the result. Pictures of a launch: at most 65535.
struct PictureParams {
    const void *source; // [n, height, width, 3] u8 or f32, 0..255
    void *out;          // resize: [n, h, w, 3] f32, 0..255; to_input: [n, h, w, 4] T, −1..1, the fourth channel 0
    int height, width;  // of the source
    int h, w;           // of the result
};

// The three channels of one pixel of the resized picture, 0..255.
template <class Source> DEVICE void resized(const PictureParams &p, int pixel, float (&value)[3]) {
    const Tap row = tap(pixel / p.w, p.height, p.h), column = tap(pixel % p.w, p.width, p.w);
    const Source *picture = static_cast<const Source *>(p.source) +
                            static_cast<size_t>(blockIdx.y) * p.height * p.width * 3;
    const Source *above = picture + static_cast<size_t>(row.low) * p.width * 3;
    const Source *below = picture + static_cast<size_t>(row.high) * p.width * 3;
    const int l = column.low * 3, h = column.high * 3;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const float al = static_cast<float>(above[l + i]), ah = static_cast<float>(above[h + i]);
        const float bl = static_cast<float>(below[l + i]), bh = static_cast<float>(below[h + i]);
        const float top = al * (1.0f - column.weight) + ah * column.weight;
        const float bottom = bl * (1.0f - column.weight) + bh * column.weight;
        value[i] = top * (1.0f - row.weight) + bottom * row.weight;
    }
}

template <class T> DEVICE void store4(T *to, float a, float b, float c, float d) {
    *reinterpret_cast<uint2 *>(to) = make_uint2(pack2<T>(a, b), pack2<T>(c, d));
}
template <> __device__ __forceinline__ void store4<float>(float *to, float a, float b, float c, float d) {
    *reinterpret_cast<float4 *>(to) = make_float4(a, b, c, d);
}

template <class T, class Source> DEVICE void to_input(const PictureParams &p) {
    const int pixel = blockIdx.x * 256 + threadIdx.x;
    if (pixel >= p.h * p.w)
        return;
    float v[3];
    resized<Source>(p, pixel, v);
#pragma unroll
    for (int i = 0; i < 3; i++)
        v[i] = v[i] * (1.0f / 127.5f) - 1.0f;
    T *out = static_cast<T *>(p.out) + (static_cast<size_t>(blockIdx.y) * p.h * p.w + pixel) * 4;
    store4<T>(out, v[0], v[1], v[2], 0.0f);
}

KERNEL(resize_u8_f32, PictureParams, 256, 4) {
    const int pixel = blockIdx.x * 256 + threadIdx.x;
    if (pixel >= p.h * p.w)
        return;
    float v[3];
    resized<uint8_t>(p, pixel, v);
    float *out = static_cast<float *>(p.out) + (static_cast<size_t>(blockIdx.y) * p.h * p.w + pixel) * 3;
#pragma unroll
    for (int i = 0; i < 3; i++)
        out[i] = v[i];
}
EXPORT(resize_u8_f32, PictureParams);

KERNEL(to_input_f16, PictureParams, 256, 4) { to_input<half_t, uint8_t>(p); }
EXPORT(to_input_f16, PictureParams);
KERNEL(to_input_bf16, PictureParams, 256, 4) { to_input<bf16_t, uint8_t>(p); }
EXPORT(to_input_bf16, PictureParams);
KERNEL(to_input_f32, PictureParams, 256, 4) { to_input<float, uint8_t>(p); }
EXPORT(to_input_f32, PictureParams);
// From pictures that were resized before and never rounded back to u8.
KERNEL(to_input_from_f32_f16, PictureParams, 256, 4) { to_input<half_t, float>(p); }
EXPORT(to_input_from_f32_f16, PictureParams);
KERNEL(to_input_from_f32_bf16, PictureParams, 256, 4) { to_input<bf16_t, float>(p); }
EXPORT(to_input_from_f32_bf16, PictureParams);
KERNEL(to_input_from_f32_f32, PictureParams, 256, 4) { to_input<float, float>(p); }
EXPORT(to_input_from_f32_f32, PictureParams);

// ---- Supports ----

// The 7×7 neighbourhood of each query, trilinear over frames, rows and columns, clamped to the border. Grid (n, 7),
// 128 threads, no dynamic shared memory: a block per query and row of its support.
struct SupportParams {
    const void *grid;     // [frames, height, width, c] T, c a multiple of 8
    const float *queries; // [n, 3]: t (a frame's index), y, x (raster positions in cells of the grid)
    void *support;        // [n, 49, c] T, row by row
    void *centre;         // [n, c] T: the middle one of the 49, or null
    int frames, height, width, c;
};

// The two cells around an index clamped to an axis.
DEVICE Tap around(float at, int size) {
    at = fminf(fmaxf(at, 0.0f), static_cast<float>(size - 1));
    Tap t;
    t.low = static_cast<int>(at);
    t.high = min(t.low + 1, size - 1);
    t.weight = at - static_cast<float>(t.low);
    return t;
}

template <class T> DEVICE void sample_support(const SupportParams &p) {
    constexpr int N = Pack16<T>::N;
    const int query = blockIdx.x, i = blockIdx.y;
    const float *at = p.queries + static_cast<size_t>(query) * 3;
    const Tap frame = around(at[0], p.frames);
    const Tap row = around(at[1] - 0.5f + static_cast<float>(i - 3), p.height);
    const int chunks = p.c / N;
    for (int item = threadIdx.x; item < 7 * chunks; item += 128) {
        const int j = item / chunks, channel = item % chunks * N;
        const Tap column = around(at[2] - 0.5f + static_cast<float>(j - 3), p.width);
        Pack16<T> sum;
#pragma unroll
        for (int k = 0; k < N; k++)
            sum.v[k] = 0.0f;
#pragma unroll
        for (int corner = 0; corner < 8; corner++) {
            const bool later = corner & 4, lower = corner & 2, right = corner & 1;
            const float weight = (later ? frame.weight : 1.0f - frame.weight) *
                                 (lower ? row.weight : 1.0f - row.weight) *
                                 (right ? column.weight : 1.0f - column.weight);
            // A weight of zero must not bring in what is not a number, and mostly spares a whole frame.
            if (weight != 0.0f) {
                const size_t cell = (static_cast<size_t>(later ? frame.high : frame.low) * p.height +
                                     (lower ? row.high : row.low)) *
                                        p.width +
                                    (right ? column.high : column.low);
                Pack16<T> value;
                value.load(static_cast<const T *>(p.grid) + cell * p.c + channel);
#pragma unroll
                for (int k = 0; k < N; k++)
                    sum.v[k] = fmaf(value.v[k], weight, sum.v[k]);
            }
        }
        sum.store(static_cast<T *>(p.support) + (static_cast<size_t>(query) * 49 + i * 7 + j) * p.c + channel);
        if (p.centre && i == 3 && j == 3)
            sum.store(static_cast<T *>(p.centre) + static_cast<size_t>(query) * p.c + channel);
    }
}

KERNEL(sample_support_f16, SupportParams, 128, 4) { sample_support<half_t>(p); }
EXPORT(sample_support_f16, SupportParams);
KERNEL(sample_support_bf16, SupportParams, 128, 4) { sample_support<bf16_t>(p); }
EXPORT(sample_support_bf16, SupportParams);
KERNEL(sample_support_f32, SupportParams, 128, 4) { sample_support<float>(p); }
EXPORT(sample_support_f32, SupportParams);

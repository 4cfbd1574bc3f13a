// The same products in strict f32: every multiplication and addition is an IEEE single (fused) one.
//
// A block of 256 threads makes 128 rows × 64 or 128 columns, a thread 8 × 4 or 8 × 8 of them, from slices of 16 values
// of depth that lie transposed in shared memory, two at a time.
#include "product.cuh"

constexpr int F32_ROWS = 128;
constexpr int F32_DEPTH = 16;
constexpr int F32_PAD = 4; // floats behind each line: keeps 16-byte alignment, spreads the transposed stores

template <int COLUMNS> DEVICE void product_f32_body(const ProductParams &p) {
    constexpr int HALVES = COLUMNS / 64;      // a thread's columns come in one or two pieces of four
    constexpr int A_LINE = F32_ROWS + F32_PAD, B_LINE = COLUMNS + F32_PAD;
    constexpr int STAGE = F32_DEPTH * (A_LINE + B_LINE);
    DYNAMIC_SHARED(shared_bytes);
    float *shared = reinterpret_cast<float *>(shared_bytes);
    const int tiles = p.columns / COLUMNS, thread = threadIdx.x, lane = lane_id(), warp = thread / 32;
    const int first_row = blockIdx.x / tiles * F32_ROWS, first_column = blockIdx.x % tiles * COLUMNS;
    const float *x = static_cast<const float *>(p.x) + blockIdx.z * p.x_batch;

    // A thread copies four values of depth of every 64th row.
    const int chunk = thread % 4, line = thread / 4;
    RowWindow<float> window[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        window[i].start(p, x, first_row + line + i * 64);
    const float *weight = static_cast<const float *>(p.weight) + blockIdx.z * p.weight_batch +
                          static_cast<size_t>(first_column + line) * p.depth_padded + chunk * 4;
    DepthWalk at;
    at.start(p, chunk * 4);
    float4 from_x[2], from_weight[HALVES];
    auto load = [&] {
        const int offset = at.offset(p);
#pragma unroll
        for (int i = 0; i < 2; i++)
            from_x[i] = window[i].has(p, at) ? __ldg(reinterpret_cast<const float4 *>(window[i].origin + offset))
                                             : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < HALVES; i++)
            from_weight[i] = __ldg(reinterpret_cast<const float4 *>(weight + static_cast<size_t>(i * 64) * p.depth_padded));
        at.advance(p, F32_DEPTH);
        weight += F32_DEPTH;
    };
    auto store = [&](float *stage) {
        auto one = [&](float *column, int pitch, const float4 &v) {
            column[0] = v.x, column[pitch] = v.y, column[2 * pitch] = v.z, column[3 * pitch] = v.w;
        };
#pragma unroll
        for (int i = 0; i < 2; i++)
            one(stage + chunk * 4 * A_LINE + line + i * 64, A_LINE, from_x[i]);
#pragma unroll
        for (int i = 0; i < HALVES; i++)
            one(stage + F32_DEPTH * A_LINE + chunk * 4 * B_LINE + line + i * 64, B_LINE, from_weight[i]);
    };

    // A warp's 32 lanes are 4 over the rows and 8 over the columns, so that a line is read in few pieces.
    const int row = (warp / 2 * 4 + lane / 8) * 4, column = (warp % 2 * 8 + lane % 8) * 4;
    float acc[8][HALVES * 4] = {};
    const int slices = p.depth_padded / F32_DEPTH;
    load();
    store(shared);
    __syncthreads();
    for (int slice = 0; slice < slices; slice++) {
        const float *a = shared + slice % 2 * STAGE, *b = a + F32_DEPTH * A_LINE;
        if (slice + 1 < slices)
            load();
#pragma unroll
        for (int k = 0; k < F32_DEPTH; k++) {
            float fa[8], fb[HALVES * 4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float4 v = *reinterpret_cast<const float4 *>(a + k * A_LINE + row + h * 64);
                fa[h * 4] = v.x, fa[h * 4 + 1] = v.y, fa[h * 4 + 2] = v.z, fa[h * 4 + 3] = v.w;
            }
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                const float4 v = *reinterpret_cast<const float4 *>(b + k * B_LINE + column + h * 64);
                fb[h * 4] = v.x, fb[h * 4 + 1] = v.y, fb[h * 4 + 2] = v.z, fb[h * 4 + 3] = v.w;
            }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < HALVES * 4; j++)
                    acc[i][j] = fmaf(fa[i], fb[j], acc[i][j]);
        }
        if (slice + 1 < slices)
            store(shared + (slice + 1) % 2 * STAGE);
        __syncthreads();
    }

    float *out = static_cast<float *>(p.out) + blockIdx.z * p.out_batch;
    const float *residual = static_cast<const float *>(p.residual);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = first_row + row + i / 4 * 64 + i % 4;
        if (r >= p.rows)
            continue;
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const int c = first_column + column + h * 64;
            float v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                v[j] = acc[i][h * 4 + j];
                if (p.bias)
                    v[j] += p.bias[static_cast<size_t>(blockIdx.z) * p.columns + c + j];
                if (residual)
                    v[j] += residual[static_cast<size_t>(r) * p.ld_residual + c + j];
                if (p.gelu)
                    v[j] = gelu(v[j]);
            }
            *reinterpret_cast<float4 *>(out + out_offset(p, r, c)) = make_float4(v[0], v[1], v[2], v[3]);
        }
    }
}

KERNEL(product_64_f32, ProductParams, 256, 2) { product_f32_body<64>(p); }
EXPORT(product_64_f32, ProductParams)
KERNEL(product_128_f32, ProductParams, 256, 2) { product_f32_body<128>(p); }
EXPORT(product_128_f32, ProductParams)

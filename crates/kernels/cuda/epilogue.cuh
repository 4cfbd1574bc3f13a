// What follows a matrix product on Tensor Cores, on the accumulators where they are: bias, group norm + relu, residual,
// GELU, and only then a rounding to T.
#pragma once
#include "product.cuh"

constexpr int TILE_ROWS = 128;
constexpr int SLICE = 128; // bytes of depth

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
                (pass == 0 ? mean : spread)[h] = pass == 0 ? sum[h] * scale : rsqrtf(sum[h] * scale + NORM_EPS);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const int column = (j + k) * 8 + lane_id() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float v = (acc[j + k][i] - mean[i / 2]) * spread[i / 2];
                acc[j + k][i] = relu(v * weight[column + i % 2] + bias[column + i % 2]);
            }
        }
    }
}

// A warp holds MI × NI tiles of 16 × 8 from row0, column0 of the block's tile on, which begins at first_row, first_column
// of the result. All 256 threads that multiply take part; `shared` has nothing in it that is still needed, and `sync`
// waits for these threads.
template <class E, int COLUMNS, int MI, int NI, class Sync>
DEVICE void epilogue(const ProductParams &p, float (&acc)[MI][NI][4], int first_row, int first_column, int row0, int column0,
                     unsigned char *shared, Sync sync) {
    typedef typename E::T T;
    const int lane = lane_id(), thread = threadIdx.x;
    const size_t vector = static_cast<size_t>(blockIdx.z) * p.columns + first_column + column0;
    if (p.bias) {
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const float2 b = *reinterpret_cast<const float2 *>(p.bias + vector + j * 8 + lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                acc[i][j][0] += b.x, acc[i][j][1] += b.y;
                acc[i][j][2] += b.x, acc[i][j][3] += b.y;
            }
        }
    }
    if (p.group_rows > 0) {
#pragma unroll
        for (int i = 0; i < MI; i++)
            group_norm<NI>(acc[i], p, p.norm_weight + vector, p.norm_bias + vector);
    }
    T *out = static_cast<T *>(p.out) + blockIdx.z * p.out_batch;
    const T *residual = static_cast<const T *>(p.residual);
    if (sizeof(T) == 4 || p.out_f32) {
        // Two floats a lane fill whole 32-byte sectors as they are.
        float *out_f32 = static_cast<float *>(p.out) + blockIdx.z * p.out_batch;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = first_row + row0 + i * 16 + h * 8 + lane / 4;
                if (row >= p.rows)
                    continue;
#pragma unroll
                for (int j = 0; j < NI; j++) {
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
        sync();
    }
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const int row = row0 + i * 16 + h * 8 + lane / 4, column = column0 + j * 8 + lane % 4 * 2;
                T *at = tile + row * LINE + column;
                float a = acc[i][j][h * 2], b = acc[i][j][h * 2 + 1];
                if (residual)
                    a += to_float(at[0]), b += to_float(at[1]);
                if (p.gelu)
                    a = gelu_short(a), b = gelu_short(b);
                *reinterpret_cast<uint32_t *>(at) = pack2<T>(a, b);
            }
    sync();
    for (int i = thread; i < TILE_ROWS * PIECES; i += 256) {
        const int row = i / PIECES, piece = i % PIECES * 8;
        if (first_row + row < p.rows)
            *reinterpret_cast<uint4 *>(out + out_offset(p, first_row + row, first_column + piece)) =
                *reinterpret_cast<const uint4 *>(tile + row * LINE + piece);
    }
}

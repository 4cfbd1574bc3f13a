// Two rows in a warp's registers, with what a layer norm needs to know of them.
#pragma once
#include "device.cuh"

// CHUNKS: 16-byte chunks of a row that a lane holds: chunk k of lane l is the row's chunk 32·k + l. A warp takes two rows,
// so that it reads what is the same for all rows once for both.
template <class T, int CHUNKS> struct RowPair {
    static constexpr int ROWS = 2, N = Pack16<T>::N;
    Pack16<T> value[ROWS][CHUNKS];
    float mean[ROWS], scale[ROWS];

    // The first row of this warp, where every block has eight warps.
    DEVICE_MEMBER static int first() { return (blockIdx.x * 8 + threadIdx.x / 32) * ROWS; }
    // Where chunk k of this lane begins.
    DEVICE_MEMBER static int channel(int k) { return (k * 32 + static_cast<int>(lane_id())) * N; }

    // Rows first and first + 1 of [rows, c], the last row again behind the end, and their mean and 1/√(variance + eps) in two
    // passes.
    DEVICE_MEMBER void load(const T *x, int first, int rows, int c) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const T *from = x + static_cast<size_t>(min(first + r, rows - 1)) * c;
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                if (channel(k) < c) {
                    value[r][k].load(from + channel(k));
                } else {
#pragma unroll
                    for (int i = 0; i < N; i++)
                        value[r][k].v[i] = 0.0f;
                }
            }
        }
        const float each = 1.0f / static_cast<float>(c);
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
                if (channel(k) < c)
#pragma unroll
                    for (int i = 0; i < N; i++) {
                        const float d = value[r][k].v[i] - mean[r];
                        square = fmaf(d, d, square);
                    }
            scale[r] = 1.0f / sqrtf(lanes_sum(square) * each + NORM_EPS);
        }
    }

    // A value normalised, with its affine.
    DEVICE_MEMBER float normed(int r, int k, int i, float weight, float bias) const {
        return fmaf((value[r][k].v[i] - mean[r]) * scale[r], weight, bias);
    }
};

// What both matrix products (Tensor Cores in product.cu, plain f32 in product_f32.cu) have in common: the description
// of a convolution or linear layer as one product, and what follows it.
//
// rows × depth times depth × columns. A row is one output pixel, a column one output channel; the depth runs over the
// taps of the kernel and the channels under each, and is gathered on the fly (implicit product: no im2col in memory).
#pragma once
#include "device.cuh"

struct ProductParams {
    const void *x;            // T [batch][frames, height, width, ld_x]
    const void *weight;       // T [batch][columns][depth_padded], depth in the order below, zeros beyond `depth`
    const float *bias;        // [batch][columns] or null
    const void *residual;     // T [rows][ld_residual] or null, added before the activation
    const float *norm_weight; // [batch][columns]: group norm, where group_rows > 0
    const float *norm_bias;   // [batch][columns]
    void *out;                // T, or f32 where out_f32: [rows][ld_out]
    long long x_batch, weight_batch, out_batch; // elements from one batch to the next (blockIdx.z)
    int rows, columns, depth, depth_padded;
    int height, width, channels, ld_x;
    int out_height, out_width;
    int kernel_h, kernel_w, stride_y, stride_x, pad_y, pad_x;
    int channel_block;        // order of the depth: (ky, block of channels, kx, channel in block)
    int ld_out, ld_residual;
    int group_rows;           // 0: none; 1, 4, 16: group norm + relu over so many rows × 16 columns
    int gelu;
    int out_f32;
    int period, period_step;  // where period > 0: row r goes to row r % period, column + r / period · period_step
};

DEVICE float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f)); }
// The same for results that are rounded to 16 bits: erf to 2e-7 by a polynomial times an exponential (Abramowitz and
// Stegun, 7.1.26), in half the instructions.
DEVICE float gelu_short(float v) {
    const float x = fabsf(v) * 0.70710678118654752f;
    const float t = __fdividef(1.0f, fmaf(0.3275911f, x, 1.0f));
    float tail = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
    tail *= 0.5f * t * __expf(-x * x);
    return v * (v < 0.0f ? tail : 1.0f - tail);
}

// Where a row of the product goes.
DEVICE size_t out_offset(const ProductParams &p, int row, int column) {
    if (p.period > 0)
        return static_cast<size_t>(row % p.period) * p.ld_out + column + row / p.period * p.period_step;
    return static_cast<size_t>(row) * p.ld_out + column;
}

// Walks the depth for one 16-byte column of a tile: which tap and which channel.
struct DepthWalk {
    int ky, block, kx, c;
    DEVICE_MEMBER void start(const ProductParams &p, int element) {
        ky = block = kx = 0;
        c = element;
        settle(p);
    }
    DEVICE_MEMBER void advance(const ProductParams &p, int elements) {
        c += elements;
        settle(p);
    }
    DEVICE_MEMBER void settle(const ProductParams &p) {
        while (c >= p.channel_block) {
            c -= p.channel_block;
            if (++kx == p.kernel_w) {
                kx = 0;
                block += p.channel_block;
                if (block >= p.channels) {
                    block = 0;
                    ++ky;
                }
            }
        }
    }
    DEVICE_MEMBER int offset(const ProductParams &p) const { return (ky * p.width + kx) * p.ld_x + block + c; }
};

// One row of the product: the window of the input that it reads.
template <class T> struct RowWindow {
    const T *origin; // where tap (0, 0), channel 0 lies or would lie
    int y, x;        // of tap (0, 0)
    DEVICE_MEMBER void start(const ProductParams &p, const T *x_base, int row) {
        if (row >= p.rows) {
            origin = x_base;
            y = x = -(1 << 28);
            return;
        }
        const int area = p.out_height * p.out_width;
        const int frame = row / area, pixel = row % area;
        y = pixel / p.out_width * p.stride_y - p.pad_y;
        x = pixel % p.out_width * p.stride_x - p.pad_x;
        origin = x_base + ((static_cast<long long>(frame) * p.height + y) * p.width + x) * p.ld_x;
    }
    DEVICE_MEMBER bool has(const ProductParams &p, const DepthWalk &at) const {
        return at.ky < p.kernel_h && static_cast<unsigned>(y + at.ky) < static_cast<unsigned>(p.height) &&
               static_cast<unsigned>(x + at.kx) < static_cast<unsigned>(p.width);
    }
};

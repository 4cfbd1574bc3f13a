// The first estimate of a track on a frame, from its query's costs there.
#include "resize.cuh"

// Grid (n, frames of the chunk), 256 threads. Dynamic shared memory: none where the fine grid is twice the coarse one
// on both axes and `width` a multiple of 4; h_low·w_low·4 bytes otherwise.
//
// A thread has 4×4 cells of the fine picture (16×16 threads), so pictures have at most 64×64 cells.
struct SoftArgMaxParams {
    const float *coarse;       // [chunk, n, h_low·w_low]
    const float *fine;         // [chunk, n, height·width]
    const int *own_frame;      // [n]: the frame whose position the query gives
    const float *own_position; // [n, 2]: x, y in pixels of the model
    float *positions;          // [n, frames, 2]: x, y in pixels of the model
    float *occlusion;          // [n, frames]: logit
    float *expected;           // [n, frames]: logit
    int n, frames, first;      // first: frame index of the chunk's first frame
    int height, width, h_low, w_low;
    float scale_x, scale_y;    // pixels of the model per fine cell
    float temperature, radius; // radius in cells, at most 5
    float conv[18], conv_bias; // [2, 3, 3]: the coarse costs' taps, then the fine ones'
    float occ[12], occ_bias[2]; // [2, 6]: of mean, maximum, minimum, each coarse then fine
};

DEVICE float blend(float a, float b, float share) { return a * (1.0f - share) + b * share; }

// What one row of a picture adds to the three rows of the convolution that read it, and to the statistics. `row` is
// the index among a thread's rows, −1..4; lanes to the left and right have the neighbouring columns.
struct Tile {
    float mixed[4][4];
    float sum, top, bottom;

    DEVICE_MEMBER void start() {
        sum = 0.0f;
        top = -INFINITY;
        bottom = INFINITY;
    }
    DEVICE_MEMBER void add(int row, const float (&v)[4], const float *taps, int x, bool inside, int width) {
        const int lane = lane_id();
        // All lanes take part; the picture's left and right neighbours are zeros.
        const float before = lane_from(v[3], (lane + 31) & 31), after = lane_from(v[0], (lane + 1) & 31);
        float window[6] = {lane % 16 == 0 ? 0.0f : before, v[0], v[1], v[2], v[3], lane % 16 == 15 ? 0.0f : after};
#pragma unroll
        for (int ky = 0; ky < 3; ky++) {
            const int out = row + 1 - ky;
            if (out < 0 || out > 3)
                continue;
#pragma unroll
            for (int kx = 0; kx < 3; kx++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    mixed[out][i] = fmaf(window[i + kx], taps[ky * 3 + kx], mixed[out][i]);
        }
        if (row >= 0 && row < 4 && inside) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (x + i < width) {
                    sum += v[i];
                    top = fmaxf(top, v[i]);
                    bottom = fminf(bottom, v[i]);
                }
        }
    }
};

// Coarse costs resized to a thread's rows −1..4, where fine is exactly twice coarse: then fine cell 2m lies between
// coarse cells m − 1 and m, 2m + 1 between m and m + 1, and all taps come from 4×4 coarse cells.
struct Doubled {
    float cells[4][4]; // rows 2ty−1.., columns 2tx−1.. of the coarse picture, clamped

    DEVICE_MEMBER void load(const float *coarse, int x, int y, int height, int width) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const float *row = coarse + min(max(y / 2 - 1 + r, 0), height - 1) * width;
#pragma unroll
            for (int k = 0; k < 4; k++)
                cells[r][k] = row[min(max(x / 2 - 1 + k, 0), width - 1)];
        }
    }
    // Row y + r of the resized picture, r = −1..4.
    DEVICE_MEMBER void row(int r, float (&v)[4]) const {
        const int low = (r + 1) / 2;
        const float share = r & 1 ? 0.25f : 0.75f;
        float mixed[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            mixed[k] = blend(cells[low][k], cells[low + 1][k], share);
        v[0] = blend(mixed[0], mixed[1], 0.75f);
        v[1] = blend(mixed[1], mixed[2], 0.25f);
        v[2] = blend(mixed[1], mixed[2], 0.75f);
        v[3] = blend(mixed[2], mixed[3], 0.25f);
    }
};

DEVICE void resized_row(const float *coarse, const SoftArgMaxParams &p, int y, int x, float (&v)[4]) {
    const Tap row = tap(y, p.h_low, p.height);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Tap column = tap(min(x + i, p.width - 1), p.w_low, p.width);
        const float *above = coarse + row.low * p.w_low, *below = coarse + row.high * p.w_low;
        const float left = blend(above[column.low], below[column.low], row.weight);
        const float right = blend(above[column.high], below[column.high], row.weight);
        v[i] = blend(left, right, column.weight);
    }
}

// Cells outside the picture are zeros, as the SAME convolution reads them.
DEVICE void clear_outside(float (&v)[4], int y, int x, int height, int width) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (y < 0 || y >= height || x + i >= width)
            v[i] = 0.0f;
}

DEVICE void fine_row(const float *fine, const SoftArgMaxParams &p, int y, int x, bool doubled, float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        v[i] = 0.0f;
    if (y < 0 || y >= p.height)
        return;
    if (doubled) {
        if (x < p.width) {
            const float4 four = *reinterpret_cast<const float4 *>(fine + y * p.width + x);
            v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (x + i < p.width)
                v[i] = fine[y * p.width + x + i];
    }
}

KERNEL(soft_argmax, SoftArgMaxParams, 256, 3) {
    DYNAMIC_SHARED(dynamic);
    __shared__ float part[8][8];
    __shared__ int part_cell[8];
    const int lane = lane_id(), warp = threadIdx.x / 32;
    const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
    const size_t picture = static_cast<size_t>(blockIdx.y) * p.n + blockIdx.x;
    const float *fine = p.fine + picture * p.height * p.width;
    const float *coarse = p.coarse + picture * p.h_low * p.w_low;
    const bool doubled = p.height == 2 * p.h_low && p.width == 2 * p.w_low && p.width % 4 == 0;

    Tile tile;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            tile.mixed[r][i] = p.conv_bias;
    // Both pictures are read at once: the fine rows wait in registers while the coarse ones are worked on.
    float rows[6][4];
#pragma unroll
    for (int r = 0; r < 6; r++)
        fine_row(fine, p, y + r - 1, x, doubled, rows[r]);
    tile.start();
    if (doubled) {
        Doubled cells;
        cells.load(coarse, x, y, p.h_low, p.w_low);
#pragma unroll
        for (int r = -1; r < 5; r++) {
            float v[4];
            cells.row(r, v);
            clear_outside(v, y + r, x, p.height, p.width);
            tile.add(r, v, p.conv, x, y + r < p.height, p.width);
        }
    } else {
        float *held = reinterpret_cast<float *>(dynamic);
        for (int i = threadIdx.x; i < p.h_low * p.w_low; i += 256)
            held[i] = coarse[i];
        __syncthreads();
#pragma unroll
        for (int r = -1; r < 5; r++) {
            float v[4];
            resized_row(held, p, min(max(y + r, 0), p.height - 1), x, v);
            clear_outside(v, y + r, x, p.height, p.width);
            tile.add(r, v, p.conv, x, y + r < p.height, p.width);
        }
    }
    float stats[6]; // as occ_linear reads them
    stats[0] = tile.sum, stats[2] = tile.top, stats[4] = tile.bottom;
    tile.start();
#pragma unroll
    for (int r = -1; r < 5; r++)
        tile.add(r, rows[r + 1], p.conv + 9, x, y + r < p.height, p.width);
    stats[1] = tile.sum, stats[3] = tile.top, stats[5] = tile.bottom;

    // The best cell, the first of equals; what is not a number is passed over.
    float best = -INFINITY;
    int best_cell = 1 << 30;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (y + r < p.height && x + i < p.width && tile.mixed[r][i] > best) {
                best = tile.mixed[r][i];
                best_cell = (y + r) * p.width + x + i;
            }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other = lane_xor(best, mask);
        const int cell = lane_xor(best_cell, mask);
        if (other > best || (other == best && cell < best_cell)) {
            best = other;
            best_cell = cell;
        }
    }
    stats[0] = lanes_sum(stats[0]);
    stats[1] = lanes_sum(stats[1]);
    stats[2] = lanes_max(stats[2]);
    stats[3] = lanes_max(stats[3]);
    stats[4] = -lanes_max(-stats[4]);
    stats[5] = -lanes_max(-stats[5]);
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < 6; i++)
            part[warp][i] = stats[i];
        part[warp][6] = best;
        part_cell[warp] = best_cell;
    }
    __syncthreads();
    best = part[0][6];
    best_cell = part_cell[0];
#pragma unroll
    for (int i = 0; i < 6; i++)
        stats[i] = part[0][i];
#pragma unroll
    for (int w = 1; w < 8; w++) {
        if (part[w][6] > best || (part[w][6] == best && part_cell[w] < best_cell)) {
            best = part[w][6];
            best_cell = part_cell[w];
        }
        stats[0] += part[w][0];
        stats[1] += part[w][1];
        stats[2] = fmaxf(stats[2], part[w][2]);
        stats[3] = fmaxf(stats[3], part[w][3]);
        stats[4] = fminf(stats[4], part[w][4]);
        stats[5] = fminf(stats[5], part[w][5]);
    }
    if (best_cell == 1 << 30)
        best_cell = 0; // nothing was a number

    // The softmax's denominator over the whole picture cancels in the mean of the cells around the best one; the best
    // one's own weight is 1 here, so that the published floor of 1e-12 cannot be met.
    const int best_y = best_cell / p.width, best_x = best_cell % p.width;
    float total = 0.0f, total_x = 0.0f, total_y = 0.0f;
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int dy = y + r - best_y, dx = x + i - best_x;
            const bool near = static_cast<float>(dy * dy + dx * dx) < p.radius * p.radius;
            if (near && y + r < p.height && x + i < p.width) {
                const float weight = expf(p.temperature * (tile.mixed[r][i] - best));
                total += weight;
                total_x = fmaf(weight, static_cast<float>(x + i) + 0.5f, total_x);
                total_y = fmaf(weight, static_cast<float>(y + r) + 0.5f, total_y);
            }
        }
    total = lanes_sum(total);
    total_x = lanes_sum(total_x);
    total_y = lanes_sum(total_y);
    __syncthreads(); // before the partial results are written over
    if (lane == 0) {
        part[warp][0] = total;
        part[warp][1] = total_x;
        part[warp][2] = total_y;
    }
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    total = total_x = total_y = 0.0f;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        total += part[w][0];
        total_x += part[w][1];
        total_y += part[w][2];
    }
    const int frame = p.first + blockIdx.y;
    const size_t out = static_cast<size_t>(blockIdx.x) * p.frames + frame;
    float2 position = make_float2(total_x / total * p.scale_x, total_y / total * p.scale_y);
    if (p.own_frame[blockIdx.x] == frame)
        position = reinterpret_cast<const float2 *>(p.own_position)[blockIdx.x];
    reinterpret_cast<float2 *>(p.positions)[out] = position;
    const float cells = static_cast<float>(p.height * p.width);
    stats[0] /= cells;
    stats[1] /= cells;
    float logit[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
        logit[k] = p.occ_bias[k];
#pragma unroll
        for (int i = 0; i < 6; i++)
            logit[k] = fmaf(p.occ[k * 6 + i], stats[i], logit[k]);
    }
    p.occlusion[out] = logit[0];
    p.expected[out] = logit[1];
}
EXPORT(soft_argmax, SoftArgMaxParams);

// Small kernels for the emulator's own tests (src/cuda/emulate.rs): each does one thing that a block can do, or do
// wrong.
#include "device.cuh"

struct TestParams {
    const void *a;
    const void *b;
    void *out;
    int count;
};

// out[thread] = three shuffles of the lane's number, packed into an int each.
KERNEL(test_shuffle, TestParams, 64, 1) {
    const int lane = static_cast<int>(lane_id());
    int *out = static_cast<int *>(p.out) + threadIdx.x * 6;
    out[0] = lane_xor(lane, 5);
    out[1] = static_cast<int>(lane_from(static_cast<float>(lane), (lane * 7 + 3) % 32));
    out[2] = __shfl_up_sync(0xffffffffu, lane, 3);
    out[3] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
    out[4] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
    out[5] = static_cast<int>(lanes_sum(static_cast<float>(lane)) + lanes_max<8>(static_cast<float>(lane)));
}
EXPORT(test_shuffle, TestParams)

// a: 32 rows of 16 bytes. out: what each lane gets, plain and transposed.
KERNEL(test_ldmatrix, TestParams, 32, 1) {
    DYNAMIC_SHARED(shared);
    uint4 *rows = reinterpret_cast<uint4 *>(shared);
    rows[lane_id()] = static_cast<const uint4 *>(p.a)[lane_id()];
    __syncwarp();
    uint32_t plain[4], transposed[4];
    ldmatrix4(plain, rows + lane_id());
    ldmatrix4_trans(transposed, rows + lane_id());
    uint32_t *out = static_cast<uint32_t *>(p.out) + lane_id() * 8;
    for (int i = 0; i < 4; i++) {
        out[i] = plain[i];
        out[i + 4] = transposed[i];
    }
}
EXPORT(test_ldmatrix, TestParams)

// out (16 × 8 floats) += a · bᵀ, `count` times; a has 16 rows of 32 bytes, b has 8.
template <class E> DEVICE void mma_body(const TestParams &p) {
    DYNAMIC_SHARED(shared);
    const unsigned lane = lane_id(), row = lane / 4, column = lane % 4 * 2;
    for (unsigned i = lane; i < 32; i += 32)
        reinterpret_cast<uint4 *>(shared)[i] = static_cast<const uint4 *>(p.a)[i];
    for (unsigned i = lane; i < 16; i += 32)
        reinterpret_cast<uint4 *>(shared)[32 + i] = static_cast<const uint4 *>(p.b)[i];
    __syncwarp();
    uint32_t a[4], b[4];
    ldmatrix4(a, shared + lane % 16 * 32 + lane / 16 * 16);
    ldmatrix4(b, shared + 512 + lane % 8 * 32 + lane / 8 % 2 * 16);
    float *out = static_cast<float *>(p.out);
    float c[4] = {out[row * 8 + column], out[row * 8 + column + 1], out[(row + 8) * 8 + column],
                  out[(row + 8) * 8 + column + 1]};
    for (int i = 0; i < p.count; i++)
        mma<E>(c, a, b[0], b[1]);
    out[row * 8 + column] = c[0];
    out[row * 8 + column + 1] = c[1];
    out[(row + 8) * 8 + column] = c[2];
    out[(row + 8) * 8 + column + 1] = c[3];
}
KERNEL(test_mma_f16, TestParams, 32, 1) { mma_body<F16>(p); }
EXPORT(test_mma_f16, TestParams)
KERNEL(test_mma_bf16, TestParams, 32, 1) { mma_body<Bf16>(p); }
EXPORT(test_mma_bf16, TestParams)
KERNEL(test_mma_tf32, TestParams, 32, 1) { mma_body<Tf32>(p); }
EXPORT(test_mma_tf32, TestParams)

// Every thread reads what the one across the block wrote, `count` times over; out[block][thread]. `count` even: with
// all barriers; odd: without those that keep a round from overwriting what the one before still reads.
KERNEL(test_barrier, TestParams, 256, 1) {
    __shared__ int line[256];
    const unsigned t = threadIdx.x, last = blockDim.x - 1;
    int value = static_cast<int>(t);
    for (int i = 0; i < p.count; i++) {
        line[t] = value;
        __syncthreads();
        value = line[last - t] + 1;
        if (p.count % 2 == 0)
            __syncthreads();
    }
    static_cast<int *>(p.out)[blockIdx.x * blockDim.x + t] = value;
}
EXPORT(test_barrier, TestParams)

// Warps of one block that pass different numbers of collectives between barriers; sums over everything.
KERNEL(test_mixed, TestParams, 128, 1) {
    __shared__ float sums[4];
    float v = 1;
    for (unsigned i = 0; i <= threadIdx.x / 32; i++)
        v = lanes_sum(v) / 16;
    if (lane_id() == 0)
        sums[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x >= 96)
        return; // ended threads are not waited for
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(static_cast<float *>(p.out), sums[0] + sums[1] + sums[2] + sums[3]);
}
EXPORT(test_mixed, TestParams)

// What a block can do wrong; `count` says which.
KERNEL(test_wrong, TestParams, 64, 1) {
    DYNAMIC_SHARED(shared);
    const unsigned t = threadIdx.x;
    float *out = static_cast<float *>(p.out);
    float v = static_cast<float>(t);
    switch (p.count) {
    case 0: // a lane that ends before a collective
        if (t == 7)
            return;
        v = lane_xor(v, 1);
        break;
    case 1: // lanes at a collective, others at the block's barrier
        if (t % 2)
            __syncthreads();
        v = lane_xor(v, 2);
        break;
    case 2: // two collectives at once
        if (t % 2)
            __syncwarp();
        else
            v = lane_xor(v, 2);
        break;
    case 3: // behind the end of shared memory
        shared[256 + t] = 1;
        break;
    case 4: // read before written
        v = reinterpret_cast<const float *>(shared)[t];
        break;
    case 5: { // an address that is not aligned
        Copy16 copy;
        copy.load(shared + 8, p.a, true);
        break;
    }
    case 6: { // a row that is not aligned
        uint32_t r[4];
        ldmatrix4(r, shared + 4);
        break;
    }
    case 7:
        __trap();
        break;
    case 8: { // the same of a static array
        __shared__ float line[64];
        v = line[t] + static_cast<float>(p.count - 8);
        line[t] = 0;
        break;
    }
    default:
        break;
    }
    out[t] = v;
}
EXPORT(test_wrong, TestParams)

// Three slices of 16 bytes a thread come in as three groups, the last without its own copies; out gets the sum of the
// bytes' ints. `count`: how many groups may still be in flight when the slices are read (0 is right).
KERNEL(test_copies, TestParams, 64, 1) {
    DYNAMIC_SHARED(shared);
    const unsigned t = threadIdx.x;
    int4 *slices = reinterpret_cast<int4 *>(shared);
    for (unsigned s = 0; s < 3; s++) {
        slices[s * 64 + t] = {-1, -1, -1, -1};
        Copy16 copy;
        copy.load(&slices[s * 64 + t], static_cast<const int4 *>(p.a) + s * 64 + t, s < 2 || t % 2 == 0);
        copy.store(&slices[s * 64 + t]);
        copy_commit();
    }
    if (p.count == 0)
        copy_wait<0>();
    else if (p.count == 1)
        copy_wait<1>();
    else
        copy_wait<2>();
    __syncthreads();
    int *out = static_cast<int *>(p.out) + (blockIdx.x * 64 + t) * 3;
    for (unsigned s = 0; s < 3; s++) {
        const int4 v = slices[s * 64 + (63 - t)];
        out[s] = v.x + v.y + v.z + v.w;
    }
}
EXPORT(test_copies, TestParams)

// a: floats; out: [count][5] bits of half, bfloat, tf32, and half and bfloat back as floats.
KERNEL(test_round, TestParams, 256, 1) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= p.count)
        return;
    const float v = static_cast<const float *>(p.a)[i];
    const half_t h = from_float<half_t>(v);
    const bf16_t b = from_float<bf16_t>(v);
    uint32_t *out = static_cast<uint32_t *>(p.out) + i * 5;
    out[0] = pack2<half_t>(v, 0.f);
    out[1] = pack2<bf16_t>(0.f, v) >> 16;
    out[2] = to_tf32(__float_as_uint(v));
    out[3] = __float_as_uint(to_float(h));
    out[4] = __float_as_uint(to_float(b));
}
EXPORT(test_round, TestParams)

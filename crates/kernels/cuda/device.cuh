// What every kernel here is written in: element types, fragments of Tensor Core products, copies into shared
// memory. The same names exist for the emulator (emulate.hpp), so that device code is tested without a device.
//
// Architectures: sm_75 has no asynchronous copies, no bf16 or tf32 products, and f16 products of depth 8. Every
// kernel has a form that needs no more than that; TRACK_ASYNC and TRACK_WIDE_MMA say what is there.
#pragma once

#ifdef TRACK_EMULATE
#include "emulate.hpp"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define TRACK_ASYNC 1
#define TRACK_WIDE_MMA 1
#endif
// Products of a whole warp group straight from shared memory (Hopper's own instructions).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRACK_WGMMA 1
#endif

typedef __half half_t;
typedef __nv_bfloat16 bf16_t;

// A kernel takes one struct by value, so that the host passes one pointer. EXPORT lists it for the emulator.
#define KERNEL(name, Params, threads, blocks)                                                                          \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Params p)
#define EXPORT(name, Params)
// The block's dynamic shared memory, aligned for 128-byte swizzles.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

DEVICE unsigned lane_id() { return threadIdx.x & 31; }

// ---- Copies of 16 bytes into shared memory ----

// Copies 16 bytes, or zeros where `valid` is false (the address is then not read). On sm_80 and above the copy runs
// on by itself until copy_wait; below it goes through registers: `load` starts it, `store` ends it. Call both.
struct Copy16 {
#ifdef TRACK_ASYNC
    __device__ __forceinline__ void load(void *shared, const void *global, bool valid) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
        const int bytes = valid ? 16 : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
    }
    __device__ __forceinline__ void store(void *) {}
#else
    uint4 value;
    __device__ __forceinline__ void load(void *, const void *global, bool valid) {
        value = valid ? __ldg(static_cast<const uint4 *>(global)) : make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void store(void *shared) { *static_cast<uint4 *>(shared) = value; }
#endif
};

// Ends a group of copies; copy_wait<N> returns when all but the last N groups have arrived (for this thread: a
// __syncthreads must follow).
DEVICE void copy_commit() {
#ifdef TRACK_ASYNC
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> DEVICE void copy_wait() {
#ifdef TRACK_ASYNC
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// ---- Tensor Core fragments ----

// Four 8×16-byte matrices from shared memory. Lane l gives the address of row l%8 of matrix l/8; it receives in r[i]
// bytes 4·(l%4)..+4 of row l/4 of matrix i.
DEVICE void ldmatrix4(uint32_t (&r)[4], const void *row) {
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
// The same with each 8×8 matrix of 16-bit values transposed.
DEVICE void ldmatrix4_trans(uint32_t (&r)[4], const void *row) {
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// How values are held and multiplied. `T` is the type in memory.
struct F16 {
    typedef half_t T;
};
struct Bf16 {
    typedef bf16_t T;
};
struct Tf32 {
    typedef float T;
};
struct F32 {
    typedef float T;
};

DEVICE uint32_t to_tf32(uint32_t bits) {
#ifdef TRACK_WIDE_MMA
    uint32_t rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
#else
    return bits;
#endif
}

// c += a · bᵀ for a 16-row tile a and an 8-row tile b, both 32 bytes deep (16 values of 16 bits, 8 of 32 bits).
// Lane l: c[0..1] is row l/4, columns 2·(l%4)..+2; c[2..3] is row l/4 + 8. a: the four matrices (rows 0–7, bytes
// 0–15), (rows 8–15, bytes 0–15), (rows 0–7, bytes 16–31), (rows 8–15, bytes 16–31) as ldmatrix4 gives them; b0, b1:
// bytes 0–15 and 16–31 of the 8 rows of b.
template <class E> DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <> __device__ __forceinline__ void mma<F16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef TRACK_WIDE_MMA
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
#ifdef TRACK_WIDE_MMA
template <> __device__ __forceinline__ void mma<Bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Operands are rounded to 10 bits of mantissa, to nearest, as they are used.
template <> __device__ __forceinline__ void mma<Tf32>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(to_tf32(a[0])), "r"(to_tf32(a[1])), "r"(to_tf32(a[2])), "r"(to_tf32(a[3])), "r"(to_tf32(b0)),
                   "r"(to_tf32(b1)));
}
#else
// Refused by the host on such a device; the body only lets the file compile for it.
template <> __device__ __forceinline__ void mma<Bf16>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) { __trap(); }
template <> __device__ __forceinline__ void mma<Tf32>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) { __trap(); }
#endif

// ---- Values ----

DEVICE float to_float(float v) { return v; }
DEVICE float to_float(half_t v) { return __half2float(v); }
DEVICE float to_float(bf16_t v) { return __bfloat162float(v); }
template <class T> DEVICE T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) { return v; }
template <> __device__ __forceinline__ half_t from_float<half_t>(float v) { return __float2half_rn(v); }
template <> __device__ __forceinline__ bf16_t from_float<bf16_t>(float v) { return __float2bfloat16_rn(v); }

// Two values as 32 bits, the first in the lower half (16-bit types only).
template <class T> DEVICE uint32_t pack2(float a, float b) {
    const T lo = from_float<T>(a), hi = from_float<T>(b);
    return static_cast<uint32_t>(*reinterpret_cast<const uint16_t *>(&lo)) |
           static_cast<uint32_t>(*reinterpret_cast<const uint16_t *>(&hi)) << 16;
}

// ---- Between lanes ----

DEVICE float lane_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE float lane_from(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEVICE int lane_xor(int v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }

#endif // TRACK_EMULATE

// ---- The same for both ----

template <int LANES = 32> DEVICE float lanes_sum(float v) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        v += lane_xor(v, mask);
    return v;
}
// Added to a variance before its root, in every norm.
constexpr float NORM_EPS = 1e-5f;

// A NaN stays one, so that it is found where it began.
DEVICE float relu(float v) { return v < 0.0f ? 0.0f : v; }

template <int LANES = 32> DEVICE float lanes_max(float v) {
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        v = fmaxf(v, lane_xor(v, mask));
    return v;
}

// 16 bytes as floats: 8 of a 16-bit type, 4 of f32.
template <class T> struct Pack16 {
    static constexpr int N = 16 / sizeof(T);
    float v[N];
    DEVICE_MEMBER void load(const T *from) {
        const uint4 raw = *reinterpret_cast<const uint4 *>(from);
        const T *values = reinterpret_cast<const T *>(&raw);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = to_float(values[i]);
    }
    DEVICE_MEMBER void store(T *to) const {
        uint4 raw;
        T *values = reinterpret_cast<T *>(&raw);
#pragma unroll
        for (int i = 0; i < N; i++)
            values[i] = from_float<T>(v[i]);
        *reinterpret_cast<uint4 *>(to) = raw;
    }
};

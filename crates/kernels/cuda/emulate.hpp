// The primitives of device.cuh on a CPU, so that kernels and the engine around them are tested without a device.
//
// A block of a grid runs on one OS thread; each of its threads is a fiber with a stack of its own. Fibers switch only
// where threads wait for each other: at __syncthreads and at collectives of a warp (shuffles, ldmatrix4, mma). Warps
// run one after the other, each until its lanes wait for the block.
//
// What goes wrong on a device without a word is an error here, naming kernel, block and thread: a lane that is missing
// at a collective, asynchronous copies that nobody waited for, shared memory read before it was written (it starts as
// NaNs), dynamic shared memory written behind its end, addresses that are not aligned.
// Blocks differ in two ways, drawn from their index, so that a missing barrier shows in one of them: warps and lanes
// run upwards or downwards, and copies arrive at once or not before copy_wait.
//
// Not here: named barriers, collectives of part of a warp, limits on registers and static shared memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#define TRACK_ASYNC 1
#define TRACK_WIDE_MMA 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __shared__ static thread_local
#define DEVICE static inline __attribute__((always_inline, unused))
#define DEVICE_MEMBER inline __attribute__((always_inline))

// Device code reads values through pointers to other types: compile with -fno-strict-aliasing.
struct alignas(8) int2 { int x, y; };
struct int3 { int x, y, z; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct float3 { float x, y, z; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(2) uchar2 { unsigned char x, y; };
struct uchar3 { unsigned char x, y, z; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(8) ushort4 { unsigned short x, y, z, w; };
struct dim3 { unsigned x, y, z; };

DEVICE int2 make_int2(int x, int y) { return {x, y}; }
DEVICE int3 make_int3(int x, int y, int z) { return {x, y, z}; }
DEVICE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
DEVICE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
DEVICE uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
DEVICE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
DEVICE float2 make_float2(float x, float y) { return {x, y}; }
DEVICE float3 make_float3(float x, float y, float z) { return {x, y, z}; }
DEVICE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
DEVICE uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) { return {x, y, z, w}; }

// ---- Threads ----

namespace track_emulate {

struct Block;
struct Warp;

// Where a thread is. The part that kernels read; emulate.cpp has the rest.
struct Thread {
    uint3 thread;
    unsigned lane;
    Block *block;
    Warp *warp;
};
struct Shape {
    uint3 block_index;
    dim3 block, grid;
};

// The running fiber and its block. __thread, not thread_local: no check for initialisation at each access.
extern __thread const Thread *running;
extern __thread const Shape *shape;

enum class Op : unsigned { SyncWarp, Shuffle, Vote, LoadMatrix, LoadMatrixTransposed, MmaF16, MmaBf16, MmaTf32 };

void sync_threads();
void sync_warp();
// What lane `from` (of this lane's segment of `width` lanes) brought; this lane's own where there is no such lane.
uint64_t shuffle(unsigned lanes, uint64_t bits, int from, int width);
unsigned ballot(unsigned lanes, bool vote);
void load_matrix(Op op, uint32_t (&r)[4], const void *row);
template <Op OP> void product(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void copy16(void *shared, const void *global, bool valid);
void end_copy_group();
void wait_copies(unsigned groups_in_flight);
unsigned char *dynamic_shared();
// The static __shared__ arrays of all kernels, of this OS thread.
void fill_static_shared(unsigned char value);
[[noreturn]] void fail(const char *what);

struct Kernel {
    const char *name;
    size_t params_bytes;
    unsigned max_threads;
    void (*run)(const void *params);
    const Kernel *next;
    Kernel(const char *name, size_t params_bytes, unsigned max_threads, void (*run)(const void *));
};

template <class T> inline uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "shuffles move up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <class T> inline T value_of(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

} // namespace track_emulate

#define threadIdx (track_emulate::running->thread)
#define blockIdx (track_emulate::shape->block_index)
#define blockDim (track_emulate::shape->block)
#define gridDim (track_emulate::shape->grid)
#define warpSize 32

#define KERNEL(name, Params, threads, blocks)                                                                          \
    static void name(const Params &p);                                                                                 \
    static const track_emulate::Kernel track_emulate_kernel_##name(                                                    \
        #name, sizeof(Params), threads, [](const void *params) { name(*static_cast<const Params *>(params)); });       \
    static void name(const Params &p)
// KERNEL has listed it; this holds the two to the same parameters.
#define EXPORT(name, Params) static void name(const Params &p);
#define DYNAMIC_SHARED(name) unsigned char *const name = track_emulate::dynamic_shared()

DEVICE void __syncthreads() { track_emulate::sync_threads(); }
DEVICE void __syncwarp(unsigned lanes = 0xffffffffu) {
    if (lanes != 0xffffffffu)
        track_emulate::fail("__syncwarp of part of a warp is not emulated");
    track_emulate::sync_warp();
}
DEVICE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
DEVICE void __threadfence_block() {}
DEVICE void __trap() { track_emulate::fail("__trap()"); }
DEVICE unsigned lane_id() { return track_emulate::running->lane; }

// ---- Copies ----

struct Copy16 {
    DEVICE_MEMBER void load(void *shared, const void *global, bool valid) {
        track_emulate::copy16(shared, global, valid);
    }
    DEVICE_MEMBER void store(void *) {}
};
DEVICE void copy_commit() { track_emulate::end_copy_group(); }
template <int N> DEVICE void copy_wait() { track_emulate::wait_copies(N); }

template <class T> DEVICE T __ldg(const T *from) { return *from; }
template <class T> DEVICE T __ldcg(const T *from) { return *from; }
template <class T> DEVICE T __ldcs(const T *from) { return *from; }
template <class T> DEVICE void __stcg(T *to, T value) { *to = value; }
template <class T> DEVICE void __stcs(T *to, T value) { *to = value; }

// ---- Values ----

DEVICE uint32_t __float_as_uint(float v) { return track_emulate::value_of<uint32_t>(track_emulate::bits_of(v)); }
DEVICE int __float_as_int(float v) { return track_emulate::value_of<int>(track_emulate::bits_of(v)); }
DEVICE float __uint_as_float(uint32_t v) { return track_emulate::value_of<float>(v); }
DEVICE float __int_as_float(int v) { return track_emulate::value_of<float>(track_emulate::bits_of(v)); }

struct half_t { uint16_t bits; };
struct bf16_t { uint16_t bits; };

DEVICE float to_float(float v) { return v; }
DEVICE float to_float(half_t v) {
    // Exponent and mantissa one place up are the value over 2^112, subnormal or not.
    const uint32_t magnitude = (v.bits & 0x7fffu) << 13;
    const float scaled = __uint_as_float(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0; // infinities and NaNs
    return __uint_as_float(__float_as_uint(scaled) | special | (v.bits & 0x8000u) << 16);
}
DEVICE float to_float(bf16_t v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }

template <class T> DEVICE T from_float(float v);
template <> inline float from_float<float>(float v) { return v; }
template <> inline half_t from_float<half_t>(float v) {
    const uint32_t bits = __float_as_uint(v), sign = bits >> 16 & 0x8000u;
    uint32_t x = bits & 0x7fffffffu;
    if (x > 0x7f800000u)
        return {0x7fff};
    if (x >= 0x47800000u) // 65536 and above
        x = 0x7c00;
    else if (x < 0x38800000u) // below the least normal number: a half has steps of 2^-24 there, as floats from 0.5
        x = __float_as_uint(__uint_as_float(x) + 0.5f) - 0x3f000000u;
    else
        x = (x + 0xfffu + (x >> 13 & 1) - 0x38000000u) >> 13;
    return {static_cast<uint16_t>(x | sign)};
}
template <> inline bf16_t from_float<bf16_t>(float v) {
    const uint32_t x = __float_as_uint(v);
    if ((x & 0x7fffffffu) > 0x7f800000u)
        return {0x7fff};
    return {static_cast<uint16_t>((x + 0x7fffu + (x >> 16 & 1)) >> 16)};
}
template <class T> DEVICE uint32_t pack2(float a, float b) {
    const uint32_t lo = static_cast<uint16_t>(track_emulate::bits_of(from_float<T>(a)));
    return lo | static_cast<uint32_t>(track_emulate::bits_of(from_float<T>(b))) << 16;
}
// 10 bits of mantissa, to nearest, ties away from zero; infinities and NaNs stay.
DEVICE uint32_t to_tf32(uint32_t bits) {
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
}

// ---- Tensor Core fragments ----

DEVICE void ldmatrix4(uint32_t (&r)[4], const void *row) {
    track_emulate::load_matrix(track_emulate::Op::LoadMatrix, r, row);
}
DEVICE void ldmatrix4_trans(uint32_t (&r)[4], const void *row) {
    track_emulate::load_matrix(track_emulate::Op::LoadMatrixTransposed, r, row);
}

struct F16 { typedef half_t T; };
struct Bf16 { typedef bf16_t T; };
struct Tf32 { typedef float T; };
struct F32 { typedef float T; };

template <class E> DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    static_assert(!std::is_same<E, F32>::value, "there is no product of f32 on Tensor Cores");
    typedef track_emulate::Op Op;
    constexpr Op OP = std::is_same<E, F16>::value    ? Op::MmaF16
                      : std::is_same<E, Bf16>::value ? Op::MmaBf16
                                                     : Op::MmaTf32;
    track_emulate::product<OP>(c, a, b0, b1);
}

// ---- Between lanes ----

template <class T> DEVICE T __shfl_sync(unsigned lanes, T v, int from, int width = 32) {
    return track_emulate::value_of<T>(track_emulate::shuffle(lanes, track_emulate::bits_of(v), from & (width - 1), width));
}
template <class T> DEVICE T __shfl_xor_sync(unsigned lanes, T v, int mask, int width = 32) {
    const int within = static_cast<int>(lane_id()) & (width - 1);
    return track_emulate::value_of<T>(track_emulate::shuffle(lanes, track_emulate::bits_of(v), within ^ mask, width));
}
template <class T> DEVICE T __shfl_up_sync(unsigned lanes, T v, unsigned by, int width = 32) {
    const int within = static_cast<int>(lane_id()) & (width - 1);
    return track_emulate::value_of<T>(
        track_emulate::shuffle(lanes, track_emulate::bits_of(v), within - static_cast<int>(by), width));
}
template <class T> DEVICE T __shfl_down_sync(unsigned lanes, T v, unsigned by, int width = 32) {
    const int within = static_cast<int>(lane_id()) & (width - 1);
    return track_emulate::value_of<T>(
        track_emulate::shuffle(lanes, track_emulate::bits_of(v), within + static_cast<int>(by), width));
}
DEVICE unsigned __ballot_sync(unsigned lanes, bool vote) { return track_emulate::ballot(lanes, vote); }
DEVICE int __any_sync(unsigned lanes, bool vote) { return track_emulate::ballot(lanes, vote) != 0; }
DEVICE int __all_sync(unsigned lanes, bool vote) { return track_emulate::ballot(lanes, vote) == 0xffffffffu; }

DEVICE float lane_xor(float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEVICE float lane_from(float v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEVICE int lane_xor(int v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }

// ---- Arithmetic ----

template <class A, class B> constexpr typename std::common_type<A, B>::type min(A a, B b) {
    return b < a ? b : a;
}
template <class A, class B> constexpr typename std::common_type<A, B>::type max(A a, B b) {
    return a < b ? b : a;
}
DEVICE float rsqrtf(float v) { return 1.f / sqrtf(v); }
// Macros: the C library has functions of these names.
#define __expf(v) expf(v)
#define __exp2f(v) exp2f(v)
#define __logf(v) logf(v)
#define __log2f(v) log2f(v)
#define __sinf(v) sinf(v)
#define __cosf(v) cosf(v)
DEVICE float __fdividef(float a, float b) { return a / b; }
DEVICE float __frcp_rn(float v) { return 1.f / v; }
DEVICE float __fsqrt_rn(float v) { return sqrtf(v); }
DEVICE float __frsqrt_rn(float v) { return 1.f / sqrtf(v); }
DEVICE float __fadd_rn(float a, float b) { return a + b; }
DEVICE float __fsub_rn(float a, float b) { return a - b; }
DEVICE float __fmul_rn(float a, float b) { return a * b; }
DEVICE float __fdiv_rn(float a, float b) { return a / b; }
DEVICE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float __saturatef(float v) { return v > 0.f ? (v < 1.f ? v : 1.f) : 0.f; }
DEVICE int __float2int_rd(float v) { return static_cast<int>(floorf(v)); }
DEVICE int __float2int_rn(float v) { return static_cast<int>(rintf(v)); }
DEVICE int __float2int_rz(float v) { return static_cast<int>(v); }
DEVICE float __int2float_rn(int v) { return static_cast<float>(v); }
DEVICE unsigned __umulhi(unsigned a, unsigned b) { return static_cast<uint64_t>(a) * b >> 32; }
DEVICE int __popc(unsigned v) { return __builtin_popcount(v); }
DEVICE int __clz(int v) { return v ? __builtin_clz(static_cast<unsigned>(v)) : 32; }
DEVICE int __ffs(int v) { return __builtin_ffs(v); }

// ---- Atomics: blocks run at the same time ----

namespace track_emulate {
template <class T, class F> inline T atomically(T *at, F change) {
    T seen, next;
    __atomic_load(at, &seen, __ATOMIC_RELAXED);
    do
        next = change(seen);
    while (!__atomic_compare_exchange(at, &seen, &next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return seen;
}
} // namespace track_emulate
template <class T> DEVICE T atomicAdd(T *at, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [v](T seen) { return static_cast<T>(seen + v); });
}
template <class T> DEVICE T atomicMax(T *at, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [v](T seen) { return seen < v ? v : seen; });
}
template <class T> DEVICE T atomicMin(T *at, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [v](T seen) { return v < seen ? v : seen; });
}
DEVICE unsigned atomicInc(unsigned *at, unsigned most) {
    return track_emulate::atomically(at, [most](unsigned seen) { return seen >= most ? 0u : seen + 1u; });
}
template <class T> DEVICE T atomicOr(T *at, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [v](T seen) { return static_cast<T>(seen | v); });
}
template <class T> DEVICE T atomicExch(T *at, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [v](T) { return v; });
}
template <class T> DEVICE T atomicCAS(T *at, typename std::common_type<T>::type old, typename std::common_type<T>::type v) {
    return track_emulate::atomically(at, [old, v](T seen) { return seen == old ? v : seen; });
}

// Products of a warp group (four warps) on Hopper: 64 rows × 64 or 128 columns, operands straight from shared memory.
//
// The layout in shared memory is rows of 128 bytes, 16-byte chunks swizzled by the row.
#pragma once
#include "device.cuh"

// Describes an operand: rows of 128 bytes swizzled in 16-byte chunks, groups of eight rows 1024 bytes apart.
DEVICE uint64_t wgmma_operand(const void *shared) {
    const uint64_t at = static_cast<uint64_t>(__cvta_generic_to_shared(shared));
    return (at & 0x3ffff) >> 4 | 1ull << 16 | static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}

// Waits until at most N groups of products are running.
template <int N, int NI> DEVICE void wgmma_wait(float (&c)[NI][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
    // The accumulators change behind the compiler's back until the last group is done. (Naming them earlier would make
    // it wait for each group.)
    if (N == 0) {
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                asm volatile("" : "+f"(c[j][i])::"memory");
    }
}

// One step of 32 bytes of depth, added to what is there or in its place.
template <class E, int COLUMNS> DEVICE void wgmma_step(float (&c)[COLUMNS / 8][4], uint64_t a, uint64_t b, int add);

// The instruction names its accumulators one by one. `last` tells neither operand to be negated and, where the type allows
// it to be asked, neither to be transposed.
#define ROW(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define WGMMA_64(E, depth, types, last)                                                                                \
    template <> __device__ __forceinline__ void wgmma_step<E, 64>(float (&c)[8][4], uint64_t a, uint64_t b, int add) { \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"                                                  \
                     "wgmma.mma_async.sync.aligned.m64n64" depth ".f32." types " {"                                    \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                  \
                     "}, %32, %33, add" last ";\n}"                                                                    \
                     : ROW(c, 0), ROW(c, 1), ROW(c, 2), ROW(c, 3), ROW(c, 4), ROW(c, 5), ROW(c, 6), ROW(c, 7)          \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }
#define WGMMA_128(E, depth, types, last)                                                                               \
    template <> __device__ __forceinline__ void wgmma_step<E, 128>(float (&c)[16][4], uint64_t a, uint64_t b, int add) { \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"                                                  \
                     "wgmma.mma_async.sync.aligned.m64n128" depth ".f32." types " {"                                   \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                          \
                     "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
                     "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                  \
                     "}, %64, %65, add" last ";\n}"                                                                    \
                     : ROW(c, 0), ROW(c, 1), ROW(c, 2), ROW(c, 3), ROW(c, 4), ROW(c, 5), ROW(c, 6), ROW(c, 7),         \
                       ROW(c, 8), ROW(c, 9), ROW(c, 10), ROW(c, 11), ROW(c, 12), ROW(c, 13), ROW(c, 14), ROW(c, 15)    \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }
#define WGMMA(E, depth, types, last)                                                                                   \
    WGMMA_64(E, depth, types, last)                                                                                    \
    WGMMA_128(E, depth, types, last)

WGMMA(F16, "k16", "f16.f16", ", 1, 1, 0, 0")
WGMMA(Bf16, "k16", "bf16.bf16", ", 1, 1, 0, 0")
WGMMA(Tf32, "k8", "tf32.tf32", ", 1, 1")

// A slice of 128 bytes of depth, the `first` of which sets the accumulators; leaves its products running and the ones before it done.
template <class E, int COLUMNS>
DEVICE void wgmma_slice(float (&c)[COLUMNS / 8][4], const unsigned char *a, const unsigned char *b, bool first) {
    const uint64_t from_a = wgmma_operand(a), from_b = wgmma_operand(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < 4; step++)
        wgmma_step<E, COLUMNS>(c, from_a + step * 2, from_b + step * 2, !first || step > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    wgmma_wait<1>(c);
}

// What the emulator's own files share: fibers and their stacks, warps, blocks.
#pragma once

#include "emulate.hpp"

#include <memory>
#include <string>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define TRACK_UCONTEXT 1
#endif
#ifdef TRACK_UCONTEXT
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TRACK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRACK_ASAN 1
#endif
#endif
#ifdef TRACK_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace track_emulate {

constexpr unsigned LANES = 32;
constexpr size_t STACK = 128 << 10;
// Stacks that lie a power of two apart would put all threads' hot lines into the same few sets of the caches.
constexpr size_t STACK_PITCH = STACK + 13 * 64;
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t MAX_SHARED = 227 << 10, SHARED_GUARD = 4 << 10, SHARED_ALIGN = 1024;
constexpr unsigned char NAN_BYTE = 0xff; // 0xffff… is a NaN in every element type
// The last word of each stack.
constexpr uint64_t CANARY = 0x5ca1ab1e0ddba11ull;

#ifdef TRACK_UCONTEXT
struct Context {
    ucontext_t state;
};
#else
struct Context {
    void *sp;
};
#endif
// Goes on where `to` stopped, until something switches back to `from`.
extern "C" __attribute__((visibility("hidden"))) void track_emulate_switch(Context *from, Context *to);
// A context that begins with `entry` on a stack of STACK bytes.
void make_context(Context &context, unsigned char *stack, void (*entry)());

struct Copy {
    void *to;
    const void *from; // null: zeros
};

enum class State : unsigned char { Ready, AtBarrier, Done };

struct Fiber : Thread {
    Context context;
    Fiber *next; // the warp's next lane
    unsigned char *stack;
    State state;
    std::vector<Copy> copies;   // not yet arrived
    std::vector<size_t> groups; // ends of groups in `copies`
};

// What the lanes bring to one collective and take from it.
struct Exchange {
    uint64_t values[LANES];
    const void *rows[LANES];
    alignas(32) unsigned char matrices[LANES][16];
    // Fragments where they belong in their matrices: a and c by rows, b by depth.
    alignas(32) uint32_t a[16][8];
    union {
        alignas(32) uint16_t b16[16][8];
        alignas(32) uint32_t b32[8][8];
    };
    alignas(32) float c[16][8];
};

struct Warp {
    Fiber *lanes;
    Fiber *first; // runs first
    unsigned size, arrived, at_barrier, done;
    Op op;
    // Lanes still read one exchange while the first of them already brings something to the next.
    unsigned turn;
    Exchange exchanges[2];
};

// An OS thread's means to run blocks; kept from launch to launch.
struct Block {
    Shape shape;
    const Kernel *kernel;
    const void *params;
    bool upwards, copies_at_once;
    unsigned threads, warps, waiting;
    Context host;
#ifdef TRACK_ASAN
    const void *host_stack;
    size_t host_stack_size;
#endif
    std::string error;
    std::vector<Fiber> fibers;
    std::vector<Warp> warp;
    std::unique_ptr<unsigned char[]> stacks;
    std::unique_ptr<unsigned char[]> shared_memory;
    unsigned char *shared;
    size_t shared_bytes;

    void prepare(const Kernel &kernel, const void *params, dim3 grid, dim3 block, size_t shared_bytes);
    bool run(uint64_t index, unsigned order);
};

// What a fiber begins with.
void run_thread();

// Takes up a fiber, leaving `from`. ASan must know which stack is in use.
inline void enter(Context &from, Fiber &to) {
    running = &to;
#ifdef TRACK_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to.stack, STACK);
    track_emulate_switch(&from, &to.context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    track_emulate_switch(&from, &to.context);
#endif
}

} // namespace track_emulate

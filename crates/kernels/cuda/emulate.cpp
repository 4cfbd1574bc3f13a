// Fibers, barriers, collectives of a warp and the launch of a grid: what emulate.hpp declares.
#include "emulate.hpp"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#define TRACK_UCONTEXT 1
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

__thread const Thread *running;
__thread const Shape *shape;

namespace {

constexpr unsigned LANES = 32;
constexpr size_t STACK = 128 << 10;
// Stacks that lie a power of two apart would put all threads' hot lines into the same few sets of the caches.
constexpr size_t STACK_PITCH = STACK + 13 * 64;
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t MAX_SHARED = 227 << 10, SHARED_GUARD = 4 << 10, SHARED_ALIGN = 1024;
constexpr unsigned char NAN_BYTE = 0xff; // 0xffff… is a NaN in every element type
constexpr uint64_t CANARY = 0x5ca1ab1e0ddba11ull;

// ---- Switching stacks ----

#ifdef TRACK_UCONTEXT
struct Context {
    ucontext_t state;
};
void switch_context(Context &from, Context &to) { swapcontext(&from.state, &to.state); }
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = STACK;
    context.state.uc_link = nullptr;
    makecontext(&context.state, entry, 0);
}
#else
struct Context {
    void *sp;
};
// Saves what a called function must keep, then takes up the other stack. It returns where that fiber called it: mostly
// the place where this one did, so that the processor's own stack of return addresses predicts it.
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.type track_emulate_switch, %function
track_emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size track_emulate_switch, .-track_emulate_switch
)");
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    // A function begins 8 bytes beside a multiple of 16, as after a call.
    void **top = reinterpret_cast<void **>(stack + STACK) - 1;
    *top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int saved = 0; saved < 6; saved++)
        *--top = nullptr;
    context.sp = top;
}
#else
asm(R"(
.text
.p2align 4
.type track_emulate_switch, %function
track_emulate_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    ldr x9, [x1]
    mov sp, x9
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size track_emulate_switch, .-track_emulate_switch
)");
void make_context(Context &context, unsigned char *stack, void (*entry)()) {
    unsigned char *top = stack + STACK - 160;
    memset(top, 0, 160);
    *reinterpret_cast<void **>(top + 88) = reinterpret_cast<void *>(entry);
    context.sp = top;
}
#endif
extern "C" void track_emulate_switch(Context *from, Context *to);
inline void switch_context(Context &from, Context &to) { track_emulate_switch(&from, &to); }
#endif

// ---- What a block is made of ----

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

} // namespace

struct Warp {
    Fiber *lanes;
    Fiber *first; // runs first
    unsigned size, arrived, at_barrier, done;
    Op op;
    // Lanes still read one exchange while the first of them already brings something to the next.
    unsigned turn;
    Exchange exchanges[2];
};

namespace {

void run_thread();

} // namespace

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

namespace {

// The state that a fiber's Thread is the beginning of.
inline Fiber &self() { return *const_cast<Fiber *>(static_cast<const Fiber *>(running)); }

// ASan must know which stack is in use.
inline void enter(Context &from, Fiber &to) {
    running = &to;
#ifdef TRACK_ASAN
    void *fake;
    __sanitizer_start_switch_fiber(&fake, to.stack, STACK);
    switch_context(from, to.context);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    switch_context(from, to.context);
#endif
}
[[noreturn]] void leave(Fiber &from) {
    Block &block = *from.block;
#ifdef TRACK_ASAN
    __sanitizer_start_switch_fiber(nullptr, block.host_stack, block.host_stack_size);
#endif
    switch_context(from.context, block.host);
    __builtin_unreachable();
}

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail_with(const char *format, ...) {
    Fiber &at = self();
    Block &block = *at.block;
    char what[320], where[160];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    const uint3 b = block.shape.block_index, t = at.thread;
    snprintf(where, sizeof where, ", block (%u, %u, %u), thread (%u, %u, %u): ", b.x, b.y, b.z, t.x, t.y, t.z);
    block.error = std::string("kernel ") + block.kernel->name + where + what;
    leave(at);
}

const char *name_of(Op op) {
    switch (op) {
    case Op::SyncWarp: return "__syncwarp";
    case Op::Shuffle: return "a shuffle";
    case Op::Vote: return "a vote";
    case Op::LoadMatrix: return "ldmatrix4";
    case Op::LoadMatrixTransposed: return "ldmatrix4_trans";
    case Op::MmaF16: return "mma<F16>";
    case Op::MmaBf16: return "mma<Bf16>";
    case Op::MmaTf32: return "mma<Tf32>";
    }
    return "?";
}

// ---- Scheduling ----

// Where the block goes on after `from` can not; null when no thread is left.
Fiber *next_ready(Fiber &from) {
    Warp &warp = *from.warp;
    if (warp.at_barrier + warp.done < warp.size)
        for (Fiber *lane = from.next;; lane = lane->next)
            if (lane->state == State::Ready)
                return lane;
    Block &block = *from.block;
    for (int pass = 0; pass < 2; pass++) {
        for (unsigned i = 0; i < block.warps; i++) {
            Warp &other = block.warp[block.upwards ? i : block.warps - 1 - i];
            if (other.at_barrier + other.done == other.size)
                continue;
            for (Fiber *lane = other.first;; lane = lane->next)
                if (lane->state == State::Ready)
                    return lane;
        }
        if (block.waiting == 0)
            return nullptr;
        // Every thread that has not ended waits: the barrier opens.
        block.waiting = 0;
        for (unsigned i = 0; i < block.warps; i++)
            block.warp[i].at_barrier = 0;
        for (unsigned i = 0; i < block.threads; i++)
            if (block.fibers[i].state == State::AtBarrier)
                block.fibers[i].state = State::Ready;
    }
    return nullptr;
}

void check_stack(Fiber &at) {
    if (*reinterpret_cast<const uint64_t *>(at.stack) != CANARY)
        fail_with("local variables take more than the emulator's stack of %zu bytes", STACK);
}

void end_thread(Fiber &at) {
    Warp &warp = *at.warp;
    if (warp.arrived)
        fail_with("the lane ended while %u of its warp wait at %s", warp.arrived, name_of(warp.op));
    check_stack(at);
    at.state = State::Done;
    warp.done++;
    if (Fiber *next = next_ready(at))
        enter(at.context, *next);
    leave(at);
}

void run_thread() {
    Fiber &at = self();
#ifdef TRACK_ASAN
    // The first fiber of a block comes from the host's stack and tells where that lies.
    const void *from;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &from, &size);
    if (!at.block->host_stack)
        at.block->host_stack = from, at.block->host_stack_size = size;
#endif
    at.block->kernel->run(at.block->params);
    end_thread(at);
    __builtin_unreachable();
}

// Calls bring(exchange), then waits until all lanes have; the last one calls finish(exchange).
template <class Bring, class Finish> inline Exchange &collective(Fiber &at, Op op, Bring bring, Finish finish) {
    Warp &warp = *at.warp;
    if (warp.arrived == 0) {
        if (warp.size != LANES)
            fail_with("%s in a warp of %u lanes", name_of(op), warp.size);
        if (warp.at_barrier + warp.done)
            fail_with("%s, but of its warp %u lanes have ended and %u wait at __syncthreads", name_of(op), warp.done,
                      warp.at_barrier);
        warp.op = op;
    } else if (warp.op != op) {
        fail_with("%s while %u lanes of its warp wait at %s", name_of(op), warp.arrived, name_of(warp.op));
    }
    Exchange &exchange = warp.exchanges[warp.turn];
    bring(exchange);
    if (++warp.arrived == LANES) {
        finish(exchange);
        warp.arrived = 0;
        warp.turn ^= 1;
    } else {
        // Lanes pass every collective in the order of the ring, so the next one can run: all that wait came before.
        enter(at.context, *at.next);
    }
    return exchange;
}

void arrive(const Copy &copy) {
    if (copy.from)
        memcpy(copy.to, copy.from, 16);
    else
        memset(copy.to, 0, 16);
}

void must_be_aligned(const void *address, const char *what) {
    if (reinterpret_cast<uintptr_t>(address) % 16)
        fail_with("%s: address %p is not a multiple of 16", what, address);
}

// ---- Products ----

typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

// Device code is compiled with -ftrivial-auto-var-init, which would cost much here.
#if defined(__has_attribute)
#if __has_attribute(uninitialized)
#define UNINITIALIZED __attribute__((uninitialized))
#endif
#endif
#ifndef UNINITIALIZED
#define UNINITIALIZED
#endif

inline Floats as_floats(Words w) { return reinterpret_cast<Floats &>(w); }
inline Words as_words(Floats f) { return reinterpret_cast<Words &>(f); }

// Eight 16-bit values; the same arithmetic as to_float.
template <Op OP> inline Floats widen(const uint16_t *from) {
    Halves raw;
    memcpy(&raw, from, sizeof raw);
    const Words bits = __builtin_convertvector(raw, Words);
    if (OP == Op::MmaBf16)
        return as_floats(bits << 16);
    const Words magnitude = (bits & 0x7fffu) << 13;
    const Words special = reinterpret_cast<Words>(magnitude >= 0x0f800000u) & 0x7f800000u;
    return as_floats(as_words(as_floats(magnitude) * 0x1p112f) | special | (bits & 0x8000u) << 16);
}
inline Floats round_tf32(const uint32_t *from) {
    Words bits;
    memcpy(&bits, from, sizeof bits);
    const Words special = reinterpret_cast<Words>((bits & 0x7f800000u) == 0x7f800000u);
    return as_floats((bits & special) | ((bits + 0x1000u) & ~0x1fffu & ~special));
}

template <Op OP> void multiply(Exchange &e) {
    constexpr int DEPTH = OP == Op::MmaTf32 ? 8 : 16;
    alignas(32) float a[16][DEPTH] UNINITIALIZED;
    Floats b[DEPTH] UNINITIALIZED;
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < DEPTH; k += 8) {
            const Floats v = OP == Op::MmaTf32 ? round_tf32(e.a[row])
                                               : widen<OP>(reinterpret_cast<const uint16_t *>(e.a[row]) + k);
            memcpy(&a[row][k], &v, sizeof v);
        }
    for (int k = 0; k < DEPTH; k++)
        b[k] = OP == Op::MmaTf32 ? round_tf32(e.b32[k % 8]) : widen<OP>(e.b16[k]);
    for (int row = 0; row < 16; row += 8) {
        Floats c[8] UNINITIALIZED;
        memcpy(c, e.c[row], sizeof c);
        for (int k = 0; k < DEPTH; k++)
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) // in registers
                c[i] += b[k] * a[row + i][k];
        memcpy(e.c[row], c, sizeof c);
    }
}

} // namespace

// ---- What kernels call ----

void fail(const char *what) { fail_with("%s", what); }

void sync_threads() {
    Fiber &at = self();
    Warp &warp = *at.warp;
    if (warp.arrived)
        fail_with("__syncthreads while %u lanes of its warp wait at %s", warp.arrived, name_of(warp.op));
    check_stack(at);
    at.state = State::AtBarrier;
    warp.at_barrier++;
    at.block->waiting++;
    Fiber *next = next_ready(at);
    if (next != &at)
        enter(at.context, *next);
}

void sync_warp() {
    collective(self(), Op::SyncWarp, [](Exchange &) {}, [](Exchange &) {});
}

uint64_t shuffle(unsigned lanes, uint64_t bits, int from, int width) {
    if (lanes != 0xffffffffu)
        fail_with("a shuffle among part of a warp (lanes %08x) is not emulated", lanes);
    Fiber &at = self();
    const unsigned lane = at.lane;
    const Exchange &e = collective(at, Op::Shuffle, [&](Exchange &e) { e.values[lane] = bits; }, [](Exchange &) {});
    const bool there = static_cast<unsigned>(from) < static_cast<unsigned>(width);
    return e.values[there ? (lane & ~(width - 1)) + from : lane];
}

unsigned ballot(unsigned lanes, bool vote) {
    if (lanes != 0xffffffffu)
        fail_with("a vote among part of a warp (lanes %08x) is not emulated", lanes);
    Fiber &at = self();
    const Exchange &e = collective(at, Op::Vote, [&](Exchange &e) { e.values[at.lane] = vote; }, [](Exchange &) {});
    unsigned votes = 0;
    for (unsigned i = 0; i < LANES; i++)
        votes |= static_cast<unsigned>(e.values[i]) << i;
    return votes;
}

void load_matrix(Op op, uint32_t (&r)[4], const void *row) {
    must_be_aligned(row, name_of(op));
    Fiber &at = self();
    const unsigned lane = at.lane;
    const Exchange &e = collective(
        at, op, [&](Exchange &e) { e.rows[lane] = row; },
        [](Exchange &e) {
            for (unsigned i = 0; i < LANES; i++)
                memcpy(e.matrices[i], e.rows[i], 16);
        });
    for (unsigned i = 0; i < 4; i++) {
        if (op == Op::LoadMatrix) {
            memcpy(&r[i], e.matrices[i * 8 + lane / 4] + lane % 4 * 4, 4);
        } else {
            uint16_t pair[2];
            for (unsigned j = 0; j < 2; j++)
                memcpy(&pair[j], e.matrices[i * 8 + lane % 4 * 2 + j] + lane / 4 * 2, 2);
            memcpy(&r[i], pair, 4);
        }
    }
}

template <Op OP> void product(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    Fiber &at = self();
    const unsigned row = at.lane / 4, word = at.lane % 4;
    const Exchange &e = collective(
        at, OP,
        [&](Exchange &e) {
            e.a[row][word] = a[0];
            e.a[row + 8][word] = a[1];
            e.a[row][word + 4] = a[2];
            e.a[row + 8][word + 4] = a[3];
            if (OP == Op::MmaTf32) {
                e.b32[word][row] = b0;
                e.b32[word + 4][row] = b1;
            } else {
                e.b16[word * 2][row] = static_cast<uint16_t>(b0);
                e.b16[word * 2 + 1][row] = static_cast<uint16_t>(b0 >> 16);
                e.b16[word * 2 + 8][row] = static_cast<uint16_t>(b1);
                e.b16[word * 2 + 9][row] = static_cast<uint16_t>(b1 >> 16);
            }
            memcpy(&e.c[row][word * 2], &c[0], 8);
            memcpy(&e.c[row + 8][word * 2], &c[2], 8);
        },
        multiply<OP>);
    memcpy(&c[0], &e.c[row][word * 2], 8);
    memcpy(&c[2], &e.c[row + 8][word * 2], 8);
}
template void product<Op::MmaF16>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);
template void product<Op::MmaBf16>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);
template void product<Op::MmaTf32>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t);

void copy16(void *shared, const void *global, bool valid) {
    must_be_aligned(shared, "Copy16 to shared memory");
    if (valid)
        must_be_aligned(global, "Copy16 from global memory");
    const Copy copy = {shared, valid ? global : nullptr};
    Fiber &at = self();
    if (at.block->copies_at_once)
        arrive(copy);
    else
        at.copies.push_back(copy);
}

void end_copy_group() {
    Fiber &at = self();
    if (!at.block->copies_at_once)
        at.groups.push_back(at.copies.size());
}

void wait_copies(unsigned groups_in_flight) {
    Fiber &at = self();
    if (at.groups.size() <= groups_in_flight)
        return;
    const size_t over = at.groups.size() - groups_in_flight, end = at.groups[over - 1];
    for (size_t i = 0; i < end; i++)
        arrive(at.copies[i]);
    at.copies.erase(at.copies.begin(), at.copies.begin() + static_cast<ptrdiff_t>(end));
    at.groups.erase(at.groups.begin(), at.groups.begin() + static_cast<ptrdiff_t>(over));
    for (size_t &group : at.groups)
        group -= end;
}

unsigned char *dynamic_shared() { return self().block->shared; }

// ---- Blocks and grids ----

void Block::prepare(const Kernel &of, const void *with, dim3 grid, dim3 block, size_t bytes) {
    kernel = &of;
    params = with;
    shape.grid = grid;
    shape.block = block;
    threads = block.x * block.y * block.z;
    warps = (threads + LANES - 1) / LANES;
    if (fibers.size() < threads) {
        const unsigned count = (threads + LANES - 1) / LANES * LANES;
        stacks.reset(new unsigned char[count * STACK_PITCH + 64]); // not touched, so not yet memory
        fibers.resize(count);
        warp.resize(count / LANES);
        unsigned char *base = stacks.get();
        base += -reinterpret_cast<uintptr_t>(base) & 63;
        for (unsigned i = 0; i < count; i++) {
            fibers[i].stack = base + i * STACK_PITCH;
            *reinterpret_cast<uint64_t *>(fibers[i].stack) = CANARY;
        }
    }
    if (!shared_memory || shared_bytes != bytes) {
        shared_bytes = bytes;
        shared_memory.reset(new unsigned char[bytes + SHARED_GUARD + SHARED_ALIGN]);
        shared = shared_memory.get();
        shared += -reinterpret_cast<uintptr_t>(shared) & (SHARED_ALIGN - 1);
    }
    for (unsigned i = 0; i < threads; i++) {
        Fiber &fiber = fibers[i];
        fiber.thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
        fiber.lane = i % LANES;
        fiber.warp = &warp[i / LANES];
        fiber.block = this;
    }
}

bool Block::run(uint64_t index, unsigned order) {
    shape.block_index = {static_cast<unsigned>(index % shape.grid.x),
                         static_cast<unsigned>(index / shape.grid.x % shape.grid.y),
                         static_cast<unsigned>(index / shape.grid.x / shape.grid.y)};
    upwards = ((index ^ order) & 1) == 0;
    copies_at_once = ((index ^ order) & 2) != 0;
    waiting = 0;
    error.clear();
    for (unsigned i = 0; i < warps; i++) {
        Warp &w = warp[i];
        w.lanes = &fibers[i * LANES];
        w.size = std::min(LANES, threads - i * LANES);
        w.arrived = w.at_barrier = w.done = w.turn = 0;
        w.first = upwards ? w.lanes : w.lanes + w.size - 1;
        for (unsigned lane = 0; lane < w.size; lane++) {
            Fiber &fiber = w.lanes[lane];
            fiber.next = w.lanes + (lane + (upwards ? 1 : w.size - 1)) % w.size;
            fiber.state = State::Ready;
            fiber.copies.clear();
            fiber.groups.clear();
#ifdef TRACK_ASAN
            ASAN_UNPOISON_MEMORY_REGION(fiber.stack, STACK);
#endif
            make_context(fiber.context, fiber.stack, run_thread);
        }
    }
    memset(shared, NAN_BYTE, shared_bytes + SHARED_GUARD);
    fill_static_shared(NAN_BYTE);
    track_emulate::shape = &shape;
#ifdef TRACK_ASAN
    host_stack = nullptr;
    ASAN_POISON_MEMORY_REGION(shared + shared_bytes, SHARED_GUARD);
#endif
    enter(host, *warp[upwards ? 0 : warps - 1].first);
    running = nullptr;
    track_emulate::shape = nullptr;
#ifdef TRACK_ASAN
    ASAN_UNPOISON_MEMORY_REGION(shared + shared_bytes, SHARED_GUARD);
#endif
    if (error.empty())
        for (size_t i = 0; i < SHARED_GUARD; i++)
            if (shared[shared_bytes + i] != NAN_BYTE) {
                char what[200];
                snprintf(what, sizeof what,
                         ", block (%u, %u, %u): wrote behind its %zu bytes of dynamic shared memory, at byte %zu",
                         shape.block_index.x, shape.block_index.y, shape.block_index.z, shared_bytes, shared_bytes + i);
                error = std::string("kernel ") + kernel->name + what;
                break;
            }
    return error.empty();
}

namespace {

// Written while the program starts, one constructor after the other.
const Kernel *kernels = nullptr;

// Blocks that no launch uses.
std::mutex spare_lock;
std::vector<std::unique_ptr<Block>> spare;

std::atomic<unsigned> block_order{0};

std::unique_ptr<Block> take_block() {
    const std::lock_guard<std::mutex> guard(spare_lock);
    if (spare.empty())
        return std::make_unique<Block>();
    std::unique_ptr<Block> block = std::move(spare.back());
    spare.pop_back();
    return block;
}

std::string launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, const void *params, size_t params_bytes,
                   unsigned threads) {
    const Kernel *kernel = nullptr;
    for (const Kernel *k = kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0) {
            if (kernel)
                return std::string("two kernels are called ") + name;
            kernel = k;
        }
    if (!kernel)
        return std::string("there is no kernel called ") + name;
    const std::string at = std::string("kernel ") + name + ": ";
    if (params_bytes != (kernel->params_bytes + 7) / 8 * 8) // hosts pass whole words
        return at + "takes " + std::to_string(kernel->params_bytes) + " bytes of parameters, but was given " +
               std::to_string(params_bytes);
    const uint64_t count = static_cast<uint64_t>(block.x) * block.y * block.z;
    if (count == 0 || count > MAX_THREADS || count > kernel->max_threads)
        return at + "a block of " + std::to_string(count) + " threads, but it is made for 1 to " +
               std::to_string(std::min(kernel->max_threads, MAX_THREADS));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff)
        return at + "a grid of " + std::to_string(grid.x) + " × " + std::to_string(grid.y) + " × " +
               std::to_string(grid.z) + " blocks";
    if (shared_bytes > MAX_SHARED)
        return at + std::to_string(shared_bytes) + " bytes of shared memory are more than any device has";
    // The caller's bytes may lie anywhere.
    const std::unique_ptr<std::max_align_t[]> aligned(new std::max_align_t[params_bytes / sizeof(std::max_align_t) + 1]);
    memcpy(aligned.get(), params, params_bytes);

    const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    const unsigned order = block_order.load();
    std::atomic<uint64_t> next{0};
    std::atomic<bool> failed{false};
    std::mutex error_lock;
    std::string error;
    auto work = [&] {
        std::unique_ptr<Block> mine = take_block();
        mine->prepare(*kernel, aligned.get(), grid, block, shared_bytes);
        while (!failed.load(std::memory_order_relaxed)) {
            const uint64_t index = next.fetch_add(1);
            if (index >= blocks)
                break;
            if (!mine->run(index, order)) {
                const std::lock_guard<std::mutex> guard(error_lock);
                if (!failed.exchange(true))
                    error = mine->error;
            }
        }
        const std::lock_guard<std::mutex> guard(spare_lock);
        spare.push_back(std::move(mine));
    };
    std::vector<std::thread> helpers;
    const uint64_t workers = std::min<uint64_t>(std::max(threads, 1u), blocks);
    for (uint64_t i = 1; i < workers; i++)
        helpers.emplace_back(work);
    work();
    for (std::thread &helper : helpers)
        helper.join();
    return error;
}

} // namespace

Kernel::Kernel(const char *name, size_t params_bytes, unsigned max_threads, void (*run)(const void *))
    : name(name), params_bytes(params_bytes), max_threads(max_threads), run(run), next(kernels) {
    kernels = this;
}

} // namespace track_emulate

extern "C" {

// Runs a grid to its end on up to `threads` OS threads. 0, or 1 with a sentence in `error` (cut to `error_bytes`).
int track_emulate_launch(const char *name, const unsigned *grid, const unsigned *block, size_t shared_bytes,
                         const void *params, size_t params_bytes, unsigned threads, char *error, size_t error_bytes) {
    std::string what;
    try {
        what = track_emulate::launch(name, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared_bytes,
                                     params, params_bytes, threads);
    } catch (const std::exception &failure) {
        what = std::string("kernel ") + name + ": " + failure.what();
    }
    if (what.empty())
        return 0;
    if (error_bytes)
        snprintf(error, error_bytes, "%s", what.c_str());
    return 1;
}

int track_emulate_has(const char *name) {
    for (const track_emulate::Kernel *k = track_emulate::kernels; k; k = k->next)
        if (strcmp(k->name, name) == 0)
            return 1;
    return 0;
}

// Which of the four ways (bit 0: warps and lanes downwards; bit 1: copies arrive at once) block 0 runs in; others
// follow by their index.
void track_emulate_order(unsigned order) { track_emulate::block_order = order; }
}

// Fibers that wait for each other: the block's barrier, collectives of a warp, copies that arrive late.
#include "emulate_fiber.hpp"

#include <cstdarg>

namespace track_emulate {

__thread const Thread *running;
__thread const Shape *shape;

namespace {

// The state that a fiber's Thread is the beginning of.
inline Fiber &self() { return *const_cast<Fiber *>(static_cast<const Fiber *>(running)); }

[[noreturn]] void leave(Fiber &from) {
    Block &block = *from.block;
#ifdef TRACK_ASAN
    __sanitizer_start_switch_fiber(nullptr, block.host_stack, block.host_stack_size);
#endif
    track_emulate_switch(&from.context, &block.host);
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

} // namespace track_emulate

// Blocks and grids: preparing an OS thread to run blocks, and spreading a grid's blocks over several.
#include "emulate_fiber.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace track_emulate {

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

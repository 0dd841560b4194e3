// Enough of CUDA for our kernels on a processor: the threads of a block are fibers that take turns at every meeting
// point, so that a warp's lanes meet as they do on a card. Blocks run one after another.
#include <ucontext.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
struct Index { unsigned x, y, z; };
static Index blockIdx, blockDim, gridDim;
static std::vector<char> shared_room;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool ended = false;
    int turn = 0;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static int here;
static unsigned long long slots[2][1024];
static int arrived, generation;
static std::function<void()> body;

struct Lane { operator int() const { return here; } };
static struct { Lane x; } threadIdx;

static void meet() { swapcontext(&fibers[here].context, &scheduler); }
static void __syncwarp() { meet(); }
static void __syncthreads() {
    int mine = generation;
    if (++arrived == (int)blockDim.x) { arrived = 0; generation++; }
    do meet(); while (generation == mine);
}
template <class T> T exchanged(T value, int from) {
    int turn = fibers[here].turn ^= 1;
    std::memcpy(&slots[turn][here], &value, sizeof value);
    meet();
    T out;
    std::memcpy(&out, &slots[turn][from], sizeof out);
    return out;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) { return exchanged(value, here ^ mask); }
template <class T> T __shfl_sync(unsigned, T value, int lane) { return exchanged(value, (here & ~31) | lane); }
static unsigned __ballot_sync(unsigned, bool holds) {
    int turn = fibers[here].turn ^= 1;
    slots[turn][here] = holds;
    meet();
    unsigned out = 0;
    for (int lane = 0; lane < 32; lane++) out |= (unsigned)slots[turn][(here & ~31) | lane] << lane;
    return out;
}
template <class T> T __ldcg(const T* place) { return *place; }
template <class T> T atomicAdd(T* place, T value) { T before = *place; *place += value; return before; }
static int __popcll(unsigned long long word) { return __builtin_popcountll(word); }

static void run_fiber() { body(); fibers[here].ended = true; }

static void launch(unsigned gx, unsigned gy, unsigned threads, unsigned shared, std::function<void()> kernel) {
    body = kernel;
    gridDim = {gx, gy, 1};
    blockDim = {threads, 1, 1};
    for (unsigned y = 0; y < gy; y++)
        for (unsigned x = 0; x < gx; x++) {
            blockIdx = {x, y, 0};
            shared_room.assign(shared + 64, 0x5a);
            fibers = std::vector<Fiber>(threads);
            arrived = 0;
            for (auto& fiber : fibers) {
                fiber.stack.resize(1 << 15);
                getcontext(&fiber.context);
                fiber.context.uc_stack.ss_sp = fiber.stack.data();
                fiber.context.uc_stack.ss_size = fiber.stack.size();
                fiber.context.uc_link = &scheduler;
                makecontext(&fiber.context, run_fiber, 0);
            }
            for (bool going = true; going;) {
                going = false;
                for (here = 0; here < (int)threads; here++)
                    if (!fibers[here].ended) {
                        swapcontext(&scheduler, &fibers[here].context);
                        going = true;
                    }
            }
        }
}

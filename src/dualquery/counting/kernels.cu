typedef unsigned int u32;
typedef unsigned long long u64;

// bits[first + p, word] of 32 records: whether predicate p accepts the record's code
#define ACCEPT(NAME, CODE)                                                                                     \
extern "C" __global__ void NAME(const CODE* codes, long long rows, const unsigned char* accepts, int size,     \
                                const int* place, int number, u32* bits, long long words) {                    \
    long long word = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;                                   \
    int lane = threadIdx.x & 31;                                                                               \
    if (word >= words) return;                                                                                 \
    long long row = 32 * word + lane;                                                                          \
    int code = row < rows ? (int)codes[row] : -1;                                                              \
    for (int p = 0; p < number; p++) {                                                                         \
        u32 held = __ballot_sync(0xffffffffu, code >= 0 && accepts[p * (long long)size + code]);               \
        if (lane == 0) bits[place[p] * words + word] = held;                                                   \
    }                                                                                                          \
}
ACCEPT(accept_1, unsigned char)
ACCEPT(accept_2, unsigned short)
ACCEPT(accept_4, unsigned int)

// used[1 + p] = 1 where some of the literals 2p, 2p + 1 of all queries is about predicate p
extern "C" __global__ void mark_used(const int* literals, long long number, unsigned char* used) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < number) used[1 + (literals[i] >> 1)] = 1;
}

// asked[k, q] = literal k of query q, its predicate numbered anew
extern "C" __global__ void number_literals(const int* literals, long long queries, int width, const int* number,
                                           int* asked) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= queries * width) return;
    int literal = literals[(i % queries) * width + i / queries];
    asked[i] = literal < 0 ? literal : 2 * number[literal >> 1] + (literal & 1);
}

// counts[q] += records of a tile of words for which all literals hold. literal 2p: column p, 2p + 1: its negation;
// padding asks for the last column, whose ones are the records that there are, and so does every count.
extern "C" __global__ void conjunctions(const u64* bits, long long words, int columns, const int* literals, int width,
                                        long long queries, int tile, u64* counts) {
    extern __shared__ u64 local[];
    long long first = blockIdx.x * (long long)tile;
    for (int i = threadIdx.x; i < columns * tile; i += blockDim.x) {
        long long word = first + i % tile;
        local[i] = word < words ? bits[(i / tile) * words + word] : 0;
    }
    __syncthreads();
    const u64* valid = local + (columns - 1) * tile;
    int nobody = 0;  // bits beyond the last record, zero in all columns: three negations would count them
    for (int i = 0; i < tile; i++) nobody += 64 - __popcll(valid[i]);
    long long step = (long long)gridDim.y * blockDim.x;
    for (long long q = blockIdx.y * (long long)blockDim.x + threadIdx.x; q < queries; q += step) {
        int total = 0;
        if (width <= 3) {
            int a = literals[q], b = width > 1 ? literals[queries + q] : -1, c = width > 2 ? literals[2 * queries + q] : -1;
            const u64* x = a < 0 ? valid : local + (a >> 1) * tile;
            const u64* y = b < 0 ? valid : local + (b >> 1) * tile;
            const u64* z = c < 0 ? valid : local + (c >> 1) * tile;
            u64 nx = a < 0 || !(a & 1) ? 0 : ~0ull, ny = b < 0 || !(b & 1) ? 0 : ~0ull, nz = c < 0 || !(c & 1) ? 0 : ~0ull;
            #pragma unroll 8
            for (int i = 0; i < tile; i++) {
                int w = (i + threadIdx.x) & (tile - 1);
                total += __popcll((x[w] ^ nx) & (y[w] ^ ny) & (z[w] ^ nz));
            }
            if (nx & ny & nz) total -= nobody;
        } else {
            for (int i = 0; i < tile; i++) {
                int w = (i + threadIdx.x) & (tile - 1);
                u64 joint = valid[w];
                for (int k = 0; k < width; k++) {
                    int literal = literals[k * queries + q];
                    if (literal >= 0) joint &= local[(literal >> 1) * tile + w] ^ (literal & 1 ? ~0ull : 0);
                }
                total += __popcll(joint);
            }
        }
        if (total) atomicAdd(counts + q, (u64)total);
    }
}

// The same where there are too many columns for shared memory: a warp a query, straight from the card's memory.
extern "C" __global__ void conjunctions_direct(const u64* bits, long long words, int columns, const int* literals,
                                               int width, long long queries, u64* counts) {
    long long q = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;
    int lane = threadIdx.x & 31;
    if (q >= queries) return;
    u64 total = 0;
    const u64* valid = bits + (columns - 1) * words;
    for (long long w = lane; w < words; w += 32) {
        u64 joint = valid[w];
        for (int k = 0; k < width; k++) {
            int literal = literals[k * queries + q];
            if (literal >= 0) joint &= bits[(literal >> 1) * words + w] ^ (literal & 1 ? ~0ull : 0);
        }
        total += __popcll(joint);
    }
    for (int off = 16; off; off >>= 1) total += __shfl_xor_sync(0xffffffffu, total, off);
    if (lane == 0) counts[q] += total;
}

// counts[q] += records with an odd number of ones among the columns of row q
extern "C" __global__ void odd_ones(const u64* bits, long long words, const int* attributes, int width,
                                    long long queries, u64* counts) {
    long long q = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;
    int lane = threadIdx.x & 31;
    if (q >= queries) return;
    u64 total = 0;
    for (long long w = lane; w < words; w += 32) {
        u64 joint = 0;
        for (int k = 0; k < width; k++) {
            int j = attributes[k * queries + q];
            if (j >= 0) joint ^= bits[j * words + w];
        }
        total += __popcll(joint);
    }
    for (int off = 16; off; off >>= 1) total += __shfl_xor_sync(0xffffffffu, total, off);
    if (lane == 0) counts[q] += total;
}

// counts[start[t] + cell] += records of a part of the rows in that cell of table t: block (part, table).
// A histogram that fits is kept in shared memory, small ones several times, so that neighbours add to different ones.
extern "C" __global__ void histograms(const u32* codes, long long rows, const int* members, const int* sizes, int width,
                                      const long long* start, int room, u64* counts) {
    extern __shared__ u32 held[];
    int t = blockIdx.y;
    long long cells = start[t + 1] - start[t];
    bool fits = cells <= room;
    int copies = 1;
    while (fits && copies < 32 && 2 * copies * cells <= room) copies *= 2;
    if (fits) {
        for (int i = threadIdx.x; i < copies * cells; i += blockDim.x) held[i] = 0;
        __syncthreads();
    }
    u32* mine = held + (threadIdx.x & (copies - 1)) * cells;
    long long step = (long long)gridDim.x * blockDim.x;
    for (long long r = blockIdx.x * (long long)blockDim.x + threadIdx.x; r < rows; r += step) {
        long long cell = 0;
        for (int k = 0; k < width; k++) {
            int j = members[t * width + k];
            if (j >= 0) cell = cell * sizes[j] + codes[j * rows + r];
        }
        if (fits) atomicAdd(mine + cell, 1u);
        else atomicAdd(counts + start[t] + cell, 1ull);
    }
    if (fits) {
        __syncthreads();
        for (int i = threadIdx.x; i < cells; i += blockDim.x) {
            u64 total = 0;
            for (int c = 0; c < copies; c++) total += held[c * cells + i];
            if (total) atomicAdd(counts + start[t] + i, total);
        }
    }
}

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define CHUNK 2048  // as in `selection`
#define HALF 20  // bits: a mantissa is added up in two parts

// The scores c_q = repeats · counts_q − scale · offsets_q of `number` queries, and how a score becomes a weight.
#define SCORES const i64* counts, const i64* offsets, i64 repeats, i64 scale, i64 surplus, int both, i64 number
#define LAW i64 rate, int shift, i64 largest, i64 lowest, const double* powers, double step, i64 low, int bands

#define score_of(q) scored(counts[q], offsets[q], repeats, scale, both)
__device__ static inline i64 scored(i64 count, i64 offset, i64 repeats, i64 scale, int both) {
    i64 score = repeats * count - scale * offset;
    return !both && score < 0 ? -score : score;
}

#define raised_of(q, side) raised(side ? surplus - score_of(q) : score_of(q), rate, largest, lowest)
__device__ static inline i64 raised(i64 score, i64 rate, i64 largest, i64 lowest) {
    score = score < -largest ? -largest : score > largest ? largest : score;
    return score * rate < lowest ? lowest : score * rate;
}

// As `selection.mantissa`, operation by operation: compiled without joining products and sums.
__device__ static inline u64 mantissa(i64 x, int shift, const double* powers, double step) {
    int below = shift - 11;
    u64 fraction = (u64)x & ((1ull << shift) - 1);
    double r = (double)(i64)(fraction & ((1ull << below) - 1)) * step;
    double power = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0)));
    return (u64)(i64)(powers[fraction >> below] * power * 1099511627776.0);
}

// low[block] and high[block] become the least and the greatest score that the block sees
extern "C" __global__ void extremes(SCORES, i64* low, i64* high) {
    i64 least = 1ll << 62, most = -(1ll << 62);
    for (i64 q = blockIdx.x * (i64)blockDim.x + threadIdx.x; q < number; q += (i64)gridDim.x * blockDim.x) {
        i64 score = score_of(q);
        if (score < least) least = score;
        if (score > most) most = score;
    }
    for (int off = 16; off; off >>= 1) {
        i64 other = __shfl_xor_sync(0xffffffffu, least, off);
        if (other < least) least = other;
        other = __shfl_xor_sync(0xffffffffu, most, off);
        if (other > most) most = other;
    }
    int warp = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (threadIdx.x % 32 == 0) { low[warp] = least; high[warp] = most; }
}

// sums[chunk, band] = Σ mantissas of the chunk's candidates: a block a chunk. Whole numbers, in any order.
extern "C" __global__ void sum_bands(SCORES, LAW, u64* sums) {
    extern __shared__ u32 held[];
    int warps = blockDim.x >> 5;
    for (int i = threadIdx.x; i < 2 * warps * bands; i += blockDim.x) held[i] = 0;
    __syncthreads();
    u32* mine = held + (threadIdx.x >> 5) * 2 * bands;
    i64 first = blockIdx.x * (i64)CHUNK;
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
        if (first + i >= number) break;
        for (int side = 0; side < 1 + both; side++) {
            i64 x = raised_of(first + i, side);
            u64 weight = mantissa(x, shift, powers, step);
            int band = (int)((x >> shift) - low);
            atomicAdd(mine + 2 * band, (u32)(weight & ((1u << HALF) - 1)));
            atomicAdd(mine + 2 * band + 1, (u32)(weight >> HALF));
        }
    }
    __syncthreads();
    for (int band = threadIdx.x; band < bands; band += blockDim.x) {
        u64 total = 0;
        for (int w = 0; w < warps; w++) {
            u32* part = held + 2 * (w * bands + band);
            total += part[0] + ((u64)part[1] << HALF);
        }
        sums[blockIdx.x * (i64)bands + band] = total;
    }
}

// found[d] = the candidate (2 · query + negated) at which the mantissas of the draw's chunk and band, one after
// another, exceed its residue: a block a draw.
extern "C" __global__ void find_candidates(SCORES, LAW, const i64* chunk, const i64* wanted, const u64* residue,
                                           i64* found) {
    extern __shared__ u64 ends[];
    int draw = blockIdx.x, each = CHUNK / blockDim.x;
    i64 first = chunk[draw] * CHUNK + threadIdx.x * (i64)each, band = wanted[draw] + low;
    i64 last = first + each < number ? first + each : number;
    u64 mine = 0, point = residue[draw];
    for (i64 q = first; q < last; q++)
        for (int side = 0; side < 1 + both; side++) {
            i64 x = raised_of(q, side);
            if (x >> shift == band) mine += mantissa(x, shift, powers, step);
        }
    ends[threadIdx.x] = mine;
    __syncthreads();
    for (int off = 1; off < blockDim.x; off *= 2) {
        u64 before = threadIdx.x >= off ? ends[threadIdx.x - off] : 0;
        __syncthreads();
        ends[threadIdx.x] += before;
        __syncthreads();
    }
    u64 running = ends[threadIdx.x] - mine;
    if (point < running || point >= ends[threadIdx.x]) return;
    for (i64 q = first; q < last; q++)
        for (int side = 0; side < 1 + both; side++) {
            i64 x = raised_of(q, side);
            if (x >> shift != band) continue;
            running += mantissa(x, shift, powers, step);
            if (point < running) { found[draw] = 2 * q + side; return; }
        }
}

// answers[q] += whether all literals of query q (a column here) hold; truth of each literal, and of padding
extern "C" __global__ void hear(const int* literals, int width, i64 number, int padding, const unsigned char* truth,
                                const unsigned char* flips, int flipped, i64* answers) {
    i64 q = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    if (q >= number) return;
    int holds = flipped ? flips[q] : 0, all = 1;
    for (int k = 0; k < width; k++) {
        int literal = literals[k * number + q];
        all &= truth[literal >= 0 ? literal : padding];
    }
    answers[q] += holds ^ all;
}

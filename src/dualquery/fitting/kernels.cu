typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u64 word(u64 z) {  // splitmix64 (Steele, Lea, Flood 2014)
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
#define STEP 0x9E3779B97F4A7C15ull

// residual[chain, place] -= weight of the table, for every view of every row: a warp a row
extern "C" __global__ void withdraw(const int* rows, long long all, int count, int width, const int* member,
                                    const int* stride, int order, const long long* offset, const float* weight,
                                    int views, long long cells, float* residual) {
    long long r = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5;
    int lane = threadIdx.x & 31;
    if (r >= all) return;
    const int* row = rows + r * width;
    float* mine = residual + (r / count) * cells;
    for (int v = lane; v < views; v += 32) {
        long long place = offset[v];
        for (int m = 0; m < order && member[v * order + m] >= 0; m++)
            place += (long long)row[member[v * order + m]] * stride[v * order + m];
        atomicAdd(mine + place, -weight[v]);
    }
}

// Rows sequence[w], sequence[w + warps], … of a warp w; those of one chain belong to its residual.
extern "C" __global__ void answer(int* rows, long long all, int count, int width, const long long* sequence,
        const int* size, const int* first_view, const int* other, const int* other_stride, int others,
        const long long* offset, const float* itself, const int* first_place, const long long* place_offset,
        const int* place_step, const float* place_weight, const int* place_other, const int* place_stride,
        const float* lean, const int* first_value, long long cells, float temperature, const u64* seeds, u64 pass,
        float* residual) {
    extern __shared__ int room[];
    int lane = threadIdx.x & 31;
    int* row = room + (threadIdx.x >> 5) * 2 * width;
    int* order = row + width;
    long long warps = ((long long)gridDim.x * blockDim.x) >> 5;
    for (long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) >> 5; i < all; i += warps) {
        long long r = sequence[i];
        float* mine = residual + (r / count) * cells;
        u64 counter = word(seeds[r / count] + STEP * (pass * (u64)count + r % count + 1));
        for (int j = lane; j < width; j += 32) { row[j] = rows[r * width + j]; order[j] = j; }
        __syncwarp();
        if (lane == 0)
            for (int a = width - 1; a > 0; a--) {
                counter += STEP;
                int b = (int)(((word(counter) >> 32) * (u64)(a + 1)) >> 32), kept = order[a];
                order[a] = order[b];
                order[b] = kept;
            }
        counter = __shfl_sync(0xffffffffu, counter, 0);
        __syncwarp();
        for (int step = 0; step < width; step++) {
            int j = order[step], values = size[j];
            int begin = first_view[j], end = first_view[j + 1];
            if (values < 2 || begin == end) continue;
            int old = row[j];
            int group = 1;  // lanes that share a view: a power of two
            while (group < values && group < 32) group *= 2;
            int v = lane & (group - 1), which = lane / group, at_once = 32 / group;
            float best = -3.4e38f;
            int choice = old;
            for (int base = 0; base < values; base += group) {
                float gain = 0.0f;
                bool real = base + v < values;
                #pragma unroll 4
                for (int view = begin + which; view < end; view += at_once) {
                    long long place = offset[view];
                    for (int m = 0; m < others; m++)
                        place += (long long)row[other[view * others + m]] * other_stride[view * others + m];
                    if (real) gain += __ldcg(mine + place + base + v);
                }
                for (int off = group; off < 32; off *= 2) gain += __shfl_xor_sync(0xffffffffu, gain, off);
                if (real) {
                    int value = base + v;
                    if (value == old) gain += itself[j];
                    if (temperature > 0.0f) {
                        u64 drawn = word(counter + STEP * (u64)(value + 1));
                        float u = ((float)(u32)(drawn >> 41) + 0.5f) * (1.0f / 8388608.0f);  // never 0 or 1
                        gain += temperature * (lean[first_value[j] + value] - logf(-logf(u)));
                    }
                    if (gain > best || (gain == best && value == old)) { best = gain; choice = value; }
                }
            }
            counter += STEP * (u64)(values + 1);
            for (int off = 16; off; off >>= 1) {
                float theirs = __shfl_xor_sync(0xffffffffu, best, off);
                int value = __shfl_xor_sync(0xffffffffu, choice, off);
                bool wins = theirs > best || (theirs == best && choice != old && (value == old || value < choice));
                if (wins) { best = theirs; choice = value; }
            }
            if (choice != old) {
                for (int e = first_place[j] + lane; e < first_place[j + 1]; e += 32) {
                    long long place = place_offset[e];
                    for (int m = 0; m < others; m++)
                        place += (long long)row[place_other[e * others + m]] * place_stride[e * others + m];
                    float w = place_weight[e];
                    atomicAdd(mine + place + (long long)old * place_step[e], w);
                    atomicAdd(mine + place + (long long)choice * place_step[e], -w);
                }
                __syncwarp();
                if (lane == 0) row[j] = choice;
            }
            __syncwarp();
        }
        for (int j = lane; j < width; j += 32) rows[r * width + j] = row[j];
        __syncwarp();
    }
}

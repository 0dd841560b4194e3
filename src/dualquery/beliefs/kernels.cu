// weights[h, i] is the weight of the cell in row h, column i; rows of one class have the same leading values of a table

// sums[part, c, i] += the weights of the part's rows of class c: a thread a part and column
extern "C" __global__ void add_rows(const double* weights, int rows, int columns, const int* row_class, int classes,
                                    double* sums) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y, parts = gridDim.y;
    if (i >= columns) return;
    int last = (int)((part + 1) * (long long)rows / parts);
    for (int h = (int)(part * (long long)rows / parts); h < last;) {
        int mine = row_class[h];
        double total = 0;
        for (; h < last && row_class[h] == mine; h++) total += weights[h * (long long)columns + i];
        sums[((long long)part * classes + mine) * columns + i] += total;
    }
}

// the parts, added up in their order
extern "C" __global__ void add_parts(const double* parts, int number, long long cells, double* sums) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= cells) return;
    double total = 0;
    for (int part = 0; part < number; part++) total += parts[part * cells + i];
    sums[i] = total;
}

extern "C" __global__ void scale(const double* weights, double* out, long long cells, int columns,
                                 const int* row_class, const double* factors) {
    long long cell = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (cell >= cells) return;
    out[cell] = weights[cell] * factors[row_class[cell / columns] * (long long)columns + cell % columns];
}

// As `histogram.tail_survival`, a block a row; what a leaf sums up is added in a tree.
extern "C" __global__ void tails(const double* weights, int columns, const long long* node, const long long* size,
                                 const long long* stride, const unsigned char* leaf, int steps,
                                 const long long* wanted, int number, double* out) {
    extern __shared__ double cell[];
    double* part = cell + columns;
    int t = threadIdx.x, row = blockIdx.x;
    for (int i = t; i < columns; i += blockDim.x) cell[i] = weights[row * (long long)columns + i];
    __syncthreads();
    for (int s = 0; s < steps; s++) {
        int first = (int)node[s], step = (int)stride[s];
        for (int at = first + ((int)size[s] - 2) * step; at >= first; at -= step) {
            double mine = 0;
            for (int i = t; i < step; i += blockDim.x) {
                double high = cell[at + step + i];
                mine += high;
                cell[at + i] += high;
            }
            if (leaf[s]) {
                part[t] = mine;
                __syncthreads();
                for (int off = blockDim.x / 2; off; off /= 2) {
                    if (t < off) part[t] += part[t + off];
                    __syncthreads();
                }
                if (t == 0) cell[at + step] = part[0];
            }
            __syncthreads();
        }
    }
    for (int i = t; i < number; i += blockDim.x) out[row * (long long)number + i] = cell[wanted[i]];
}

// SPDX-License-Identifier: Apache-2.0
// What the driver (pair.cpp) and the kernels of each instruction set (pair_plain.cpp, pair_avx2.cpp, pair_avx512.cpp) say to each other.
#pragma once

#include <array>
#include <cstdint>

#include "statistics.hpp"

namespace opscope {

// What is known of a part of two arrays; parts are merged in order. Places are in C order of the whole, -1 where there is none.
struct PairPart {
    std::int64_t compared = 0, differing = 0, zero_only = 0, within_1 = 0, within_5 = 0, beyond = 0, odd = 0;
    std::int64_t first = -1, first_odd = -1, worst = -1;
    double max_abs = 0, sum_abs = 0, squares = 0, max_rel = 0, sum_rel = 0, dot = 0, squares_t = 0, squares_g = 0, max_g = 0;
    // Of values less their side's pivot, the first of its elements in a finite pair of the part: variances lose nothing where the mean is large.
    bool pivoted = false;
    double pivot_t = 0, pivot_g = 0, sum_t = 0, sum_g = 0, spread_t = 0, spread_g = 0;
    std::uint64_t ulp = 0;
    std::array<std::int64_t, 65> histogram{};
    std::array<std::int64_t, 6> nonfinite{};
};

struct PairSpan {
    const char* target;
    const char* golden;
    std::int64_t first, count;
    double absolute, relative;
    double half, rest;  // two factors that together are 2 to the power of -exponent
};

// Adds `count` elements, one after the other in memory, to `out`.
using PairKernel = void (*)(const PairSpan& span, PairPart& out);

struct PairTable {
    PairKernel span[17];  // by DType
};

const PairTable& plain_pair_kernels();
const PairTable& avx2_pair_kernels();
const PairTable& avx512_pair_kernels();

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// One pass over two arrays of one shape and type: what ../pair_reference.py gathers, and defines.
#pragma once

#include <array>
#include <cstdint>

#include "statistics.hpp"

namespace opscope {

struct PairOptions {
    double absolute = 0, relative = 0;  // of `beyond`
    int exponent = 0;                   // 64-bit floats are divided by two to this power
    int threads = 1;                    // the result does not depend on it
    Isa isa = Isa::Auto;
};

// The fields of pair_reference.Sums, in their order.
struct PairSums {
    std::int64_t size = 0, compared = 0, differing = 0, first_mismatch = -1, worst_index = -1;
    double max_abs = 0, sum_abs = 0, squares = 0, max_rel = 0, sum_rel = 0;
    std::int64_t golden_zero_only = 0;
    double dot = 0, squares_target = 0, squares_golden = 0, mean_target = 0, mean_golden = 0, variance_target = 0, variance_golden = 0;
    double max_golden = 0;
    std::int64_t within_1 = 0, within_5 = 0;
    std::uint64_t ulp_max = 0;
    std::array<std::int64_t, 65> histogram{};
    std::array<std::int64_t, 6> nonfinite{};
    std::int64_t nonfinite_mismatch = 0, beyond = 0;
};

// Throws std::invalid_argument: more than 64 dimensions, or an instruction set that cannot run here. Both arrays have one shape and type.
PairSums pair(const ArrayView& target, const ArrayView& golden, const PairOptions& options);

}  // namespace opscope

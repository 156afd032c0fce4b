// SPDX-License-Identifier: Apache-2.0
// One pass over a tensor's memory: statistics of the finite elements, counts of the others, and the digest.
// What each number means, and the digest's exact definition, stand in ../reference.py.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace opscope {

enum class DType : std::uint8_t {
    Bool, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64,
    Float16, BFloat16, Float32, Float64, Float8E4M3FN, Float8E5M2, Complex64, Complex128,
};

// Elements may lie anywhere (strides in elements, zero and negative ones allowed); data points at the first logical element.
struct ArrayView {
    const void* data;
    DType dtype;
    int ndim;  // at most 64
    const std::int64_t* shape;
    const std::int64_t* stride;
};

constexpr int SAMPLE = 8;  // elements of a sample

struct Statistics {
    static constexpr std::int64_t unknown = -1;  // a count that a device did not take; a mean or l2norm that it did not is NaN
    std::int64_t size = 0, nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, neg = 0, pos = 0, near_limit = 0;
    double min = 0, max = 0, mean = 0, l2norm = 0;  // valid when has_range
    std::int64_t min_int = 0, max_int = 0;          // valid when has_int
    std::uint64_t digest = 0;                       // valid when has_digest
    float sample[SAMPLE] = {};                      // valid when has_sample
    bool has_range = false, has_int = false, has_digest = false, has_sample = false;
};

// Runs task(0) … task(count - 1), on as many threads as it has, and returns when all are done.
using ParallelFor = std::function<void(int count, const std::function<void(int)>& task)>;

// Instruction sets; Auto is OPSCOPE_ISA where that names one this processor has, else the best one it has.
enum class Isa : std::uint8_t { Auto, Scalar, Sse2, Avx2, Avx512, Neon };

struct Options {
    bool digest = true;
    int threads = 1;                    // how many pieces to cut large arrays into; the result does not depend on it
    const ParallelFor* pool = nullptr;  // null: threads > 1 starts threads of its own, for large arrays only
    Isa isa = Isa::Auto;
};

// Throws std::invalid_argument: more than 64 dimensions, or an instruction set that cannot run here.
Statistics statistics(const ArrayView& array, const Options& options);

std::int64_t item_size(DType dtype);

// The instruction sets that this processor runs and this build holds, worst first; by name and back.
std::vector<Isa> available_isas();
Isa best_isa();  // what Auto means
const char* isa_name(Isa isa);
Isa isa_from_name(const std::string& name);  // throws std::invalid_argument when it cannot run here

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// What the driver (statistics.cpp) and the kernels of each instruction set (scalar.cpp … neon.cpp) say to each other.
#pragma once

#include <cstdint>

#include "statistics.hpp"

namespace opscope {

// The digest mixes 4096 bytes at a time, so a span handed to a kernel starts at a multiple of that in the array's C order.
constexpr std::int64_t BLOCK_BYTES = 4096;
constexpr std::int64_t BLOCK_WORDS = BLOCK_BYTES / 8;
constexpr std::uint64_t GOLDEN = 0x9E3779B97F4A7C15u;
constexpr std::uint64_t LENGTH = 0xC2B2AE3D27D4EB4Fu;

static constexpr std::uint64_t mix(std::uint64_t h) {
    h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCDu;
    h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53u;
    return h ^ (h >> 33);
}

// The two sums over the keyed words of a block, and what the block adds to the digest. Inlined by force: were a function of it shared
// between the files of several instruction sets, the linker could keep one that the processor at hand cannot run.
struct BlockSums {
    std::uint64_t products = 0, plain = 0;

    __attribute__((always_inline)) constexpr void add(std::uint64_t word, std::uint64_t key) {
        const std::uint64_t x = word ^ key;
        products += (x & 0xffffffffu) * (x >> 32);
        plain += x;
    }
    __attribute__((always_inline)) constexpr std::uint64_t mixed(std::int64_t number) const {
        return mix(products ^ mix(plain + static_cast<std::uint64_t>(number + 1) * GOLDEN));
    }
};

struct Keys {
    alignas(64) std::uint64_t word[BLOCK_WORDS];
};
extern const Keys KEYS;

// What is known of a part of an array; parts are merged in order.
struct Partial {
    std::int64_t finite = 0, nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, neg = 0, near_limit = 0;
    double min = 0, max = 0;                 // floating and complex types, valid when finite > 0
    std::int64_t min_int = 0, max_int = 0;   // integer types, valid when finite > 0; uint64 with its top bit flipped
    double sum = 0, squares = 0;             // of the finite elements
    std::uint64_t digest = 0;                // sum of the mixed blocks
};

// count elements, one after the other, unaligned; block is the number of the first digest block. Overwrites `out`.
struct Span {
    const char* data;
    std::int64_t count;
    std::int64_t block;
    bool digest;
};
using SpanKernel = void (*)(const Span& span, Partial& out);

// Of which numbers of elements there is a sample: no more than lie in one tile.
constexpr std::int64_t SAMPLE_FEWEST = 8, SAMPLE_MOST = 8192;
// The mantissas that it looks for, as those of float32: 1.03, 1.15, 1.29, 1.41, 1.53, 1.67, 1.79 and 1.93.
constexpr std::int32_t SAMPLE_MANTISSAS[SAMPLE] = {251658, 1258291, 2432696, 3439329, 4445962, 5620367, 6627000, 7801405};
// SAMPLE elements of count ones; false where none can be one.
using SampleKernel = bool (*)(const char* data, std::int64_t count, float* out);

struct KernelTable {
    SpanKernel span[17];  // by DType
    // Magnitudes of count complex elements, as reference.py defines them; NaN and infinity as the element is classified.
    void (*magnitude64)(const char* data, std::int64_t count, double* out);
    void (*magnitude128)(const char* data, std::int64_t count, double* out);
    SampleKernel sample32, sample64;
};

// Floating element types: bytes, and the magnitude beyond which a finite element is near its limit; limit_bits are those of the
// largest number that is not.
struct Float16 { static constexpr int size = 2; static constexpr float limit = 58953.6f; static constexpr short limit_bits = 0x7b32; };
struct BFloat16 { static constexpr int size = 2; static constexpr float limit = 65504; static constexpr short limit_bits = 0x477f; };
struct Float32 { static constexpr int size = 4; static constexpr float limit = 65504; };
struct Float64 { static constexpr int size = 8; static constexpr double limit = 65504; };
struct Float8E4M3 { static constexpr int size = 1; static constexpr float limit = 403.2f; };
struct Float8E5M2 { static constexpr int size = 1; static constexpr float limit = 51609.6f; };

const KernelTable& scalar_kernels();
const KernelTable& sse2_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& neon_kernels();
const KernelTable& kernels_of(Isa isa);  // throws std::invalid_argument when it cannot run here

}  // namespace opscope

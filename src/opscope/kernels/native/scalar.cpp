// SPDX-License-Identifier: Apache-2.0
// Plain C++: one element at a time, for processors without kernels of their own.
#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

template <class Number>
struct One {
    using Vec = Number;
    using Real = Number;
    using Mask = bool;
    static constexpr int lanes = 1;

    static Vec splat(Real value) { return value; }
    static Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
    static Vec larger(Vec a, Vec b) { return a > b ? a : b; }
    static Real lowest(Vec a) { return a; }
    static Real highest(Vec a) { return a; }
    static Mask equal(Vec a, Vec b) { return a == b; }
    static Mask less(Vec a, Vec b) { return a < b; }
    static Mask at_most(Vec a, Vec b) { return a <= b; }
    static Mask both(Mask a, Mask b) { return a && b; }
    static Mask either(Mask a, Mask b) { return a || b; }
    static Vec select(Mask mask, Vec a, Vec b) { return mask ? a : b; }
    static int count(Mask mask) { return mask ? 1 : 0; }

    struct Sums {
        double sum[2] = {}, squares[2] = {};

        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Vec a, Vec b) {
            const double x = static_cast<double>(a), y = static_cast<double>(b);
            sum[0] += x;
            sum[1] += y;
            squares[0] += x * x;
            squares[1] += y * y;
        }
        void fold(double& s, double& q) const {
            s = sum[0] + sum[1];
            q = squares[0] + squares[1];
        }
    };

    struct Tally {
        std::int64_t zeros = 0, negatives = 0;

        void add(Vec a, Vec b, Vec c, Vec d) {
            zeros += (a == 0) + (b == 0) + (c == 0) + (d == 0);
            negatives += (a < 0) + (b < 0) + (c < 0) + (d < 0);
        }
        std::int64_t zero() const { return zeros; }
        std::int64_t neg() const { return negatives; }
    };
};

float from_bits(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Bits moved into place and multiplied by the power of two between the exponents' biases, which also makes denormals right; an
// exponent that means infinity and NaN is put back.
float from_half(std::uint32_t bits) {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
    const float value = from_bits(magnitude) * 0x1p112f;
    if (value < 65536.0f) return sign != 0 ? -value : value;
    return from_bits(sign | 0x7f800000u | (magnitude & 0x007fffffu));
}

struct Narrow : One<float> {
    static float load(Float32, const char* at) {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    static float load(BFloat16, const char* at) {
        std::uint16_t bits;
        std::memcpy(&bits, at, 2);
        return from_bits(static_cast<std::uint32_t>(bits) << 16);
    }
    static float load(Float16, const char* at) {
        std::uint16_t bits;
        std::memcpy(&bits, at, 2);
        return from_half(bits);
    }
};

struct Wide : One<double> {
    static double load(Float64, const char* at) {
        double value;
        std::memcpy(&value, at, 8);
        return value;
    }
    static Vec plus(Vec a, Vec b) { return a + b; }
    static double total(Vec a) { return a; }
};

struct Words {
    static constexpr int width = 8;
    BlockSums sums;

    static std::uint64_t load(const char* at) {
        std::uint64_t word;
        std::memcpy(&word, at, 8);
        return word;
    }
    static std::uint64_t bits(double a) { return load(reinterpret_cast<const char*>(&a)); }
    void add(std::uint64_t word, const std::uint64_t* keys) { sums.add(word, *keys); }
    void rest(const char*, const std::uint64_t*, std::int64_t) {}
    BlockSums total() const { return sums; }
};

}  // namespace

#include "integers.hpp"

namespace opscope {

const KernelTable& scalar_kernels() { return TABLE; }

}  // namespace opscope

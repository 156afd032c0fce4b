// SPDX-License-Identifier: Apache-2.0
// Advanced SIMD, which every aarch64 processor has. Vectors of 16 bytes; comparisons answer vectors of all ones and zeros.
#include <arm_neon.h>

#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

struct Wide {
    using Vec = float64x2_t;
    using Real = double;
    using Mask = uint64x2_t;
    static constexpr int lanes = 2;

    static Vec load(Float64, const char* at) { return vreinterpretq_f64_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at))); }
    static Vec splat(Real value) { return vdupq_n_f64(value); }
    static Vec plus(Vec a, Vec b) { return vaddq_f64(a, b); }
    static Vec smaller(Vec a, Vec b) { return vminq_f64(a, b); }
    static Vec larger(Vec a, Vec b) { return vmaxq_f64(a, b); }
    static Real lowest(Vec a) { return vminvq_f64(a); }
    static Real highest(Vec a) { return vmaxvq_f64(a); }
    static Real total(Vec a) { return vaddvq_f64(a); }
    static Mask equal(Vec a, Vec b) { return vceqq_f64(a, b); }
    static Mask less(Vec a, Vec b) { return vcltq_f64(a, b); }
    static Mask at_most(Vec a, Vec b) { return vcleq_f64(a, b); }
    static Mask both(Mask a, Mask b) { return vandq_u64(a, b); }
    static Mask either(Mask a, Mask b) { return vorrq_u64(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return vbslq_f64(mask, a, b); }
    static int count(Mask mask) { return static_cast<int>(vaddvq_u64(vshrq_n_u64(mask, 63))); }

    struct Sums {
        Vec sum[2] = {splat(0), splat(0)}, squares[2] = {splat(0), splat(0)};

        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Vec a, Vec b) {
            sum[0] = vaddq_f64(sum[0], a);
            sum[1] = vaddq_f64(sum[1], b);
            squares[0] = vfmaq_f64(squares[0], a, a);
            squares[1] = vfmaq_f64(squares[1], b, b);
        }
        void fold(Vec& s, Vec& q) const {
            s = plus(sum[0], sum[1]);
            q = plus(squares[0], squares[1]);
        }
    };

    struct Tally {
        uint64x2_t zeros = vdupq_n_u64(0), negatives = vdupq_n_u64(0);

        void add(Vec a, Vec b, Vec c, Vec d) {
            one(a);
            one(b);
            one(c);
            one(d);
        }
        void one(Vec a) {
            zeros = vsubq_u64(zeros, vceqzq_f64(a));
            negatives = vsubq_u64(negatives, vcltzq_f64(a));
        }
        std::int64_t zero() const { return static_cast<std::int64_t>(vaddvq_u64(zeros)); }
        std::int64_t neg() const { return static_cast<std::int64_t>(vaddvq_u64(negatives)); }
    };
};

struct Narrow {
    using Vec = float32x4_t;
    using Real = float;
    using Mask = uint32x4_t;
    static constexpr int lanes = 4;

    static uint16x4_t load16(const char* at) { return vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(at))); }

    static Vec load(Float32, const char* at) { return vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at))); }
    static Vec load(Float16, const char* at) { return vcvt_f32_f16(vreinterpret_f16_u16(load16(at))); }
    static Vec load(BFloat16, const char* at) { return vreinterpretq_f32_u32(vshll_n_u16(load16(at), 16)); }
    static Vec splat(Real value) { return vdupq_n_f32(value); }
    static Vec smaller(Vec a, Vec b) { return vminq_f32(a, b); }
    static Vec larger(Vec a, Vec b) { return vmaxq_f32(a, b); }
    static Real lowest(Vec a) { return vminvq_f32(a); }
    static Real highest(Vec a) { return vmaxvq_f32(a); }
    static Mask equal(Vec a, Vec b) { return vceqq_f32(a, b); }
    static Mask less(Vec a, Vec b) { return vcltq_f32(a, b); }
    static Mask at_most(Vec a, Vec b) { return vcleq_f32(a, b); }
    static Mask both(Mask a, Mask b) { return vandq_u32(a, b); }
    static Mask either(Mask a, Mask b) { return vorrq_u32(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return vbslq_f32(mask, a, b); }
    static int count(Mask mask) { return static_cast<int>(vaddvq_u32(vshrq_n_u32(mask, 31))); }

    struct Sums {
        Wide::Vec sum[2] = {Wide::splat(0), Wide::splat(0)};
        Wide::Vec squares[4] = {Wide::splat(0), Wide::splat(0), Wide::splat(0), Wide::splat(0)};

        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Vec a, Vec b) {
            const Wide::Vec a0 = vcvt_f64_f32(vget_low_f32(a)), a1 = vcvt_high_f64_f32(a);
            const Wide::Vec b0 = vcvt_f64_f32(vget_low_f32(b)), b1 = vcvt_high_f64_f32(b);
            sum[0] = Wide::plus(sum[0], Wide::plus(a0, a1));
            sum[1] = Wide::plus(sum[1], Wide::plus(b0, b1));
            squares[0] = vfmaq_f64(squares[0], a0, a0);
            squares[1] = vfmaq_f64(squares[1], a1, a1);
            squares[2] = vfmaq_f64(squares[2], b0, b0);
            squares[3] = vfmaq_f64(squares[3], b1, b1);
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(sum[0], sum[1]);
            q = Wide::plus(Wide::plus(squares[0], squares[1]), Wide::plus(squares[2], squares[3]));
        }
    };

    // The sign and the zero of 16 floats survive in 16 bytes, saturated; adding +0 makes -0 a +0. A byte counts up to 255, and a
    // block of SCREEN elements has 128 in each.
    struct Tally {
        uint8x16_t zeros = vdupq_n_u8(0), negatives = vdupq_n_u8(0);

        static int32x4_t bits(Vec a) { return vreinterpretq_s32_f32(vaddq_f32(a, splat(0))); }
        static int16x8_t packed(Vec a, Vec b) { return vqmovn_high_s32(vqmovn_s32(bits(a)), bits(b)); }
        void add(Vec a, Vec b, Vec c, Vec d) {
            const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(packed(a, b)), packed(c, d));
            zeros = vsubq_u8(zeros, vceqzq_s8(bytes));
            negatives = vsubq_u8(negatives, vcltzq_s8(bytes));
        }
        std::int64_t zero() const { return vaddlvq_u8(zeros); }
        std::int64_t neg() const { return vaddlvq_u8(negatives); }
    };
};

struct Words {
    static constexpr int width = 16;
    uint64x2_t products = vdupq_n_u64(0), plain = vdupq_n_u64(0);
    BlockSums tail;

    static uint64x2_t load(const char* at) { return vreinterpretq_u64_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at))); }
    static uint64x2_t bits(float32x4_t a) { return vreinterpretq_u64_f32(a); }
    static uint64x2_t bits(float64x2_t a) { return vreinterpretq_u64_f64(a); }
    void add(uint64x2_t word, const std::uint64_t* keys) {
        const uint64x2_t x = veorq_u64(word, vld1q_u64(keys));
        products = vmlal_u32(products, vmovn_u64(x), vshrn_n_u64(x, 32));
        plain = vaddq_u64(plain, x);
    }
    void rest(const char* at, const std::uint64_t* keys, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
            std::uint64_t word;
            std::memcpy(&word, at + 8 * i, 8);
            tail.add(word, keys[i]);
        }
    }
    BlockSums total() const { return {vaddvq_u64(products) + tail.products, vaddvq_u64(plain) + tail.plain}; }
};

}  // namespace

#include "integers.hpp"

namespace opscope {

const KernelTable& neon_kernels() { return TABLE; }

}  // namespace opscope

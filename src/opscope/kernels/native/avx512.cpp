// SPDX-License-Identifier: Apache-2.0
// AVX-512 F, BW, DQ and VL, with FMA and F16C. Vectors of 64 bytes; comparisons answer bit masks.
#include <immintrin.h>

#include "kernel.hpp"

namespace {

using namespace opscope;

struct Wide {
    using Vec = __m512d;
    using Real = double;
    using Mask = __mmask8;
    static constexpr int lanes = 8;

    static Vec load(Float64, const char* at) { return _mm512_loadu_pd(at); }
    static Vec splat(Real value) { return _mm512_set1_pd(value); }
    static Vec plus(Vec a, Vec b) { return _mm512_add_pd(a, b); }
    static Vec smaller(Vec a, Vec b) { return _mm512_min_pd(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm512_max_pd(a, b); }
    static Real lowest(Vec a) { return _mm512_reduce_min_pd(a); }
    static Real highest(Vec a) { return _mm512_reduce_max_pd(a); }
    static Real total(Vec a) { return _mm512_reduce_add_pd(a); }
    static Mask equal(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
    static Mask less(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
    static Mask at_most(Vec a, Vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
    static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    static Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm512_mask_blend_pd(mask, b, a); }
    static int count(Mask mask) { return __builtin_popcount(mask); }

    struct Sums {
        Vec sum[2] = {splat(0), splat(0)}, squares[2] = {splat(0), splat(0)};

        void add(Float64, const char*, Vec a, Vec b) { add(a, b); }
        void add(Vec a, Vec b) {
            sum[0] = _mm512_add_pd(sum[0], a);
            sum[1] = _mm512_add_pd(sum[1], b);
            squares[0] = _mm512_fmadd_pd(a, a, squares[0]);
            squares[1] = _mm512_fmadd_pd(b, b, squares[1]);
        }
        void fold(Vec& s, Vec& q) const {
            s = plus(sum[0], sum[1]);
            q = plus(squares[0], squares[1]);
        }
    };

    struct Tally {
        std::int64_t zeros = 0, negatives = 0;

        void add(Vec a, Vec b, Vec c, Vec d) {
            const Vec none = splat(0);
            zeros += count(equal(a, none)) + count(equal(b, none)) + count(equal(c, none)) + count(equal(d, none));
            negatives += count(less(a, none)) + count(less(b, none)) + count(less(c, none)) + count(less(d, none));
        }
        std::int64_t zero() const { return zeros; }
        std::int64_t neg() const { return negatives; }
    };
};

struct Narrow {
    using Vec = __m512;
    using Real = float;
    using Mask = __mmask16;
    static constexpr int lanes = 16;

    static Vec load(Float32, const char* at) { return _mm512_loadu_ps(at); }
    static Vec load(Float16, const char* at) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))); }
    static Vec load(BFloat16, const char* at) {
        const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    }
    static Vec splat(Real value) { return _mm512_set1_ps(value); }
    static Vec smaller(Vec a, Vec b) { return _mm512_min_ps(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
    static Real lowest(Vec a) { return _mm512_reduce_min_ps(a); }
    static Real highest(Vec a) { return _mm512_reduce_max_ps(a); }
    static Mask equal(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
    static Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
    static Mask at_most(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
    static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    static Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm512_mask_blend_ps(mask, b, a); }
    static int count(Mask mask) { return __builtin_popcount(mask); }

    struct Sums {
        Wide::Vec sum[2] = {Wide::splat(0), Wide::splat(0)}, squares[2] = {Wide::splat(0), Wide::splat(0)};
        __m256d direct_sum[4] = {}, direct_squares[4] = {};

        void add(Vec a, Vec b) {
            one(_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
            one(_mm512_cvtps_pd(_mm512_castps512_ps256(b)), _mm512_cvtps_pd(_mm512_extractf32x8_ps(b, 1)));
        }
        void one(Wide::Vec low, Wide::Vec high) {
            sum[0] = Wide::plus(sum[0], low);
            sum[1] = Wide::plus(sum[1], high);
            squares[0] = _mm512_fmadd_pd(low, low, squares[0]);
            squares[1] = _mm512_fmadd_pd(high, high, squares[1]);
        }
        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        // Widening four floats from memory is one operation and needs no shuffle; widening eight takes three times as long on Zen 4.
        void add(Float32, const char* at, Vec, Vec) {
            for (int k = 0; k < 8; ++k) {
                const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(reinterpret_cast<const float*>(at + 16 * k)));
                direct_sum[k % 4] = _mm256_add_pd(direct_sum[k % 4], wide);
                direct_squares[k % 4] = _mm256_fmadd_pd(wide, wide, direct_squares[k % 4]);
            }
        }
        static Wide::Vec joined(const __m256d* four) {
            return _mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_add_pd(four[0], four[1])), _mm256_add_pd(four[2], four[3]), 1);
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(Wide::plus(sum[0], sum[1]), joined(direct_sum));
            q = Wide::plus(Wide::plus(squares[0], squares[1]), joined(direct_squares));
        }
    };

    // The sign and the zero of 64 floats survive in 64 bytes, saturated; adding +0 makes -0 a +0, and by a fused multiply-add it is
    // done where fewer operations queue.
    struct Tally {
        std::int64_t zeros = 0, negatives = 0;

        static __m512i bits(Vec a) { return _mm512_castps_si512(_mm512_fmadd_ps(a, splat(1), splat(0))); }
        void add(Vec a, Vec b, Vec c, Vec d) {
            const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(bits(a), bits(b)), _mm512_packs_epi32(bits(c), bits(d)));
            zeros += __builtin_popcountll(_mm512_testn_epi8_mask(packed, packed));
            negatives += __builtin_popcountll(_mm512_movepi8_mask(packed));
        }
        std::int64_t zero() const { return zeros; }
        std::int64_t neg() const { return negatives; }
    };
};

struct Halves {
    static constexpr int lanes = 32;
    static constexpr bool fused = true;

    static __m512i load(const char* at) { return _mm512_loadu_si512(at); }

    struct Extremes {
        __m512i tops = _mm512_set1_epi16(INT16_MIN), fars = _mm512_setzero_si512(), lows = _mm512_set1_epi16(INT16_MAX);

        void add(__m512i bits) {
            tops = _mm512_max_epi16(tops, bits);
            fars = _mm512_max_epu16(fars, bits);
            lows = _mm512_min_epi16(lows, bits);
        }
        void merge(const Extremes& other) {
            tops = _mm512_max_epi16(tops, other.tops);
            fars = _mm512_max_epu16(fars, other.fars);
            lows = _mm512_min_epi16(lows, other.lows);
        }
        bool within(short limit) const {
            const __m512i most = _mm512_set1_epi16(limit), most_negative = _mm512_set1_epi16(static_cast<short>(limit | INT16_MIN));
            return (_mm512_cmpgt_epi16_mask(tops, most) | _mm512_cmpgt_epu16_mask(fars, most_negative)) == 0;
        }
        int top() const {
            const __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(tops), _mm512_extracti64x4_epi64(tops, 1));
            // The smallest unsigned of the complement, its order turned to unsigned, is the largest signed.
            const __m256i turned = _mm256_xor_si256(half, _mm256_set1_epi16(INT16_MAX));
            return static_cast<short>(smallest(turned) ^ INT16_MAX);
        }
        int far() const {
            const __m256i half = _mm256_max_epu16(_mm512_castsi512_si256(fars), _mm512_extracti64x4_epi64(fars, 1));
            return smallest(_mm256_xor_si256(half, _mm256_set1_epi16(-1))) ^ 0xffff;
        }
        int low() const {
            const __m256i half = _mm256_min_epi16(_mm512_castsi512_si256(lows), _mm512_extracti64x4_epi64(lows, 1));
            return static_cast<short>(smallest(_mm256_xor_si256(half, _mm256_set1_epi16(INT16_MIN))) ^ INT16_MIN);
        }
        static int smallest(__m256i a) {  // unsigned
            const __m128i half = _mm_min_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
            return _mm_extract_epi16(_mm_minpos_epu16(half), 0);
        }
    };

    struct Tally {
        std::int64_t zeros = 0, negatives = 0;

        void add(__m512i bits) {
            const __mmask32 none = _mm512_testn_epi16_mask(bits, _mm512_set1_epi16(INT16_MAX));
            zeros += __builtin_popcount(none);
            negatives += __builtin_popcount(_mm512_movepi16_mask(bits) & ~none);
        }
        std::int64_t zero() const { return zeros; }
        std::int64_t neg() const { return negatives; }
    };

    struct Sums {
        Wide::Vec sum[4] = {Wide::splat(0), Wide::splat(0), Wide::splat(0), Wide::splat(0)};
        Wide::Vec squares[4] = {Wide::splat(0), Wide::splat(0), Wide::splat(0), Wide::splat(0)};

        void one(int k, __m256 value) {
            const Wide::Vec wide = _mm512_cvtps_pd(value);
            sum[k] = _mm512_add_pd(sum[k], wide);
            squares[k] = _mm512_fmadd_pd(wide, wide, squares[k]);
        }
        void add(Float16, const char* at) {
            for (int k = 0; k < 4; ++k) one(k, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * k))));
        }
        void add(BFloat16, const char* at) {  // the halves of 32-bit words, moved up or masked
            for (int k = 0; k < 4; k += 2) {
                const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 16 * k));
                one(k, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
                one(k + 1, _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536))));
            }
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(Wide::plus(sum[0], sum[1]), Wide::plus(sum[2], sum[3]));
            q = Wide::plus(Wide::plus(squares[0], squares[1]), Wide::plus(squares[2], squares[3]));
        }
    };
};

struct Words {
    static constexpr int width = 64;
    __m512i products = _mm512_setzero_si512(), plain = _mm512_setzero_si512();

    static __m512i load(const char* at) { return _mm512_loadu_si512(at); }
    static __m512i bits(__m512i a) { return a; }
    static __m512i bits(__m512 a) { return _mm512_castps_si512(a); }
    static __m512i bits(__m512d a) { return _mm512_castpd_si512(a); }
    void add(__m512i word, const std::uint64_t* keys) { add(word, _mm512_load_si512(keys)); }
    void rest(const char* at, const std::uint64_t* keys, std::int64_t count) {  // where word and key are zero nothing is added
        const auto mask = static_cast<__mmask8>((1 << count) - 1);
        add(_mm512_maskz_loadu_epi64(mask, at), _mm512_maskz_load_epi64(mask, keys));
    }
    void add(__m512i word, __m512i key) {
        const __m512i x = _mm512_xor_si512(word, key);
        products = _mm512_add_epi64(products, _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
        plain = _mm512_add_epi64(plain, x);
    }
    static std::uint64_t summed(__m512i a) {  // _mm512_reduce_add_epi64 adds signed integers, whose overflow is undefined
        const __m256i four = _mm256_add_epi64(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
        const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
        return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two))));
    }
    BlockSums total() const { return {summed(products), summed(plain)}; }
};

}  // namespace

#define OPSCOPE_HALVES
#include "halves.hpp"
#include "integers.hpp"

namespace opscope {

const KernelTable& avx512_kernels() { return TABLE; }

}  // namespace opscope

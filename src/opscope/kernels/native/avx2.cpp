// SPDX-License-Identifier: Apache-2.0
// AVX2 with FMA and F16C. Vectors of 32 bytes; comparisons answer vectors of all ones and zeros.
#include <immintrin.h>

#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

struct Wide {
    using Vec = __m256d;
    using Real = double;
    using Mask = __m256d;
    static constexpr int lanes = 4;

    static Vec load(Float64, const char* at) { return _mm256_loadu_pd(reinterpret_cast<const double*>(at)); }
    static Vec splat(Real value) { return _mm256_set1_pd(value); }
    static Vec plus(Vec a, Vec b) { return _mm256_add_pd(a, b); }
    static Vec smaller(Vec a, Vec b) { return _mm256_min_pd(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm256_max_pd(a, b); }
    static Real lowest(Vec a) {
        const __m128d half = _mm_min_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
        return _mm_cvtsd_f64(_mm_min_sd(half, _mm_unpackhi_pd(half, half)));
    }
    static Real highest(Vec a) {
        const __m128d half = _mm_max_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
        return _mm_cvtsd_f64(_mm_max_sd(half, _mm_unpackhi_pd(half, half)));
    }
    static Real total(Vec a) {
        const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
        return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
    }
    static Mask equal(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
    static Mask less(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
    static Mask at_most(Vec a, Vec b) { return _mm256_cmp_pd(a, b, _CMP_LE_OQ); }
    static Mask both(Mask a, Mask b) { return _mm256_and_pd(a, b); }
    static Mask either(Mask a, Mask b) { return _mm256_or_pd(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm256_blendv_pd(b, a, mask); }
    static int count(Mask mask) { return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_pd(mask))); }

    struct Sums {
        Vec sum[2] = {splat(0), splat(0)}, squares[2] = {splat(0), splat(0)};

        void add(Float64, const char*, Vec a, Vec b) { add(a, b); }
        void add(Vec a, Vec b) {
            sum[0] = _mm256_add_pd(sum[0], a);
            sum[1] = _mm256_add_pd(sum[1], b);
            squares[0] = _mm256_fmadd_pd(a, a, squares[0]);
            squares[1] = _mm256_fmadd_pd(b, b, squares[1]);
        }
        void fold(Vec& s, Vec& q) const {
            s = plus(sum[0], sum[1]);
            q = plus(squares[0], squares[1]);
        }
    };

    struct Tally {
        __m256i zeros = _mm256_setzero_si256(), negatives = _mm256_setzero_si256();

        void add(Vec a, Vec b, Vec c, Vec d) {
            one(a);
            one(b);
            one(c);
            one(d);
        }
        void one(Vec a) {
            zeros = _mm256_sub_epi64(zeros, _mm256_castpd_si256(equal(a, splat(0))));
            negatives = _mm256_sub_epi64(negatives, _mm256_castpd_si256(less(a, splat(0))));
        }
        static std::int64_t total(__m256i a) {
            const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
            return _mm_cvtsi128_si64(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
        }
        std::int64_t zero() const { return total(zeros); }
        std::int64_t neg() const { return total(negatives); }
    };
};

struct Narrow {
    using Vec = __m256;
    using Real = float;
    using Mask = __m256;
    static constexpr int lanes = 8;

    static Vec load(Float32, const char* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
    static Vec load(Float16, const char* at) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
    static Vec load(BFloat16, const char* at) {
        const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
        return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    }
    static Vec splat(Real value) { return _mm256_set1_ps(value); }
    static Vec smaller(Vec a, Vec b) { return _mm256_min_ps(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm256_max_ps(a, b); }
    static Real lowest(Vec a) {
        const __m128 half = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 pair = _mm_min_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_min_ss(pair, _mm_movehdup_ps(pair)));
    }
    static Real highest(Vec a) {
        const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
    }
    static Mask equal(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
    static Mask less(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
    static Mask at_most(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
    static Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
    static Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm256_blendv_ps(b, a, mask); }
    static int count(Mask mask) { return __builtin_popcount(static_cast<unsigned>(_mm256_movemask_ps(mask))); }

    struct Sums {
        Wide::Vec sum[2] = {Wide::splat(0), Wide::splat(0)};
        Wide::Vec squares[4] = {Wide::splat(0), Wide::splat(0), Wide::splat(0), Wide::splat(0)};

        void add(Vec a, Vec b) {
            widened(_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)),
                    _mm256_cvtps_pd(_mm256_castps256_ps128(b)), _mm256_cvtps_pd(_mm256_extractf128_ps(b, 1)));
        }
        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Float32, const char* at, Vec, Vec) {  // from memory the halves need no shuffle
            widened(half(at), half(at + 16), half(at + 32), half(at + 48));
        }
        static Wide::Vec half(const char* at) { return _mm256_cvtps_pd(_mm_loadu_ps(reinterpret_cast<const float*>(at))); }
        void widened(Wide::Vec a0, Wide::Vec a1, Wide::Vec b0, Wide::Vec b1) {
            sum[0] = Wide::plus(sum[0], Wide::plus(a0, a1));
            sum[1] = Wide::plus(sum[1], Wide::plus(b0, b1));
            squares[0] = _mm256_fmadd_pd(a0, a0, squares[0]);
            squares[1] = _mm256_fmadd_pd(a1, a1, squares[1]);
            squares[2] = _mm256_fmadd_pd(b0, b0, squares[2]);
            squares[3] = _mm256_fmadd_pd(b1, b1, squares[3]);
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(sum[0], sum[1]);
            q = Wide::plus(Wide::plus(squares[0], squares[1]), Wide::plus(squares[2], squares[3]));
        }
    };

    // The sign and the zero of 32 floats survive in 32 bytes, saturated; adding +0 makes -0 a +0. A byte counts up to 255, and a
    // block of SCREEN elements has 64 in each.
    struct Tally {
        __m256i zeros = _mm256_setzero_si256(), negatives = _mm256_setzero_si256();

        static __m256i bits(Vec a) { return _mm256_castps_si256(_mm256_add_ps(a, splat(0))); }
        void add(Vec a, Vec b, Vec c, Vec d) {
            const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(bits(a), bits(b)), _mm256_packs_epi32(bits(c), bits(d)));
            zeros = _mm256_sub_epi8(zeros, _mm256_cmpeq_epi8(packed, _mm256_setzero_si256()));
            negatives = _mm256_sub_epi8(negatives, _mm256_cmpgt_epi8(_mm256_setzero_si256(), packed));
        }
        std::int64_t zero() const { return Wide::Tally::total(_mm256_sad_epu8(zeros, _mm256_setzero_si256())); }
        std::int64_t neg() const { return Wide::Tally::total(_mm256_sad_epu8(negatives, _mm256_setzero_si256())); }
    };
};

struct Halves {
    static constexpr int lanes = 16;
    static constexpr bool fused = false;  // sixteen registers do not hold the sums of both

    static __m256i load(const char* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

    struct Extremes {
        __m256i tops = _mm256_set1_epi16(INT16_MIN), fars = _mm256_setzero_si256(), lows = _mm256_set1_epi16(INT16_MAX);

        void add(__m256i bits) {
            tops = _mm256_max_epi16(tops, bits);
            fars = _mm256_max_epu16(fars, bits);
            lows = _mm256_min_epi16(lows, bits);
        }
        void merge(const Extremes& other) {
            tops = _mm256_max_epi16(tops, other.tops);
            fars = _mm256_max_epu16(fars, other.fars);
            lows = _mm256_min_epi16(lows, other.lows);
        }
        bool within(short limit) const {
            return top() <= limit && far() <= (limit | 0x8000);
        }
        // The smallest unsigned integer of the complement, or of the order turned to unsigned, is what is asked for.
        int top() const { return static_cast<short>(smallest(_mm256_xor_si256(tops, _mm256_set1_epi16(INT16_MAX))) ^ INT16_MAX); }
        int far() const { return smallest(_mm256_xor_si256(fars, _mm256_set1_epi16(-1))) ^ 0xffff; }
        int low() const { return static_cast<short>(smallest(_mm256_xor_si256(lows, _mm256_set1_epi16(INT16_MIN))) ^ INT16_MIN); }
        static int smallest(__m256i a) {  // unsigned
            const __m128i half = _mm_min_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
            return _mm_extract_epi16(_mm_minpos_epu16(half), 0);
        }
    };

    struct Tally {  // in 16-bit integers, each increased 128 times by a block
        __m256i zeros = _mm256_setzero_si256(), negatives = _mm256_setzero_si256();

        void add(__m256i bits) {
            const __m256i none = _mm256_cmpeq_epi16(_mm256_add_epi16(bits, bits), _mm256_setzero_si256());
            zeros = _mm256_sub_epi16(zeros, none);
            negatives = _mm256_add_epi16(negatives, _mm256_andnot_si256(none, _mm256_srli_epi16(bits, 15)));
        }
        static std::int64_t total(__m256i counts) {
            const __m256i pairs = _mm256_madd_epi16(counts, _mm256_set1_epi16(1));
            return Wide::Tally::total(_mm256_add_epi64(_mm256_srli_epi64(pairs, 32), _mm256_and_si256(pairs, _mm256_set1_epi64x(0xffffffff))));
        }
        std::int64_t zero() const { return total(zeros); }
        std::int64_t neg() const { return total(negatives); }
    };

    struct Sums {
        Wide::Vec sum[2] = {Wide::splat(0), Wide::splat(0)}, squares[2] = {Wide::splat(0), Wide::splat(0)};

        void one(int k, __m128 value) {
            const Wide::Vec wide = _mm256_cvtps_pd(value);
            sum[k] = _mm256_add_pd(sum[k], wide);
            squares[k] = _mm256_fmadd_pd(wide, wide, squares[k]);
        }
        void add(Float16, const char* at) {
            for (int k = 0; k < 4; ++k) one(k % 2, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 8 * k))));
        }
        void add(BFloat16, const char* at) {  // the halves of 32-bit words, moved up or masked
            for (int k = 0; k < 2; ++k) {
                const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * k));
                one(0, _mm_castsi128_ps(_mm_slli_epi32(pairs, 16)));
                one(1, _mm_castsi128_ps(_mm_and_si128(pairs, _mm_set1_epi32(-65536))));
            }
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(sum[0], sum[1]);
            q = Wide::plus(squares[0], squares[1]);
        }
    };
};

struct Words {
    static constexpr int width = 32;
    __m256i products = _mm256_setzero_si256(), plain = _mm256_setzero_si256();
    BlockSums tail;

    static __m256i load(const char* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
    static __m256i bits(__m256i a) { return a; }
    static __m256i bits(__m256 a) { return _mm256_castps_si256(a); }
    static __m256i bits(__m256d a) { return _mm256_castpd_si256(a); }
    void add(__m256i word, const std::uint64_t* keys) {
        const __m256i x = _mm256_xor_si256(word, _mm256_load_si256(reinterpret_cast<const __m256i*>(keys)));
        products = _mm256_add_epi64(products, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
        plain = _mm256_add_epi64(plain, x);
    }
    void rest(const char* at, const std::uint64_t* keys, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
            std::uint64_t word;
            std::memcpy(&word, at + 8 * i, 8);
            tail.add(word, keys[i]);
        }
    }
    static std::uint64_t summed(__m256i a) { return static_cast<std::uint64_t>(Wide::Tally::total(a)); }
    BlockSums total() const { return {summed(products) + tail.products, summed(plain) + tail.plain}; }
};

}  // namespace

#define OPSCOPE_HALVES
#include "halves.hpp"
#include "integers.hpp"

namespace opscope {

const KernelTable& avx2_kernels() { return TABLE; }

}  // namespace opscope

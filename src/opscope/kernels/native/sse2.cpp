// SPDX-License-Identifier: Apache-2.0
// SSE2, which every x86-64 processor has. Vectors of 16 bytes; comparisons answer vectors of all ones and zeros.
#include <emmintrin.h>

#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

struct Wide {
    using Vec = __m128d;
    using Real = double;
    using Mask = __m128d;
    static constexpr int lanes = 2;

    static Vec load(Float64, const char* at) { return _mm_loadu_pd(reinterpret_cast<const double*>(at)); }
    static Vec splat(Real value) { return _mm_set1_pd(value); }
    static Vec plus(Vec a, Vec b) { return _mm_add_pd(a, b); }
    static Vec smaller(Vec a, Vec b) { return _mm_min_pd(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm_max_pd(a, b); }
    static Real lowest(Vec a) { return _mm_cvtsd_f64(_mm_min_sd(a, _mm_unpackhi_pd(a, a))); }
    static Real highest(Vec a) { return _mm_cvtsd_f64(_mm_max_sd(a, _mm_unpackhi_pd(a, a))); }
    static Real total(Vec a) { return _mm_cvtsd_f64(_mm_add_sd(a, _mm_unpackhi_pd(a, a))); }
    static Mask equal(Vec a, Vec b) { return _mm_cmpeq_pd(a, b); }
    static Mask less(Vec a, Vec b) { return _mm_cmplt_pd(a, b); }
    static Mask at_most(Vec a, Vec b) { return _mm_cmple_pd(a, b); }
    static Mask both(Mask a, Mask b) { return _mm_and_pd(a, b); }
    static Mask either(Mask a, Mask b) { return _mm_or_pd(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm_or_pd(_mm_and_pd(mask, a), _mm_andnot_pd(mask, b)); }
    static int count(Mask mask) {
        const int bits = _mm_movemask_pd(mask);
        return (bits & 1) + (bits >> 1);
    }

    struct Sums {
        Vec sum[2] = {splat(0), splat(0)}, squares[2] = {splat(0), splat(0)};

        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Vec a, Vec b) {
            sum[0] = _mm_add_pd(sum[0], a);
            sum[1] = _mm_add_pd(sum[1], b);
            squares[0] = _mm_add_pd(squares[0], _mm_mul_pd(a, a));
            squares[1] = _mm_add_pd(squares[1], _mm_mul_pd(b, b));
        }
        void fold(Vec& s, Vec& q) const {
            s = plus(sum[0], sum[1]);
            q = plus(squares[0], squares[1]);
        }
    };

    struct Tally {
        __m128i zeros = _mm_setzero_si128(), negatives = _mm_setzero_si128();

        void add(Vec a, Vec b, Vec c, Vec d) {
            one(a);
            one(b);
            one(c);
            one(d);
        }
        void one(Vec a) {
            zeros = _mm_sub_epi64(zeros, _mm_castpd_si128(equal(a, splat(0))));
            negatives = _mm_sub_epi64(negatives, _mm_castpd_si128(less(a, splat(0))));
        }
        static std::int64_t total(__m128i a) { return _mm_cvtsi128_si64(_mm_add_epi64(a, _mm_unpackhi_epi64(a, a))); }
        std::int64_t zero() const { return total(zeros); }
        std::int64_t neg() const { return total(negatives); }
    };
};

struct Narrow {
    using Vec = __m128;
    using Real = float;
    using Mask = __m128;
    static constexpr int lanes = 4;

    // A float16 becomes a float32 by moving its bits into place and multiplying by the power of two between the exponents' biases,
    // which also makes denormals right; an exponent that means infinity and NaN is put back.
    static Vec half(__m128i bits) {
        const __m128i magnitude = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x7fff)), 13);
        const Vec value = _mm_mul_ps(_mm_castsi128_ps(magnitude), splat(0x1p112f));
        const Vec beyond = _mm_and_ps(_mm_cmpge_ps(value, splat(65536)), splat(__builtin_inff()));
        const __m128i sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x8000)), 16);
        return _mm_or_ps(_mm_or_ps(value, beyond), _mm_castsi128_ps(sign));
    }
    static __m128i load16(const char* at) {
        return _mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)), _mm_setzero_si128());
    }

    static Vec load(Float32, const char* at) { return _mm_loadu_ps(reinterpret_cast<const float*>(at)); }
    static Vec load(Float16, const char* at) { return half(load16(at)); }
    static Vec load(BFloat16, const char* at) { return _mm_castsi128_ps(_mm_slli_epi32(load16(at), 16)); }
    static Vec splat(Real value) { return _mm_set1_ps(value); }
    static Vec smaller(Vec a, Vec b) { return _mm_min_ps(a, b); }
    static Vec larger(Vec a, Vec b) { return _mm_max_ps(a, b); }
    static Real lowest(Vec a) {
        const Vec pair = _mm_min_ps(a, _mm_movehl_ps(a, a));
        return _mm_cvtss_f32(_mm_min_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
    static Real highest(Vec a) {
        const Vec pair = _mm_max_ps(a, _mm_movehl_ps(a, a));
        return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
    }
    static Mask equal(Vec a, Vec b) { return _mm_cmpeq_ps(a, b); }
    static Mask less(Vec a, Vec b) { return _mm_cmplt_ps(a, b); }
    static Mask at_most(Vec a, Vec b) { return _mm_cmple_ps(a, b); }
    static Mask both(Mask a, Mask b) { return _mm_and_ps(a, b); }
    static Mask either(Mask a, Mask b) { return _mm_or_ps(a, b); }
    static Vec select(Mask mask, Vec a, Vec b) { return _mm_or_ps(_mm_and_ps(mask, a), _mm_andnot_ps(mask, b)); }
    static int count(Mask mask) { return static_cast<int>((0x4332322132212110u >> (4 * _mm_movemask_ps(mask))) & 7); }

    struct Sums {
        Wide::Vec sum[2] = {Wide::splat(0), Wide::splat(0)}, squares[2] = {Wide::splat(0), Wide::splat(0)};

        template <class E>
        void add(E, const char*, Vec a, Vec b) {
            add(a, b);
        }
        void add(Vec a, Vec b) {
            const Wide::Vec a0 = _mm_cvtps_pd(a), a1 = _mm_cvtps_pd(_mm_movehl_ps(a, a));
            const Wide::Vec b0 = _mm_cvtps_pd(b), b1 = _mm_cvtps_pd(_mm_movehl_ps(b, b));
            sum[0] = Wide::plus(sum[0], Wide::plus(a0, a1));
            sum[1] = Wide::plus(sum[1], Wide::plus(b0, b1));
            squares[0] = Wide::plus(squares[0], Wide::plus(_mm_mul_pd(a0, a0), _mm_mul_pd(a1, a1)));
            squares[1] = Wide::plus(squares[1], Wide::plus(_mm_mul_pd(b0, b0), _mm_mul_pd(b1, b1)));
        }
        void fold(Wide::Vec& s, Wide::Vec& q) const {
            s = Wide::plus(sum[0], sum[1]);
            q = Wide::plus(squares[0], squares[1]);
        }
    };

    // The sign and the zero of 16 floats survive in 16 bytes, saturated; adding +0 makes -0 a +0. A byte counts up to 255, and a
    // block of SCREEN elements has 128 in each.
    struct Tally {
        __m128i zeros = _mm_setzero_si128(), negatives = _mm_setzero_si128();

        static __m128i bits(Vec a) { return _mm_castps_si128(_mm_add_ps(a, splat(0))); }
        void add(Vec a, Vec b, Vec c, Vec d) {
            const __m128i packed = _mm_packs_epi16(_mm_packs_epi32(bits(a), bits(b)), _mm_packs_epi32(bits(c), bits(d)));
            zeros = _mm_sub_epi8(zeros, _mm_cmpeq_epi8(packed, _mm_setzero_si128()));
            negatives = _mm_sub_epi8(negatives, _mm_cmplt_epi8(packed, _mm_setzero_si128()));
        }
        std::int64_t zero() const { return Wide::Tally::total(_mm_sad_epu8(zeros, _mm_setzero_si128())); }
        std::int64_t neg() const { return Wide::Tally::total(_mm_sad_epu8(negatives, _mm_setzero_si128())); }
    };
};

struct Words {
    static constexpr int width = 16;
    __m128i products = _mm_setzero_si128(), plain = _mm_setzero_si128();
    BlockSums tail;

    static __m128i load(const char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
    static __m128i bits(__m128 a) { return _mm_castps_si128(a); }
    static __m128i bits(__m128d a) { return _mm_castpd_si128(a); }
    void add(__m128i word, const std::uint64_t* keys) {
        const __m128i x = _mm_xor_si128(word, _mm_load_si128(reinterpret_cast<const __m128i*>(keys)));
        products = _mm_add_epi64(products, _mm_mul_epu32(x, _mm_srli_epi64(x, 32)));
        plain = _mm_add_epi64(plain, x);
    }
    void rest(const char* at, const std::uint64_t* keys, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
            std::uint64_t word;
            std::memcpy(&word, at + 8 * i, 8);
            tail.add(word, keys[i]);
        }
    }
    static std::uint64_t summed(__m128i a) { return static_cast<std::uint64_t>(Wide::Tally::total(a)); }
    BlockSums total() const { return {summed(products) + tail.products, summed(plain) + tail.plain}; }
};

}  // namespace

#include "integers.hpp"

namespace opscope {

const KernelTable& sse2_kernels() { return TABLE; }

}  // namespace opscope

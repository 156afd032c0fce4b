// SPDX-License-Identifier: Apache-2.0
// Vectors of doubles as wide as the instruction set has them, for the pass over two arrays: GCC takes wider ones apart badly, and spills
// the masks of AVX-512 that it is left to widen. In an unnamed namespace, as what includes it.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 8;
#elif defined(__AVX__)
constexpr int LANES = 4;
#else
constexpr int LANES = 2;
#endif
constexpr int BLOCK = 512;  // elements that are decoded at once: buffers stay in the first cache
typedef double Vec __attribute__((vector_size(8 * LANES)));
typedef long long Mask __attribute__((vector_size(8 * LANES)));

inline Vec load(const double* at) {
    Vec found;
    std::memcpy(&found, at, sizeof found);
    return found;
}
inline Mask load(const std::int64_t* at) {
    Mask found;
    std::memcpy(&found, at, sizeof found);
    return found;
}
inline Vec splat(double value) { return Vec{} + value; }
inline Vec magnitude(Vec a) { return (Vec)((Mask)a & 0x7fffffffffffffffLL); }

// Flags: which elements something holds for. Count: how often it did. occurrences: how many of BLOCK aligned bytes have a value.
#if defined(__AVX512F__)
typedef __mmask8 Flags;
inline Vec larger(Vec a, Vec b) { return (Vec)_mm512_max_pd((__m512d)a, (__m512d)b); }
inline Vec choose(Flags flags, Vec a, Vec b) { return (Vec)_mm512_mask_blend_pd(flags, (__m512d)b, (__m512d)a); }
inline Flags less(Vec a, Vec b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ); }
inline Flags equal(Vec a, Vec b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ); }
inline Flags flags_of(Mask mask) { return _mm512_movepi64_mask((__m512i)mask); }
inline Flags either(Flags a, Flags b) { return static_cast<Flags>(a | b); }
inline Flags without(Flags a, Flags b) { return static_cast<Flags>(a & ~b); }
inline std::int64_t occurrences(const std::uint8_t* bytes, int wanted) {
    const __m512i sought = _mm512_set1_epi8(static_cast<char>(wanted));
    std::int64_t found = 0;
    for (int i = 0; i < BLOCK; i += 64) found += __builtin_popcountll(_mm512_cmpeq_epi8_mask(_mm512_load_si512(bytes + i), sought));
    return found;
}
struct Count {
    std::int64_t found = 0;
    void add(Flags flags) { found += __builtin_popcount(flags); }
    std::int64_t total() const { return found; }
};
#else
typedef Mask Flags;
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }
inline Vec choose(Flags flags, Vec a, Vec b) { return (Vec)((flags & (Mask)a) | (~flags & (Mask)b)); }
inline Flags less(Vec a, Vec b) { return a < b; }
inline Flags equal(Vec a, Vec b) { return a == b; }
inline Flags flags_of(Mask mask) { return mask; }
inline Flags either(Flags a, Flags b) { return a | b; }
inline Flags without(Flags a, Flags b) { return a & ~b; }
// Bytes are counted in bytes, of which none can overflow within a block.
typedef std::uint8_t Bytes __attribute__((vector_size(8 * LANES)));
inline std::int64_t occurrences(const std::uint8_t* bytes, int wanted) {
    const Bytes sought = Bytes{} + static_cast<std::uint8_t>(wanted);
    Bytes counts{};
    static_assert(BLOCK / sizeof(Bytes) <= 255);
    for (std::size_t i = 0; i < BLOCK; i += sizeof(Bytes)) {
        Bytes part;
        std::memcpy(&part, bytes + i, sizeof part);
        counts -= (Bytes)(part == sought);
    }
    std::uint8_t each[sizeof(Bytes)];
    std::memcpy(each, &counts, sizeof each);
    std::int64_t found = 0;
    for (const std::uint8_t one : each) found += one;
    return found;
}
struct Count {
    Mask found{};
    void add(Flags flags) { found -= flags; }
    std::int64_t total() const {
        std::int64_t sum = found[0];
        for (int lane = 1; lane < LANES; ++lane) sum += found[lane];
        return sum;
    }
};
#endif

inline double total(Vec a) {
    double sum = a[0];
    for (int lane = 1; lane < LANES; ++lane) sum += a[lane];
    return sum;
}
inline double highest(Vec a) {
    double found = a[0];
    for (int lane = 1; lane < LANES; ++lane) found = a[lane] > found ? a[lane] : found;
    return found;
}

}  // namespace

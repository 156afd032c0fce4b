// SPDX-License-Identifier: Apache-2.0
// The pass over two arrays. Compiled once for each instruction set with its own flags, everything in an unnamed namespace, so that the
// linker cannot mix them.
#include <cmath>
#include <cstring>

#include "pair_part.hpp"
#include "pair_vectors.hpp"

namespace {

using namespace opscope;

template <class T>
inline T word(const char* at, std::int64_t i) {
    T found;
    std::memcpy(&found, at + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return found;
}

// One block of both sides as doubles, padded with zeros; d and p are set by types whose difference and product take more than x and y.
struct Block {
    alignas(64) double x[BLOCK], y[BLOCK], d[BLOCK], p[BLOCK];
    alignas(64) std::int64_t skip[BLOCK];
    alignas(64) std::uint64_t ulp[BLOCK];
    alignas(64) std::uint32_t near[BLOCK];  // ULP distances of types of at most 32 bits
    alignas(64) std::int64_t same[BLOCK];   // elements that are equal, of types with d and p
};

float bits_to_float(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

// Multiplied by the power of two between the exponents' biases, which also makes denormals right.
float half_to_float(std::uint32_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    const float value = bits_to_float((bits & 0x7fffu) << 13) * 0x1p112f;
    if (value < 65536.0f) return sign != 0 ? -value : value;
    return bits_to_float(sign | 0x7f800000u | ((bits & 0x3ffu) << 13));
}

// e4m3fn and e5m2 by their definition (Open Compute Project, OFP8, revision 1.0).
template <int mantissa, int bias, bool infinite>
float byte_to_float(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7fu, fraction = magnitude & ((1u << mantissa) - 1), exponent = magnitude >> mantissa;
    const bool special = infinite ? exponent == 31 : magnitude == 0x7f;
    float value;
    if (special) value = infinite && fraction == 0 ? __builtin_inff() : __builtin_nanf("");
    else if (exponent == 0) value = static_cast<float>(fraction) * bits_to_float(static_cast<std::uint32_t>(127 + 1 - bias - mantissa) << 23);
    else value = bits_to_float(((exponent + 127 - static_cast<std::uint32_t>(bias)) << 23) | (fraction << (23 - mantissa)));
    return (bits & 0x80u) != 0 ? -value : value;
}

// Integers in the order of the numbers, neighbours one apart, both zeros 0.
template <class Signed>
inline std::int64_t ordinal(Signed bits) {
    const auto wide = static_cast<std::int64_t>(bits);
    constexpr std::int64_t SIGN = sizeof(Signed) == 8 ? INT64_MIN : -(std::int64_t{1} << (8 * sizeof(Signed) - 1));
    return wide < 0 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(SIGN) - static_cast<std::uint64_t>(wide)) : wide;
}
inline std::uint64_t apart(std::int64_t a, std::int64_t b) {
    return a > b ? static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b) : static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a);
}

// Element types: decode() to doubles, ulps() of pairs; plain: the difference is |x - y| of the doubles; finite: always so.
template <class Bits>
struct FloatingUlps {
    static constexpr bool short_ulps = sizeof(Bits) <= 4;
    // Of 32 bits and less: both as integers in the order of the numbers; the distance fits in as many bits, unsigned.
    static void ulps(const char* t, const char* g, int count, std::uint32_t* out) {
        for (int i = 0; i < count; ++i) {
            const auto a = static_cast<std::int32_t>(word<Bits>(t, i)), b = static_cast<std::int32_t>(word<Bits>(g, i));
            constexpr auto SIGN = static_cast<std::uint32_t>(1) << (8 * (sizeof(Bits) <= 4 ? sizeof(Bits) : 4) - 1);
            const auto x = static_cast<std::int32_t>(a < 0 ? 0u - SIGN - static_cast<std::uint32_t>(a) : static_cast<std::uint32_t>(a));
            const auto y = static_cast<std::int32_t>(b < 0 ? 0u - SIGN - static_cast<std::uint32_t>(b) : static_cast<std::uint32_t>(b));
            out[i] = x > y ? static_cast<std::uint32_t>(x) - static_cast<std::uint32_t>(y) : static_cast<std::uint32_t>(y) - static_cast<std::uint32_t>(x);
        }
    }
    static void ulps(const char* t, const char* g, int count, std::uint64_t* out) {
        for (int i = 0; i < count; ++i) out[i] = apart(ordinal(word<Bits>(t, i)), ordinal(word<Bits>(g, i)));
    }
};
struct F64 : FloatingUlps<std::int64_t> {
    static constexpr int size = 8;
    static constexpr bool plain = true, finite = false, wide = true;
    static void decode(const char* at, int count, double* out) { std::memcpy(out, at, static_cast<std::size_t>(count) * 8); }
};
struct F32 : FloatingUlps<std::int32_t> {
    static constexpr int size = 4;
    static constexpr bool plain = true, finite = false, wide = false;
    static void decode(const char* at, int count, double* out) {
        for (int i = 0; i < count; ++i) out[i] = static_cast<double>(word<float>(at, i));
    }
};
struct BF16 : FloatingUlps<std::int16_t> {
    static constexpr int size = 2;
    static constexpr bool plain = true, finite = false, wide = false;
    static void decode(const char* at, int count, double* out) {
        for (int i = 0; i < count; ++i) out[i] = static_cast<double>(bits_to_float(static_cast<std::uint32_t>(word<std::uint16_t>(at, i)) << 16));
    }
};
struct F16 : FloatingUlps<std::int16_t> {
    static constexpr int size = 2;
    static constexpr bool plain = true, finite = false, wide = false;
    static void decode(const char* at, int count, double* out) {
        int i = 0;
#if defined(__F16C__)
        for (; i + 8 <= count; i += 8) {
            alignas(32) float part[8];
            _mm256_store_ps(part, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 2 * i))));
            for (int lane = 0; lane < 8; ++lane) out[i + lane] = static_cast<double>(part[lane]);
        }
#endif
        for (; i < count; ++i) out[i] = static_cast<double>(half_to_float(word<std::uint16_t>(at, i)));
    }
};
template <int mantissa, int bias, bool infinite>
struct F8 : FloatingUlps<std::int8_t> {
    static constexpr int size = 1;
    static constexpr bool plain = true, finite = false, wide = false;
    static void decode(const char* at, int count, double* out) {
        for (int i = 0; i < count; ++i) out[i] = static_cast<double>(byte_to_float<mantissa, bias, infinite>(word<std::uint8_t>(at, i)));
    }
};
template <class Number>
struct Integer {
    static constexpr bool short_ulps = false;
    static constexpr int size = sizeof(Number);
    static constexpr bool plain = true, finite = true, wide = false;
    static void decode(const char* at, int count, double* out) {
        for (int i = 0; i < count; ++i) out[i] = static_cast<double>(word<Number>(at, i));
    }
    static void ulps(const char* t, const char* g, int count, std::uint64_t* out) {
        for (int i = 0; i < count; ++i) out[i] = apart(static_cast<std::int64_t>(word<Number>(t, i)), static_cast<std::int64_t>(word<Number>(g, i)));
    }
};
struct Boolean {
    static constexpr bool short_ulps = false;
    static constexpr int size = 1;
    static constexpr bool plain = true, finite = true, wide = false;
    static void decode(const char* at, int count, double* out) {
        for (int i = 0; i < count; ++i) out[i] = word<std::uint8_t>(at, i) != 0 ? 1.0 : 0.0;
    }
    static void ulps(const char* t, const char* g, int count, std::uint64_t* out) {
        for (int i = 0; i < count; ++i) out[i] = (word<std::uint8_t>(t, i) != 0) != (word<std::uint8_t>(g, i) != 0);
    }
};
// 64-bit integers: doubles cannot hold them, so their difference is taken before.
template <class Number>
struct Long {
    static constexpr int size = 8;
    static constexpr bool plain = false, finite = true, wide = false;
    static void stage(const char* t, const char* g, int count, Block& b) {
        for (int i = 0; i < count; ++i) {
            const auto one = word<Number>(t, i), other = word<Number>(g, i);
            const std::uint64_t gap = one > other ? static_cast<std::uint64_t>(one) - static_cast<std::uint64_t>(other)
                                                  : static_cast<std::uint64_t>(other) - static_cast<std::uint64_t>(one);
            b.x[i] = static_cast<double>(one);
            b.y[i] = static_cast<double>(other);
            b.d[i] = static_cast<double>(gap);
            b.p[i] = b.x[i] * b.y[i];
            b.ulp[i] = gap;
            b.same[i] = gap == 0;
        }
    }
};
// Complex: x and y are magnitudes; NaN where a part is NaN, else infinite where a part is.
template <class Part, class Bits>
struct Complex {
    static constexpr int size = 2 * sizeof(Part);
    static constexpr bool plain = false, finite = false, wide = sizeof(Part) == 8;
    static double size_of(double re, double im) {
        if (std::isnan(re) || std::isnan(im)) return __builtin_nan("");
        if (std::isinf(re) || std::isinf(im)) return __builtin_inf();
        const double found = std::sqrt(re * re + im * im);
        return found < __DBL_MAX__ ? found : __DBL_MAX__;  // beyond: the pass is made again, scaled
    }
    static void stage(const char* t, const char* g, int count, Block& b, double half, double rest) {
        for (int i = 0; i < count; ++i) {
            const double tr = word<Part>(t, 2 * i), ti = word<Part>(t, 2 * i + 1), gr = word<Part>(g, 2 * i), gi = word<Part>(g, 2 * i + 1);
            b.same[i] = tr == gr && ti == gi;
            const double a = tr * half * rest, c = ti * half * rest, e = gr * half * rest, f = gi * half * rest;
            b.x[i] = size_of(a, c);
            b.y[i] = size_of(e, f);
            b.d[i] = std::sqrt((a - e) * (a - e) + (c - f) * (c - f));
            b.p[i] = a * e + c * f;
            const std::uint64_t re = apart(ordinal(word<Bits>(t, 2 * i)), ordinal(word<Bits>(g, 2 * i)));
            const std::uint64_t im = apart(ordinal(word<Bits>(t, 2 * i + 1)), ordinal(word<Bits>(g, 2 * i + 1)));
            b.ulp[i] = re > im ? re : im;
        }
    }
};

bool all_finite(const Block& b, int padded) {
    Vec none{};  // NaN once an element is not finite
    for (int i = 0; i < padded; i += LANES) {
        const Vec x = load(b.x + i), y = load(b.y + i);
        none += (x - x) + (y - y);
    }
    return total(none) == 0;
}

int class_of(double value) { return std::isnan(value) ? 0 : value > 0 ? 1 : 2; }

// Counts the pairs that are not finite and takes them out: zeros in their places, skip set. Answers how many there are.
int take_out(Block& b, int count, std::int64_t first, PairPart& out, bool exact) {
    int taken = 0;
    for (int i = 0; i < count; ++i) {
        const double x = b.x[i], y = b.y[i];
        const bool one = !std::isfinite(x), other = !std::isfinite(y);
        b.skip[i] = one || other ? -1 : 0;
        if (!one && !other) continue;
        ++taken;
        if (one) ++out.nonfinite[static_cast<std::size_t>(class_of(x))];
        if (other) ++out.nonfinite[static_cast<std::size_t>(3 + class_of(y))];
        const bool equal = (std::isnan(x) && std::isnan(y)) || (exact ? b.same[i] != 0 : x == y);
        if (!equal) {
            ++out.odd;
            ++out.differing;
            if (out.first_odd < 0) out.first_odd = first + i;
            if (out.first < 0 || out.first > first + i) out.first = first + i;
        }
        b.x[i] = b.y[i] = b.d[i] = b.p[i] = 0;
        b.same[i] = 1;
    }
    return taken;
}

// What needs the differences. Answers the largest. taken counts places that hold no pair: zeros beside zeros.
template <bool plain>
double differences(const Block& b, int padded, int taken, const PairSpan& span, PairPart& out) {
    const Vec absolute = splat(span.absolute * span.half * span.rest), relative = splat(span.relative);
    const Vec zero{}, infinity = splat(__builtin_inf()), thousandth = splat(0.001), five = splat(5 * 0.001);
    Vec max_abs{}, sum_abs{}, squares{}, max_rel{}, sum_rel{};
    Count within_1, within_5, beyond, zero_only;
    for (int i = 0; i < padded; i += LANES) {
        const Vec y = load(b.y + i), size = magnitude(y);
        Vec d;
        if constexpr (plain) d = magnitude(load(b.x + i) - y);
        else d = load(b.d + i);
        const Flags empty = equal(size, zero), alike = equal(d, zero);
        const Vec ratio = d / choose(empty, infinity, size);  // 0 where golden is
        max_abs = larger(d, max_abs);
        sum_abs += d;
        squares += d * d;
        max_rel = larger(ratio, max_rel);
        sum_rel += ratio;
        within_1.add(either(alike, less(d, thousandth * size)));
        within_5.add(either(alike, less(d, five * size)));
        beyond.add(less(absolute + relative * size, d));
        zero_only.add(without(empty, alike));
    }
    const double rel = highest(max_rel);
    out.max_rel = rel > out.max_rel ? rel : out.max_rel;
    out.sum_abs += total(sum_abs);
    out.squares += total(squares);
    out.sum_rel += total(sum_rel);
    out.within_1 += within_1.total() - taken;
    out.within_5 += within_5.total() - taken;
    out.beyond += beyond.total();
    out.zero_only += zero_only.total();
    return highest(max_abs);
}

// What needs the elements themselves. Meanwhile those of the next block, at so many bytes each, are fetched from memory.
template <int bytes, bool plain, bool masked>
void sizes(const Block& b, int padded, const char* next_t, const char* next_g, PairPart& out) {
    const Vec pivot_t = splat(out.pivot_t), pivot_g = splat(out.pivot_g), zero{};
    Vec dot{}, squares_t{}, squares_g{}, max_g{}, sum_t{}, sum_g{}, spread_t{}, spread_g{};
    for (int i = 0; i < padded; i += LANES) {
        __builtin_prefetch(next_t + i * bytes);
        __builtin_prefetch(next_g + i * bytes);
        const Vec x = load(b.x + i), y = load(b.y + i);
        Vec tx = x - pivot_t, gy = y - pivot_g;
        if constexpr (masked) {
            const Flags skip = flags_of(load(b.skip + i));
            tx = choose(skip, zero, tx);
            gy = choose(skip, zero, gy);
        }
        if constexpr (plain) dot += x * y;
        else dot += load(b.p + i);
        squares_t += x * x;
        squares_g += y * y;
        max_g = larger(magnitude(y), max_g);
        sum_t += tx;
        sum_g += gy;
        spread_t += tx * tx;
        spread_g += gy * gy;
    }
    const double top = highest(max_g);
    out.max_g = top > out.max_g ? top : out.max_g;
    out.dot += total(dot);
    out.squares_t += total(squares_t);
    out.squares_g += total(squares_g);
    out.sum_t += total(sum_t);
    out.sum_g += total(sum_g);
    out.spread_t += total(spread_t);
    out.spread_g += total(spread_g);
}

template <bool plain>
double distance(const Block& b, int i) {
    return plain ? std::fabs(b.x[i] - b.y[i]) : b.d[i];
}

template <class E>
void note_worst(const Block& b, int count, std::int64_t first, double most, PairPart& out) {
    if (!(most > out.max_abs)) return;
    out.max_abs = most;
    for (int i = 0; i < count; ++i) {
        if (distance<E::plain>(b, i) != most) continue;
        out.worst = first + i;
        return;
    }
}

template <class E>
std::int64_t differing(const Block& b, int padded) {
    Count same;
    for (int i = 0; i < padded; i += LANES) {
        if constexpr (E::plain) same.add(equal(load(b.x + i), load(b.y + i)));
        else same.add(flags_of(-(Mask)load(b.same + i)));
    }
    return padded - same.total();
}

template <class E>
void note_differing(const Block& b, int count, int padded, std::int64_t first, PairPart& out) {
    const std::int64_t found = differing<E>(b, padded);
    out.differing += found;
    if (found == 0 || (out.first >= 0 && out.first < first)) return;
    for (int i = 0; i < count; ++i) {
        if (E::plain ? b.x[i] == b.y[i] : b.same[i] != 0) continue;
        if (out.first < 0 || out.first > first + i) out.first = first + i;
        return;
    }
}

// The bit length of a distance of at most 63 bits, without a branch for 0.
inline int length_of(std::uint64_t distance) { return 63 - __builtin_clzll((distance << 1) | 1u); }
inline int length_of(std::uint32_t distance) { return length_of(std::uint64_t{distance}); }

// By the bit length of each distance; four tables, since neighbours mostly fall into one bucket.
template <class Distance>
void count_ulps(const Distance* ulp, const std::int64_t* skip, int count, PairPart& out) {
    std::int32_t table[4][65] = {};
    std::uint64_t most = 0;
    for (int i = 0; i < count; ++i) {
        if (skip != nullptr && skip[i] != 0) continue;
        most = ulp[i] > most ? ulp[i] : most;
        ++table[i & 3][(std::uint64_t{ulp[i]} >> 63) != 0 ? 64 : length_of(ulp[i])];
    }
    out.ulp = most > out.ulp ? most : out.ulp;
    for (int k = 0; k <= 64; ++k) out.histogram[static_cast<std::size_t>(k)] += table[0][k] + table[1][k] + table[2][k] + table[3][k];
}

// The same of distances below 2 to the 31st, whose bit lengths are exponents of floats; every length is looked for in all at once.
bool count_near_ulps(const std::uint32_t* ulp, int count, PairPart& out) {
    std::uint32_t most = 0;
    for (int i = 0; i < count; ++i) most = ulp[i] > most ? ulp[i] : most;
    if (most >> 31 != 0) return false;
    alignas(64) std::uint8_t lengths[BLOCK];
    for (int i = 0; i < count; ++i) {
        const auto topmost = static_cast<float>(static_cast<std::int32_t>(ulp[i] & ~(ulp[i] >> 1)));  // never rounded to the next power
        std::int32_t bits;
        std::memcpy(&bits, &topmost, 4);
        const std::int32_t length = (bits >> 23) - 126;
        lengths[i] = static_cast<std::uint8_t>(length > 0 ? length : 0);
    }
    for (int i = count; i < BLOCK; ++i) lengths[i] = 255;
    std::int64_t left = count;
    for (int length = most == 0 ? 0 : 32 - __builtin_clz(most); left > 0; --length) {
        const std::int64_t found = occurrences(lengths, length);
        out.histogram[static_cast<std::size_t>(length)] += found;
        left -= found;
    }
    out.ulp = most > out.ulp ? most : out.ulp;
    return true;
}

template <class E>
void stage(const char* t, const char* g, int count, const PairSpan& span, Block& b) {
    if constexpr (E::plain) {
        E::decode(t, count, b.x);
        E::decode(g, count, b.y);
    } else if constexpr (E::finite) {
        E::stage(t, g, count, b);
    } else {
        E::stage(t, g, count, b, span.half, span.rest);
    }
    for (int i = count; i % LANES != 0; ++i) b.x[i] = b.y[i] = b.d[i] = b.p[i] = 0, b.same[i] = 1, b.skip[i] = -1;
}

template <class E>
void one_block(const char* t, const char* g, int count, const PairSpan& span, std::int64_t first, PairPart& out, Block& b) {
    const int padded = (count + LANES - 1) / LANES * LANES;
    stage<E>(t, g, count, span, b);
    const bool masked = !E::finite && !all_finite(b, padded);
    const int taken = masked ? take_out(b, count, first, out, !E::plain) : 0;
    const int kept = count - taken;
    out.compared += kept;
    const bool same_bits = !masked && std::memcmp(t, g, static_cast<std::size_t>(count) * E::size) == 0;
    if (same_bits) {
        out.histogram[0] += count;
        out.within_1 += count;
        out.within_5 += count;
    } else {
        note_differing<E>(b, count, padded, first, out);
        const std::int64_t* skip = masked ? b.skip : nullptr;
        if constexpr (!E::plain) {
            count_ulps(b.ulp, skip, count, out);
        } else if constexpr (E::short_ulps) {
            E::ulps(t, g, count, b.near);
            if (masked || !count_near_ulps(b.near, count, out)) count_ulps(b.near, skip, count, out);
        } else {
            E::ulps(t, g, count, b.ulp);
            count_ulps(b.ulp, skip, count, out);
        }
    }
    if constexpr (E::plain && E::wide) {
        if (span.half != 1 || span.rest != 1) {
            for (int i = 0; i < count; ++i) b.x[i] *= span.half, b.x[i] *= span.rest, b.y[i] *= span.half, b.y[i] *= span.rest;
        }
    }
    for (int i = 0; !out.pivoted && i < count; ++i) {
        if (!masked || b.skip[i] == 0) out.pivot_t = b.x[i], out.pivot_g = b.y[i], out.pivoted = true;
    }
    // The padding counts as pairs that were taken out: it is within every share, and beside the pivot it is no value.
    if (!same_bits) note_worst<E>(b, count, first, differences<E::plain>(b, padded, taken + padded - count, span, out), out);
    if (!masked && padded != count) {
        for (int i = 0; i < count; ++i) b.skip[i] = 0;
    }
    const char *next_t = t + count * E::size, *next_g = g + count * E::size;
    if (masked || padded != count) sizes<E::size, E::plain, true>(b, padded, next_t, next_g, out);
    else sizes<E::size, E::plain, false>(b, padded, next_t, next_g, out);
}

template <class E>
void span_of(const PairSpan& span, PairPart& out) {
    Block block;
    for (std::int64_t done = 0; done < span.count; done += BLOCK) {
        const int count = static_cast<int>(span.count - done < BLOCK ? span.count - done : BLOCK);
        one_block<E>(span.target + done * E::size, span.golden + done * E::size, count, span, span.first + done, out, block);
    }
}

const PairTable PAIR_TABLE = {{
    span_of<Boolean>, span_of<Integer<std::int8_t>>, span_of<Integer<std::uint8_t>>, span_of<Integer<std::int16_t>>,
    span_of<Integer<std::uint16_t>>, span_of<Integer<std::int32_t>>, span_of<Integer<std::uint32_t>>, span_of<Long<std::int64_t>>,
    span_of<Long<std::uint64_t>>, span_of<F16>, span_of<BF16>, span_of<F32>, span_of<F64>, span_of<F8<3, 7, false>>,
    span_of<F8<2, 15, true>>, span_of<Complex<float, std::int32_t>>, span_of<Complex<double, std::int64_t>>,
}};

}  // namespace

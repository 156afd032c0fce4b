// SPDX-License-Identifier: Apache-2.0
// The kernels themselves, written once over the vectors of an instruction set. Each scalar.cpp … neon.cpp includes this file
// after defining, in an unnamed namespace, its policies:
//
//   Narrow   vectors of float, into which float16, bfloat16, float8 and float32 are loaded
//   Wide     vectors of double, in which sums are accumulated and float64 and magnitudes are read
//   Words    the digest's sums over the words of one block: add(load(pointer) or bits(vector), keys) takes `width` bytes,
//            rest(pointer, keys, count) fewer words than fill one, total()
//
// A policy has Vec, Mask, Real, lanes; load(E{}, pointer); splat, smaller, larger, lowest, highest; equal, less, at_most, both, either,
// select, count; Sums with add(a, b), add(E{}, pointer, a, b) where a and b were loaded one after the other from there, and fold();
// Tally with add(a, b, c, d), zero() and neg(). E is one of the element types of kernel.hpp.
//
// Everything stays in the unnamed namespace: an inline function shared between files compiled for different instruction sets could
// be kept by the linker in the version that the processor at hand cannot run. For the same reason nothing of the standard library
// but memcpy is called.
#pragma once

#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

// A tally counts in bytes: with 16-byte vectors each is increased 128 times by the 2048 halves of a block, which is the most.
static_assert(BLOCK_BYTES / 2 / 16 <= 255);

template <class P>
struct Part {
    typename P::Vec min, max;
    Wide::Vec sum, squares;
    std::int64_t nan = 0, pos_inf = 0, neg_inf = 0, zero = 0, neg = 0, near_limit = 0;
};

template <class P>
Part<P> nothing() {
    Part<P> part;
    part.min = P::splat(static_cast<typename P::Real>(__builtin_inf()));
    part.max = P::splat(static_cast<typename P::Real>(-__builtin_inf()));
    part.sum = part.squares = Wide::splat(0);
    return part;
}

// The last elements of a block, fewer than a vector: once padded with zeros, for sums and counts, and once with the first of them,
// for the extremes.
template <class P, class E>
struct Ragged {
    char zeros[P::lanes * E::size] = {};
    char copies[P::lanes * E::size];

    Ragged(const char* data, std::int64_t count) {
        std::memcpy(zeros, data, static_cast<std::size_t>(count * E::size));
        for (int lane = 0; lane < P::lanes; ++lane) std::memcpy(copies + lane * E::size, data, E::size);
        std::memcpy(copies, data, static_cast<std::size_t>(count * E::size));
    }
};

// The digest's share of a block, whose words are taken by the loop that also reads their elements: memory waits for nothing twice.
template <bool wanted>
struct Hash {
    Words words;
    std::int64_t done = 0;  // bytes

    template <int bytes>
    void take(const char* block) {
        static_assert(bytes % Words::width == 0);
        if constexpr (wanted) {
            const std::uint64_t* keys = KEYS.word + done / 8;
            for (int k = 0; k < bytes; k += Words::width) words.add(Words::load(block + done + k), keys + k / 8);
            done += bytes;
        }
    }

    template <class... Vec>
    void take_loaded(Vec... vectors) {
        if constexpr (wanted) {
            const std::uint64_t* keys = KEYS.word + done / 8;
            int k = 0;
            (words.add(Words::bits(vectors), keys + Words::width / 8 * k++), ...);
            done += Words::width * k;
        }
    }

    // The mixed sum of a block of so many bytes.
    std::uint64_t finish(const char* block, std::int64_t bytes, std::int64_t number) {
        if constexpr (!wanted) return 0;
        for (; done + Words::width <= bytes; done += Words::width) words.add(Words::load(block + done), KEYS.word + done / 8);
        const std::int64_t whole = (bytes - done) / 8;
        if (whole != 0) words.rest(block + done, KEYS.word + done / 8, whole);
        BlockSums sums = words.total();
        done += 8 * whole;
        if (done < bytes) {
            std::uint64_t word = 0;
            std::memcpy(&word, block + done, static_cast<std::size_t>(bytes - done));
            sums.add(word, KEYS.word[done / 8]);
        }
        return sums.mixed(number);
    }
};

// Asks for the part of the next block that lies where this one is read. Processors read ahead within a page, and in some virtual
// machines not at all: arithmetic and memory would wait for each other in turns.
template <int bytes>
void fetch_ahead(const char* at) {
    for (int k = 0; k < bytes; k += 64) __builtin_prefetch(at + BLOCK_BYTES + k, 0, 1);
}

// Right when every element is finite and none is near the limit, which is checked afterwards: a NaN or an infinity shows in the
// squares or the extremes.
template <class P, class E, bool digest>
Part<P> screened(const char* data, std::int64_t count, Hash<digest>& hash) {
    constexpr int step = P::lanes * E::size;
    Part<P> part = nothing<P>();
    typename P::Sums sums;
    typename P::Tally tally;
    const auto none = P::splat(0);
    std::int64_t i = 0;
    for (; i + 4 * P::lanes <= count; i += 4 * P::lanes) {
        const char* at = data + i * E::size;
        fetch_ahead<4 * step>(at);
        const auto a = P::load(E{}, at), b = P::load(E{}, at + step), c = P::load(E{}, at + 2 * step), d = P::load(E{}, at + 3 * step);
        if constexpr (step == Words::width) hash.take_loaded(a, b, c, d);
        else hash.template take<4 * step>(data);
        sums.add(E{}, at, a, b);
        sums.add(E{}, at + 2 * step, c, d);
        part.min = P::smaller(part.min, P::smaller(P::smaller(a, b), P::smaller(c, d)));
        part.max = P::larger(part.max, P::larger(P::larger(a, b), P::larger(c, d)));
        tally.add(a, b, c, d);
    }
    for (; i + P::lanes <= count; i += P::lanes) {
        const auto a = P::load(E{}, data + i * E::size);
        sums.add(a, none);
        part.min = P::smaller(part.min, a);
        part.max = P::larger(part.max, a);
        part.zero += P::count(P::equal(a, none));
        part.neg += P::count(P::less(a, none));
    }
    if (i < count) {
        const Ragged<P, E> ragged(data + i * E::size, count - i);
        const auto a = P::load(E{}, ragged.zeros), b = P::load(E{}, ragged.copies);
        sums.add(a, none);
        part.min = P::smaller(part.min, b);
        part.max = P::larger(part.max, b);
        part.zero += P::count(P::equal(a, none)) - (i + P::lanes - count);
        part.neg += P::count(P::less(a, none));
    }
    part.zero += tally.zero();
    part.neg += tally.neg();
    sums.fold(part.sum, part.squares);
    return part;
}

// All comparisons are false for a NaN, so a block that holds one is never sound.
template <class P, class E>
bool sound(const Part<P>& part) {
    const auto limit = P::splat(E::limit);
    const auto inside = P::both(P::at_most(part.max, limit), P::at_most(P::splat(-E::limit), part.min));
    return P::count(inside) == P::lanes && Wide::count(Wide::less(part.squares, Wide::splat(1e300))) == Wide::lanes;
}

// Adds one vector; the extremes are taken over `range`, everything else over `value`.
template <class P, class E>
void classify(Part<P>& part, typename P::Sums& sums, typename P::Vec value, typename P::Vec range) {
    using Real = typename P::Real;
    const auto none = P::splat(0), top = P::splat(static_cast<Real>(__builtin_inf())), bottom = P::splat(static_cast<Real>(-__builtin_inf()));
    const auto finite = P::both(P::less(value, top), P::less(bottom, value));
    const auto ranged = P::both(P::less(range, top), P::less(bottom, range));
    const auto near = P::either(P::less(P::splat(E::limit), value), P::less(value, P::splat(-E::limit)));
    const auto kept = P::select(finite, value, none);
    sums.add(kept, none);
    part.min = P::smaller(part.min, P::select(ranged, range, top));
    part.max = P::larger(part.max, P::select(ranged, range, bottom));
    part.nan += P::lanes - P::count(P::equal(value, value));
    part.pos_inf += P::count(P::equal(value, top));
    part.neg_inf += P::count(P::equal(value, bottom));
    part.zero += P::count(P::equal(value, none));
    part.neg += P::count(P::less(kept, none));
    part.near_limit += P::count(P::both(finite, near));
}

template <class P, class E>
Part<P> classified(const char* data, std::int64_t count) {
    Part<P> part = nothing<P>();
    typename P::Sums sums;
    std::int64_t i = 0;
    for (; i + P::lanes <= count; i += P::lanes) {
        const auto a = P::load(E{}, data + i * E::size);
        classify<P, E>(part, sums, a, a);
    }
    if (i < count) {
        const Ragged<P, E> ragged(data + i * E::size, count - i);
        classify<P, E>(part, sums, P::load(E{}, ragged.zeros), P::load(E{}, ragged.copies));
        part.zero -= i + P::lanes - count;
    }
    sums.fold(part.sum, part.squares);
    return part;
}

// Adds elements to the total of a span, and the words that the fast loop passes to the hash.
template <class P, class E, bool digest>
void take(Part<P>& total, const char* data, std::int64_t count, Hash<digest>& hash) {
    Part<P> part = screened<P, E>(data, count, hash);
    if (!sound<P, E>(part)) {
        part = classified<P, E>(data, count);
        total.nan += part.nan;
        total.pos_inf += part.pos_inf;
        total.neg_inf += part.neg_inf;
        total.near_limit += part.near_limit;
    }
    total.min = P::smaller(total.min, part.min);
    total.max = P::larger(total.max, part.max);
    total.sum = Wide::plus(total.sum, part.sum);
    total.squares = Wide::plus(total.squares, part.squares);
    total.zero += part.zero;
    total.neg += part.neg;
}

template <class P>
void give(const Part<P>& total, std::int64_t count, Partial& out) {
    out.nan = total.nan;
    out.pos_inf = total.pos_inf;
    out.neg_inf = total.neg_inf;
    out.zero = total.zero;
    out.neg = total.neg;
    out.near_limit = total.near_limit;
    out.finite = count - total.nan - total.pos_inf - total.neg_inf;
    out.min = static_cast<double>(P::lowest(total.min));
    out.max = static_cast<double>(P::highest(total.max));
    out.sum = Wide::total(total.sum);
    out.squares = Wide::total(total.squares);
}

// Calls read(data, count, hash) block by block, and answers the sum of the mixed blocks.
template <int size, bool digest, class Read>
std::uint64_t each_block(const Span& span, const Read& read) {
    constexpr std::int64_t per_block = BLOCK_BYTES / size;
    std::uint64_t sum = 0;
    for (std::int64_t i = 0, number = span.block; i < span.count; i += per_block, ++number) {
        const std::int64_t count = span.count - i < per_block ? span.count - i : per_block;
        const char* data = span.data + i * size;
        Hash<digest> hash;
        read(data, count, hash);
        sum += hash.finish(data, count * size, number);
    }
    return sum;
}

// As each_block, with and without the digest.
template <int size, class Read>
std::uint64_t blocks(const Span& span, const Read& read) {
    return span.digest ? each_block<size, true>(span, read) : each_block<size, false>(span, read);
}

template <class P, class E>
void float_span(const Span& span, Partial& out) {
    Part<P> total = nothing<P>();
    const std::uint64_t digest =
        blocks<E::size>(span, [&](const char* data, std::int64_t count, auto& hash) { take<P, E>(total, data, count, hash); });
    give(total, span.count, out);
    out.digest = digest;
}

template <class T>
struct Unaligned {
    typedef T type __attribute__((aligned(1), may_alias));
};

// The product of two floats is exact in double, so nothing here depends on how the compiler orders or fuses it.
void magnitude64(const char* bytes, std::int64_t count, double* out) {
    const auto* data = reinterpret_cast<const Unaligned<float>::type*>(bytes);
    for (std::int64_t i = 0; i < count; ++i) {
        const double re = data[2 * i], im = data[2 * i + 1];
        out[i] = __builtin_sqrt(re * re + im * im);
    }
}

double magnitude(double re, double im) {
    const double a = __builtin_fabs(re), b = __builtin_fabs(im), inf = __builtin_inf();
    if (re != re || im != im) return __builtin_nan("");
    if (a == inf || b == inf) return inf;
    const double larger = a > b ? a : b;
    if (larger >= 0x1p-400 && larger <= 0x1p400) return __builtin_sqrt(a * a + b * b);
    const double scale = larger > 1 ? 0x1p-600 : 0x1p600;
    const double x = a * scale, y = b * scale, found = __builtin_sqrt(x * x + y * y) / scale;
    return found == inf ? 0x1.fffffffffffffp+1023 : found;
}

void magnitude128(const char* bytes, std::int64_t count, double* out) {
    const auto* data = reinterpret_cast<const Unaligned<double>::type*>(bytes);
    for (std::int64_t i = 0; i < count; ++i) out[i] = magnitude(data[2 * i], data[2 * i + 1]);
}

// The finite value of a float8, or NaN; infinities of float8_e5m2 as they are.
double decoded(Float8E4M3, unsigned code) {
    const int exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
    if ((code & 0x7f) == 0x7f) return __builtin_nan("");
    const double magnitude = exponent == 0 ? mantissa * 0x1p-9 : (8 + mantissa) * 0x1p-10 * static_cast<double>(1 << exponent);
    return code & 0x80 ? -magnitude : magnitude;
}

double decoded(Float8E5M2, unsigned code) {
    const int exponent = static_cast<int>(code >> 2 & 31), mantissa = static_cast<int>(code & 3);
    if (exponent == 31 && mantissa != 0) return __builtin_nan("");
    const double finite = exponent == 0 ? mantissa * 0x1p-16 : (4 + mantissa) * 0x1p-17 * static_cast<double>(1u << exponent);
    const double magnitude = exponent == 31 ? __builtin_inf() : finite;
    return code & 0x80 ? -magnitude : magnitude;
}

// Adds count elements of one value.
template <class E>
void add_many(Partial& out, double value, std::int64_t count) {
    if (value != value) out.nan += count;
    else if (value == __builtin_inf()) out.pos_inf += count;
    else if (value == -__builtin_inf()) out.neg_inf += count;
    else {
        out.min = out.finite == 0 || value < out.min ? value : out.min;
        out.max = out.finite == 0 || value > out.max ? value : out.max;
        out.finite += count;
        out.zero += value == 0 ? count : 0;
        out.neg += value < 0 ? count : 0;
        out.near_limit += value > E::limit || value < -E::limit ? count : 0;
        out.sum += value * static_cast<double>(count);
        out.squares += value * value * static_cast<double>(count);
    }
}

// There are only 256 float8 values: how often each occurs tells everything. Four tables, so that equal neighbours do not wait for
// each other.
template <class E>
void float8_span(const Span& span, Partial& out) {
    std::uint32_t seen[4][256] = {};
    const std::uint64_t digest = blocks<1>(span, [&](const char* bytes, std::int64_t count, auto&) {
        std::int64_t k = 0;
        for (; k + 8 <= count; k += 8) {
            std::uint64_t word;
            std::memcpy(&word, bytes + k, 8);
            for (int lane = 0; lane < 8; ++lane) ++seen[lane % 4][word >> 8 * lane & 0xff];
        }
        for (; k < count; ++k) ++seen[0][static_cast<unsigned char>(bytes[k])];
    });
    out = Partial{};
    for (unsigned code = 0; code < 256; ++code) {
        const std::int64_t count = std::int64_t{seen[0][code]} + seen[1][code] + seen[2][code] + seen[3][code];
        if (count != 0) add_many<E>(out, decoded(E{}, code), count);
    }
    out.digest = digest;
}

template <int size, void (*magnitudes)(const char*, std::int64_t, double*)>
void complex_span(const Span& span, Partial& out) {
    Part<Wide> total = nothing<Wide>();
    double buffer[BLOCK_BYTES / size];
    const std::uint64_t digest = blocks<size>(span, [&](const char* data, std::int64_t count, auto&) {
        magnitudes(data, count, buffer);
        Hash<false> none;
        take<Wide, Float64>(total, reinterpret_cast<const char*>(buffer), count, none);
    });
    give(total, span.count, out);
    out.digest = digest;
}

}  // namespace

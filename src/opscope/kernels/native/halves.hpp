// SPDX-License-Identifier: Apache-2.0
// float16 and bfloat16, whose order shows in their bits: extremes and counts are taken of the 16-bit integers, twice as many in a
// vector as floats, and only the sums need them widened. For instruction sets that define Halves:
//
//   Halves   vectors of 16-bit integers, lanes of them: fused, whether the digest is taken in the same loop; load(pointer); Extremes with add(vector), merge(other), within(limit), and
//            top(), far() and low(): the largest as signed, the largest as unsigned and the smallest as signed integer;
//            Tally with add(vector), zero(), neg(); Sums with add(E{}, pointer) and fold()
#include "spans.hpp"

namespace {

struct HalfTotal {
    Halves::Extremes extremes;
    Wide::Vec sum = Wide::splat(0), squares = Wide::splat(0);
    std::int64_t zero = 0, neg = 0, count = 0;
};

// False, and nothing added, when an element is not finite or near the limit. `count` is a multiple of the lanes.
template <class E, bool digest>
bool screened_halves(const char* data, std::int64_t count, HalfTotal& total, Hash<digest>& hash) {
    Halves::Extremes extremes;
    Halves::Tally tally;
    Halves::Sums sums;
    for (std::int64_t i = 0; i < count; i += Halves::lanes) {
        fetch_ahead<2 * Halves::lanes>(data + 2 * i);
        const auto bits = Halves::load(data + 2 * i);
        if constexpr (Halves::fused) hash.take_loaded(bits);
        extremes.add(bits);
        tally.add(bits);
        sums.add(E{}, data + 2 * i);
    }
    if (!extremes.within(E::limit_bits)) return false;
    Wide::Vec sum, squares;
    sums.fold(sum, squares);
    total.extremes.merge(extremes);
    total.sum = Wide::plus(total.sum, sum);
    total.squares = Wide::plus(total.squares, squares);
    total.zero += tally.zero();
    total.neg += tally.neg();
    total.count += count;
    return true;
}

template <class E>
float value_of(unsigned bits) {
    char buffer[Narrow::lanes * 2];
    for (int lane = 0; lane < Narrow::lanes; ++lane) std::memcpy(buffer + 2 * lane, &bits, 2);
    return Narrow::lowest(Narrow::load(E{}, buffer));
}

// Adds what the integers told to what the floats did. As signed integers negative floats come before positive ones, but among
// themselves in the wrong order: the most negative float is the largest unsigned integer.
template <class E>
void join(const HalfTotal& halves, Part<Narrow>& total) {
    if (halves.count == 0) return;
    const int top = halves.extremes.top(), far = halves.extremes.far(), low = halves.extremes.low();
    const int max = top >= 0 ? top : low, min = far >= 0x8000 ? far : low;
    total.max = Narrow::larger(total.max, Narrow::splat(value_of<E>(static_cast<unsigned>(max) & 0xffff)));
    total.min = Narrow::smaller(total.min, Narrow::splat(value_of<E>(static_cast<unsigned>(min) & 0xffff)));
    total.sum = Wide::plus(total.sum, halves.sum);
    total.squares = Wide::plus(total.squares, halves.squares);
    total.zero += halves.zero;
    total.neg += halves.neg;
}

template <class E>
void half_span(const Span& span, Partial& out) {
    Part<Narrow> total = nothing<Narrow>();
    HalfTotal halves;
    const std::uint64_t digest = blocks<2>(span, [&](const char* data, std::int64_t count, auto& hash) {
        const std::int64_t whole = count - count % Halves::lanes;
        Hash<false> none;
        if (!screened_halves<E>(data, whole, halves, hash)) take<Narrow, E>(total, data, whole, none);
        if (whole < count) take<Narrow, E>(total, data + 2 * whole, count - whole, none);
    });
    join<E>(halves, total);
    give(total, span.count, out);
    out.digest = digest;
}

}  // namespace

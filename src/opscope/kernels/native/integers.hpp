// SPDX-License-Identifier: Apache-2.0
// Integer kernels: plain loops that the compiler vectorises for the instruction set of the file that includes them.
#include <type_traits>

#include "sample.hpp"
#include "spans.hpp"

namespace {

template <class T>
struct IntPart {
    T min, max;
    std::int64_t zero = 0, neg = 0;
    double sum = 0, squares = 0;
};

// Sums of a block of 8- and 16-bit integers are exact in 32 and 64 bits; wider ones are summed in double.
template <class T>
void add_sums(const typename Unaligned<T>::type* data, std::int64_t count, IntPart<T>& part) {
    if constexpr (sizeof(T) <= 2) {
        using Square = std::conditional_t<sizeof(T) == 1, std::uint32_t, std::uint64_t>;
        std::int32_t sum = 0;
        Square squares = 0;
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int32_t value = data[i];
            sum += value;
            squares += static_cast<std::uint32_t>(value) * static_cast<std::uint32_t>(value);
        }
        part.sum += static_cast<double>(sum);
        part.squares += static_cast<double>(squares);
    } else {
        constexpr std::int64_t step = 2 * Wide::lanes;
        double buffer[BLOCK_BYTES / sizeof(T) + step];
        const std::int64_t whole = (count + step - 1) / step * step;
        for (std::int64_t i = 0; i < count; ++i) buffer[i] = static_cast<double>(data[i]);
        for (std::int64_t i = count; i < whole; ++i) buffer[i] = 0;
        Wide::Sums sums;
        for (std::int64_t i = 0; i < whole; i += step) {
            const auto* at = reinterpret_cast<const char*>(buffer + i);
            sums.add(Wide::load(Float64{}, at), Wide::load(Float64{}, at + 8 * Wide::lanes));
        }
        Wide::Vec sum, squares;
        sums.fold(sum, squares);
        part.sum += Wide::total(sum);
        part.squares += Wide::total(squares);
    }
}

template <class T>
void take_integers(const char* bytes, std::int64_t count, IntPart<T>& part) {
    const auto* data = reinterpret_cast<const typename Unaligned<T>::type*>(bytes);
    using Count = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;  // as wide as the comparisons, where it may be
    T min = part.min, max = part.max;
    Count zero = 0, neg = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const T value = data[i];
        min = value < min ? value : min;
        max = value > max ? value : max;
        zero += value == 0;
        neg += value < 0;
    }
    part.min = min;
    part.max = max;
    part.zero += zero;
    part.neg += neg;
    add_sums<T>(data, count, part);
}

template <class T>
std::int64_t stored(T value) {
    if constexpr (T(-1) > 0 && sizeof(T) == 8) return static_cast<std::int64_t>(value ^ (T(1) << 63));
    return static_cast<std::int64_t>(value);
}

template <class T>
void integer_span(const Span& span, Partial& out) {
    constexpr int size = sizeof(T);
    constexpr bool is_signed = T(-1) < T(0);
    constexpr T lowest = is_signed ? T(T(1) << (8 * size - 1)) : T(0);
    IntPart<T> part;
    part.min = static_cast<T>(~lowest);
    part.max = lowest;
    const std::uint64_t digest =
        blocks<size>(span, [&](const char* data, std::int64_t count, auto&) { take_integers<T>(data, count, part); });
    out = Partial{};
    out.finite = span.count;
    out.zero = part.zero;
    out.neg = part.neg;
    out.min_int = stored<T>(part.min);
    out.max_int = stored<T>(part.max);
    out.sum = part.sum;
    out.squares = part.squares;
    out.digest = digest;
}

// Any byte but zero is true, as in NumPy and torch.
void bool_span(const Span& span, Partial& out) {
    std::int64_t zero = 0;
    const std::uint64_t digest = blocks<1>(span, [&](const char* data, std::int64_t count, auto&) {
        std::int32_t found = 0;
        for (std::int64_t k = 0; k < count; ++k) found += data[k] == 0;
        zero += found;
    });
    out = Partial{};
    out.finite = span.count;
    out.zero = zero;
    out.min_int = zero == 0;
    out.max_int = zero != span.count;
    out.sum = out.squares = static_cast<double>(span.count - zero);
    out.digest = digest;
}

#ifdef OPSCOPE_HALVES
constexpr SpanKernel FLOAT16 = half_span<Float16>, BFLOAT16 = half_span<BFloat16>;
#else
constexpr SpanKernel FLOAT16 = float_span<Narrow, Float16>, BFLOAT16 = float_span<Narrow, BFloat16>;
#endif

constexpr KernelTable TABLE = {
    {bool_span, integer_span<std::int8_t>, integer_span<std::uint8_t>, integer_span<std::int16_t>, integer_span<std::uint16_t>,
     integer_span<std::int32_t>, integer_span<std::uint32_t>, integer_span<std::int64_t>, integer_span<std::uint64_t>,
     FLOAT16, BFLOAT16, float_span<Narrow, Float32>, float_span<Wide, Float64>,
     float8_span<Float8E4M3>, float8_span<Float8E5M2>,
     complex_span<8, magnitude64>, complex_span<16, magnitude128>},
    magnitude64,
    magnitude128,
    sample_span<float>,
    sample_span<double>,
};

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// The driver: cuts an array into pieces, hands them to the kernels, merges what they found.
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <thread>
#include <vector>

#include "environment.hpp"
#include "kernel.hpp"
#include "layout.hpp"

namespace opscope {

namespace {

// Pieces are cut by size alone, never by the number of threads: sums are merged in the same order whoever computed them.
constexpr std::int64_t PIECE_BYTES = 32 * BLOCK_BYTES;
constexpr std::int64_t MOST_PIECES = 512;
// What is gathered at once lies on the stack of whichever thread runs the piece.
constexpr std::int64_t TILE_BYTES = 16 * BLOCK_BYTES;
static_assert(TILE_BYTES >= SAMPLE_MOST * 8, "a sample is of one tile");
// Starting a thread costs what reading about this much does.
constexpr std::int64_t BYTES_PER_OWN_THREAD = 1 << 20;

struct Plan {
    std::int64_t per_piece;  // elements
    int pieces;

    Plan(std::int64_t count, std::int64_t item) {
        const std::int64_t bytes = count * item;
        const std::int64_t wanted = (bytes + MOST_PIECES - 1) / MOST_PIECES;
        const std::int64_t piece = std::max(PIECE_BYTES, (wanted + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES);
        per_piece = piece / item;
        pieces = static_cast<int>((bytes + piece - 1) / piece);
    }
};

bool is_integer(DType dtype) { return dtype <= DType::UInt64; }

void merge(Partial& total, const Partial& part, bool integer) {
    if (part.finite > 0) {
        const bool first = total.finite == 0;
        if (integer) {
            total.min_int = first ? part.min_int : std::min(total.min_int, part.min_int);
            total.max_int = first ? part.max_int : std::max(total.max_int, part.max_int);
        } else {
            total.min = first ? part.min : std::min(total.min, part.min);
            total.max = first ? part.max : std::max(total.max, part.max);
        }
    }
    total.finite += part.finite;
    total.nan += part.nan;
    total.pos_inf += part.pos_inf;
    total.neg_inf += part.neg_inf;
    total.zero += part.zero;
    total.neg += part.neg;
    total.near_limit += part.near_limit;
    total.sum += part.sum;
    total.squares += part.squares;
    total.digest += part.digest;
}

// Calls visit(data, first element, count) over the elements first … first + count - 1, a tile at a time where they are scattered.
template <class Visit>
void stretches(const Layout& layout, std::int64_t first, std::int64_t count, const Visit& visit) {
    if (layout.contiguous()) {
        visit(layout.data + first * layout.item, first, count);
        return;
    }
    alignas(64) char tile[TILE_BYTES];
    const std::int64_t per_tile = TILE_BYTES / layout.item;
    for (std::int64_t done = 0; done < count; done += per_tile) {
        const std::int64_t here = std::min(per_tile, count - done);
        layout.gather(first + done, here, tile);
        visit(static_cast<const char*>(tile), first + done, here);
    }
}

class Pass {
public:
    Pass(const ArrayView& array, const Options& options)
        : layout_(array), dtype_(array.dtype), options_(options), kernels_(kernels_of(options.isa)), plan_(layout_.count, layout_.item) {}

    Statistics run() {
        Partial total;
        const SpanKernel kernel = kernels_.span[static_cast<int>(dtype_)];
        over_pieces(total, [&](const char* data, std::int64_t first, std::int64_t count, Partial& part) {
            const Span span{data, count, first * layout_.item / BLOCK_BYTES, options_.digest};
            kernel(span, part);
        });
        Statistics out = finish(total);
        sample(out);
        return out;
    }

private:
    Layout layout_;
    DType dtype_;
    const Options& options_;
    const KernelTable& kernels_;
    Plan plan_;

    template <class Read>
    void one_piece(int piece, const Read& read, Partial& out) const {
        const FloatEnvironment guard;
        const std::int64_t first = piece * plan_.per_piece;
        stretches(layout_, first, std::min(plan_.per_piece, layout_.count - first),
                  [&](const char* data, std::int64_t at, std::int64_t count) {
                      Partial part;
                      read(data, at, count, part);
                      merge(out, part, is_integer(dtype_));
                  });
    }

    template <class Read>
    void over_pieces(Partial& total, const Read& read) const {
        if (plan_.pieces <= 1) {
            if (plan_.pieces == 1) one_piece(0, read, total);
            return;
        }
        std::vector<Partial> parts(static_cast<std::size_t>(plan_.pieces));
        const int tasks = std::max(1, std::min({options_.threads, plan_.pieces, own_limit()}));
        const std::function<void(int)> task = [&](int number) {
            const auto begin = static_cast<std::int64_t>(plan_.pieces) * number / tasks;
            const auto end = static_cast<std::int64_t>(plan_.pieces) * (number + 1) / tasks;
            for (auto piece = begin; piece < end; ++piece) one_piece(static_cast<int>(piece), read, parts[static_cast<std::size_t>(piece)]);
        };
        spread(tasks, task);
        for (const Partial& part : parts) merge(total, part, is_integer(dtype_));
    }

    int own_limit() const {
        if (options_.pool != nullptr) return plan_.pieces;
        return static_cast<int>(std::min<std::int64_t>(layout_.count * layout_.item / BYTES_PER_OWN_THREAD, 256));
    }

    // Threads are started for the one call: a pool kept between calls would be gone in a forked child, and hang there.
    void spread(int tasks, const std::function<void(int)>& task) const {
        if (tasks == 1) return task(0);
        if (options_.pool != nullptr) return (*options_.pool)(tasks, task);
        std::vector<std::thread> threads;
        int started = 1;
        try {
            for (; started < tasks; ++started) threads.emplace_back(task, started);
        } catch (const std::system_error&) {
            // No more threads are to be had: the rest is done here.
        }
        task(0);
        for (int number = started; number < tasks; ++number) task(number);
        for (std::thread& thread : threads) thread.join();
    }

    void sample(Statistics& out) const {
        const bool sampled = layout_.count >= SAMPLE_FEWEST && layout_.count <= SAMPLE_MOST;
        if (!sampled || (dtype_ != DType::Float32 && dtype_ != DType::Float64)) return;
        const FloatEnvironment guard;
        const SampleKernel kernel = dtype_ == DType::Float32 ? kernels_.sample32 : kernels_.sample64;
        stretches(layout_, 0, layout_.count, [&](const char* data, std::int64_t, std::int64_t count) { out.has_sample = kernel(data, count, out.sample); });
    }

    Statistics finish(const Partial& total) const {
        Statistics out;
        out.size = layout_.count;
        out.nan = total.nan;
        out.pos_inf = total.pos_inf;
        out.neg_inf = total.neg_inf;
        out.zero = total.zero;
        out.neg = total.neg;
        out.pos = total.finite - total.zero - total.neg;
        out.near_limit = total.near_limit;
        out.has_digest = options_.digest;
        if (options_.digest) out.digest = mix(total.digest + static_cast<std::uint64_t>(layout_.count * layout_.item) * LENGTH);
        if (total.finite > 0) ranges(total, out);
        return out;
    }

    void ranges(const Partial& total, Statistics& out) const {
        const FloatEnvironment guard;
        out.has_range = true;
        if (is_integer(dtype_)) {
            integers(total, out);
        } else {
            out.min = total.min + 0.0;  // a zero is +0 whatever its sign was
            out.max = total.max + 0.0;
        }
        const double largest = std::max(std::fabs(out.min), std::fabs(out.max));
        const bool wide = dtype_ == DType::Float64 || dtype_ == DType::Complex128;
        if (wide && largest != 0 && !(largest > 0x1p-480 && largest < 0x1p480)) return rescaled(largest, out);
        out.mean = total.sum / static_cast<double>(total.finite);
        out.l2norm = std::sqrt(total.squares);
    }

    void integers(const Partial& total, Statistics& out) const {
        if (dtype_ == DType::UInt64) {
            const auto low = static_cast<std::uint64_t>(total.min_int) ^ (std::uint64_t{1} << 63);
            const auto high = static_cast<std::uint64_t>(total.max_int) ^ (std::uint64_t{1} << 63);
            out.min = static_cast<double>(low);
            out.max = static_cast<double>(high);
            out.has_int = high <= static_cast<std::uint64_t>(INT64_MAX);
            out.min_int = out.has_int ? static_cast<std::int64_t>(low) : 0;
            out.max_int = out.has_int ? static_cast<std::int64_t>(high) : 0;
            return;
        }
        out.has_int = true;
        out.min_int = total.min_int;
        out.max_int = total.max_int;
        out.min = static_cast<double>(total.min_int);
        out.max = static_cast<double>(total.max_int);
    }

    // Squares or sums would leave double's range: a second pass over the elements divided by a power of two. What becomes too small
    // for double on the way is too small to matter beside the largest.
    void rescaled(double largest, Statistics& out) const {
        int exponent = 0;
        std::frexp(largest, &exponent);
        const double half = std::ldexp(1.0, -exponent / 2), rest = std::ldexp(1.0, -exponent - (-exponent / 2));
        Partial total;
        over_pieces(total, [&](const char* data, std::int64_t, std::int64_t count, Partial& part) { scaled_sums(data, count, half, rest, part); });
        out.mean = total.sum / static_cast<double>(total.finite) / half / rest;
        out.l2norm = std::sqrt(total.squares) / half / rest;
    }

    void scaled_sums(const char* data, std::int64_t count, double half, double rest, Partial& part) const {
        double buffer[BLOCK_WORDS];
        for (std::int64_t done = 0; done < count; done += BLOCK_WORDS) {
            const std::int64_t here = std::min(BLOCK_WORDS, count - done);
            if (dtype_ == DType::Complex128) {
                kernels_.magnitude128(data + done * 16, here, buffer);
            } else {
                std::copy_n(data + done * 8, here * 8, reinterpret_cast<char*>(buffer));
            }
            for (std::int64_t i = 0; i < here; ++i) {
                if (!std::isfinite(buffer[i])) continue;
                const double x = buffer[i] * half * rest;
                part.finite += 1;
                part.sum += x;
                part.squares += x * x;
            }
        }
    }
};

}  // namespace

std::int64_t item_size(DType dtype) {
    constexpr std::int64_t SIZES[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 8, 16};
    return SIZES[static_cast<int>(dtype)];
}

Statistics statistics(const ArrayView& array, const Options& options) { return Pass(array, options).run(); }

}  // namespace opscope

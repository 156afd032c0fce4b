// SPDX-License-Identifier: Apache-2.0
// The driver of the pass over two arrays: cuts them into pieces, hands them to the kernels, merges what they found.
#include "pair.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <thread>
#include <vector>

#include "environment.hpp"
#include "kernel.hpp"
#include "layout.hpp"
#include "pair_part.hpp"

namespace opscope {

namespace {

// Pieces are cut by their number of elements alone, so the answer does not depend on the threads.
constexpr std::int64_t PIECE = 1 << 16;
constexpr std::int64_t TILE_BYTES = 1 << 16;  // gathered at once, on the stack of whichever thread runs the piece
constexpr std::int64_t PIECES_PER_THREAD = 8;

struct Moments {
    double count = 0, mean_t = 0, mean_g = 0, spread_t = 0, spread_g = 0;
};

const PairTable& pair_kernels_of(Isa isa) {
    if (isa == Isa::Auto) isa = best_isa();
    (void)kernels_of(isa);  // throws where it cannot run here
#if defined(__x86_64__)
    if (isa == Isa::Avx2) return avx2_pair_kernels();
    if (isa == Isa::Avx512) return avx512_pair_kernels();
#endif
    return plain_pair_kernels();
}

// Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979).
void merge_moments(const PairPart& part, Moments& all) {
    if (part.compared == 0) return;
    const auto n = static_cast<double>(part.compared), sum = all.count + n;
    const double mean_t = part.pivot_t + part.sum_t / n, mean_g = part.pivot_g + part.sum_g / n;
    const double gap_t = mean_t - all.mean_t, gap_g = mean_g - all.mean_g, weight = all.count * n / sum;
    all.spread_t += std::max(0.0, part.spread_t - part.sum_t * part.sum_t / n) + gap_t * gap_t * weight;
    all.spread_g += std::max(0.0, part.spread_g - part.sum_g * part.sum_g / n) + gap_g * gap_g * weight;
    all.mean_t += gap_t * (n / sum);
    all.mean_g += gap_g * (n / sum);
    all.count = sum;
}

void merge(const PairPart& part, PairSums& all, std::int64_t& first_odd) {
    all.compared += part.compared;
    all.differing += part.differing;
    if (all.first_mismatch < 0) all.first_mismatch = part.first;
    if (first_odd < 0) first_odd = part.first_odd;
    if (part.max_abs > all.max_abs) all.max_abs = part.max_abs, all.worst_index = part.worst;
    all.sum_abs += part.sum_abs;
    all.squares += part.squares;
    all.max_rel = std::max(all.max_rel, part.max_rel);
    all.sum_rel += part.sum_rel;
    all.golden_zero_only += part.zero_only;
    all.dot += part.dot;
    all.squares_target += part.squares_t;
    all.squares_golden += part.squares_g;
    all.max_golden = std::max(all.max_golden, part.max_g);
    all.within_1 += part.within_1;
    all.within_5 += part.within_5;
    all.ulp_max = std::max(all.ulp_max, part.ulp);
    for (std::size_t k = 0; k < part.histogram.size(); ++k) all.histogram[k] += part.histogram[k];
    for (std::size_t k = 0; k < part.nonfinite.size(); ++k) all.nonfinite[k] += part.nonfinite[k];
    all.nonfinite_mismatch += part.odd;
    all.beyond += part.beyond;
}

class PairPass {
public:
    PairPass(const ArrayView& target, const ArrayView& golden, const PairOptions& options)
        : target_(target), golden_(golden), options_(options), kernel_(pair_kernels_of(options.isa).span[static_cast<int>(target.dtype)]),
          pieces_((target_.count + PIECE - 1) / PIECE) {}

    PairSums run() {
        std::vector<PairPart> parts(static_cast<std::size_t>(pieces_));
        const auto tasks = static_cast<int>(std::max<std::int64_t>(1, std::min<std::int64_t>(options_.threads, pieces_ / PIECES_PER_THREAD)));
        const auto task = [&](int number) {
            const FloatEnvironment guard;
            for (std::int64_t piece = pieces_ * number / tasks; piece < pieces_ * (number + 1) / tasks; ++piece) {
                one_piece(piece, parts[static_cast<std::size_t>(piece)]);
            }
        };
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
        return merged(parts);
    }

private:
    Layout target_, golden_;
    const PairOptions& options_;
    PairKernel kernel_;
    std::int64_t pieces_;

    void one_piece(std::int64_t piece, PairPart& out) const {
        alignas(64) char tiles[2][TILE_BYTES];
        const std::int64_t first = piece * PIECE, count = std::min(PIECE, target_.count - first);
        const bool scattered = !target_.contiguous() || !golden_.contiguous();
        const std::int64_t step = scattered ? TILE_BYTES / target_.item : count;
        for (std::int64_t done = 0; done < count; done += step) {
            const std::int64_t here = std::min(step, count - done);
            kernel_(span(first + done, here, tiles), out);
        }
    }

    PairSpan span(std::int64_t first, std::int64_t count, char (&tiles)[2][TILE_BYTES]) const {
        const int half = options_.exponent / 2;
        return {elements(target_, first, count, tiles[0]), elements(golden_, first, count, tiles[1]), first, count, options_.absolute,
                options_.relative, std::ldexp(1.0, -half), std::ldexp(1.0, half - options_.exponent)};
    }

    static const char* elements(const Layout& layout, std::int64_t first, std::int64_t count, char* tile) {
        if (layout.contiguous()) return layout.data + first * layout.item;
        layout.gather(first, count, tile);
        return tile;
    }

    PairSums merged(const std::vector<PairPart>& parts) const {
        const FloatEnvironment guard;
        PairSums all;
        Moments moments;
        std::int64_t first_odd = -1;
        all.size = target_.count;
        for (const PairPart& part : parts) {
            merge(part, all, first_odd);
            merge_moments(part, moments);
        }
        if (first_odd >= 0) all.worst_index = first_odd;
        if (all.compared > 0) {
            all.mean_target = moments.mean_t;
            all.mean_golden = moments.mean_g;
            all.variance_target = moments.spread_t / moments.count;
            all.variance_golden = moments.spread_g / moments.count;
        }
        return all;
    }
};

}  // namespace

PairSums pair(const ArrayView& target, const ArrayView& golden, const PairOptions& options) {
    return PairPass(target, golden, options).run();
}

}  // namespace opscope

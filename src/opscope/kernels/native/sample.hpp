// SPDX-License-Identifier: Apache-2.0
// The sample of a small floating array (../reference.py, sample): compiled for each instruction set, which the loops over a block
// make use of by themselves.
#pragma once

#include <cstring>

#include "kernel.hpp"

namespace {

using namespace opscope;

constexpr int SAMPLE_BLOCK = 1024;
constexpr std::int32_t NO_MANTISSA = 1 << 24;

// No function of the standard library: see BlockSums of kernel.hpp.
__attribute__((always_inline)) inline std::int32_t distance(std::int32_t a, std::int32_t b) { return a - b < 0 ? b - a : a - b; }

// What of several elements of one mantissa is chosen: the largest, of two of one magnitude the negative one.
__attribute__((always_inline)) inline std::uint32_t rank_of(std::uint32_t bits) { return bits << 1 | bits >> 31; }

// The mantissas of a block, NO_MANTISSA of what is none of the sample: zeros, denormals, what is not finite or what a mask is filled with.
__attribute__((always_inline)) inline void mantissas(const std::uint32_t* bits, int count, std::int32_t* out) {
    for (int i = 0; i < count; ++i) {
        const auto magnitude = static_cast<std::int32_t>(bits[i] & 0x7fffffffu);
        const bool counts = magnitude >= 0x00800000 && magnitude <= 0x46000000;  // the smallest normal number, 8192
        out[i] = counts ? magnitude & 0x007fffff : NO_MANTISSA;
    }
}

__attribute__((always_inline)) inline void sample_block(const std::uint32_t* bits, int count, std::int32_t* nearest, std::uint32_t* chosen) {
    std::int32_t keys[SAMPLE_BLOCK];
    mantissas(bits, count, keys);
    for (int place = 0; place < SAMPLE; ++place) {
        const std::int32_t wanted = SAMPLE_MANTISSAS[place];
        std::int32_t least = NO_MANTISSA;
        for (int i = 0; i < count; ++i) {
            const std::int32_t here = distance(keys[i], wanted);
            least = here < least ? here : least;
        }
        if (least > nearest[place] || least > 0x007fffff) continue;
        std::uint32_t best = 0;
        for (int i = 0; i < count; ++i) {
            const std::uint32_t here = distance(keys[i], wanted) == least ? ~0u : 0u;
            const std::uint32_t rank = rank_of(bits[i]) & here;
            best = rank > best ? rank : best;
        }
        if (least == nearest[place] && chosen[place] > best) continue;
        nearest[place] = least;
        chosen[place] = best;
    }
}

template <class Element>
bool sample_span(const char* data, std::int64_t count, float* out) {
    std::int32_t nearest[SAMPLE];
    std::uint32_t chosen[SAMPLE] = {};
    for (std::int32_t& one : nearest) one = NO_MANTISSA;
    for (std::int64_t done = 0; done < count; done += SAMPLE_BLOCK) {
        const int here = static_cast<int>(count - done < SAMPLE_BLOCK ? count - done : SAMPLE_BLOCK);
        float values[SAMPLE_BLOCK];
        std::uint32_t bits[SAMPLE_BLOCK];
        Element elements[SAMPLE_BLOCK];
        std::memcpy(elements, data + done * static_cast<std::int64_t>(sizeof(Element)), static_cast<std::size_t>(here) * sizeof(Element));
        for (int i = 0; i < here; ++i) values[i] = static_cast<float>(elements[i]);
        std::memcpy(bits, values, sizeof bits);
        sample_block(bits, here, nearest, chosen);
    }
    if (chosen[0] == 0) return false;
    for (int place = 0; place < SAMPLE; ++place) {
        const std::uint32_t bits = chosen[place] >> 1 | chosen[place] << 31;
        std::memcpy(out + place, &bits, 4);
    }
    return true;
}

}  // namespace

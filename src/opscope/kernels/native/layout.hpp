// SPDX-License-Identifier: Apache-2.0
// An array's memory, read in C order: contiguous stretches as they lie, everything else gathered into a tile.
#pragma once

#include <cstdint>

#include "statistics.hpp"

namespace opscope {

// An array without its redundant dimensions: those of one element are dropped, neighbours that step alike are one.
struct Layout {
    const char* data;
    std::int64_t item;  // bytes of an element
    std::int64_t count;
    int ndim = 0;
    std::int64_t shape[64];
    std::int64_t stride[64];  // in bytes

    explicit Layout(const ArrayView& array);  // throws std::invalid_argument beyond 64 dimensions
    bool contiguous() const { return ndim == 0 || (ndim == 1 && stride[0] == item) || count == 0; }

    // Copies elements first … first + count - 1 of the C order to `out`.
    void gather(std::int64_t first, std::int64_t count, char* out) const;
};

}  // namespace opscope

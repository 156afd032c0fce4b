// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace opscope {

namespace {

// Columns of rows; steps in bytes. Where rows are nearer to each other in memory than columns, squares of 16 elements are copied, so
// that a cache line that was fetched for one row serves the others too.
struct Grid {
    const char* data;
    std::int64_t row_step, column_step, rows, columns;
};

template <int size>
void copy_row(const char* from, std::int64_t step, std::int64_t count, char* to) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * size, from + i * step, size);
}

template <int size>
void copy(const Grid& grid, char* to) {
    const bool across = grid.rows > 1 && std::abs(grid.row_step) < std::abs(grid.column_step);
    const std::int64_t height = across ? 16 : 1, width = across ? 16 : grid.columns;
    for (std::int64_t top = 0; top < grid.rows; top += height) {
        for (std::int64_t left = 0; left < grid.columns; left += width) {
            const std::int64_t bottom = std::min(top + height, grid.rows), count = std::min(width, grid.columns - left);
            for (std::int64_t row = top; row < bottom; ++row) {
                const char* from = grid.data + row * grid.row_step + left * grid.column_step;
                char* out = to + (row * grid.columns + left) * size;
                if (count == 16) copy_row<size>(from, grid.column_step, 16, out);
                else copy_row<size>(from, grid.column_step, count, out);
            }
        }
    }
}

void copy(const Grid& grid, std::int64_t item, char* to) {
    if (grid.column_step == item) {
        const std::int64_t bytes = grid.columns * item;
        for (std::int64_t row = 0; row < grid.rows; ++row) {
            std::memcpy(to + row * bytes, grid.data + row * grid.row_step, static_cast<std::size_t>(bytes));
        }
        return;
    }
    switch (item) {
        case 1: return copy<1>(grid, to);
        case 2: return copy<2>(grid, to);
        case 4: return copy<4>(grid, to);
        case 8: return copy<8>(grid, to);
        default: return copy<16>(grid, to);
    }
}

}  // namespace

Layout::Layout(const ArrayView& array) : data(static_cast<const char*>(array.data)), item(item_size(array.dtype)), count(1) {
    if (array.ndim > 64) throw std::invalid_argument("an array of more than 64 dimensions");
    for (int i = 0; i < array.ndim; ++i) {
        const std::int64_t extent = array.shape[i], step = array.stride[i] * item;
        count *= extent;
        if (extent == 1) continue;
        if (ndim > 0 && stride[ndim - 1] == extent * step) {
            shape[ndim - 1] *= extent;
            stride[ndim - 1] = step;
        } else {
            shape[ndim] = extent;
            stride[ndim++] = step;
        }
    }
}

void Layout::gather(std::int64_t first, std::int64_t wanted, char* out) const {
    std::int64_t index[64];
    const char* at = data;
    for (int i = ndim - 1; i >= 0; --i) {
        index[i] = first % shape[i];
        first /= shape[i];
        at += index[i] * stride[i];
    }
    const int last = ndim - 1;
    while (wanted > 0) {
        const bool whole = last > 0 && index[last] == 0 && wanted >= shape[last];
        const std::int64_t rows = whole ? std::min(wanted / shape[last], shape[last - 1] - index[last - 1]) : 1;
        const std::int64_t columns = std::min(wanted, shape[last] - index[last]);
        copy({at, whole ? stride[last - 1] : 0, stride[last], rows, columns}, item, out);
        out += rows * columns * item;
        wanted -= rows * columns;
        at -= index[last] * stride[last];
        index[last] = 0;
        std::int64_t forward = rows;  // more than one only along the dimension before the last
        for (int i = last - 1; i >= 0; --i) {
            at += forward * stride[i];
            index[i] += forward;
            if (index[i] < shape[i]) break;
            at -= shape[i] * stride[i];
            index[i] = 0;
            forward = 1;
        }
    }
}

}  // namespace opscope

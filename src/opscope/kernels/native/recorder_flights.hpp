// SPDX-License-Identifier: Apache-2.0
// Collectives that were begun and have not arrived (Flight of calls.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "recorder_python.hpp"
#include "recorder_rows.hpp"

namespace opscope {

// What a tensor covers, in bytes; all of its storage where the size of its elements is not known.
inline Extent extent_of(const TensorRow& row) {
    if (!row.item) return {};
    std::int64_t last = 0;
    for (int i = 0; i < row.ndim && i < row.stride_ndim; ++i) {
        if (row.dims.data()[i] == 0) return {0, 0};
        last += (row.dims.data()[i] - 1) * row.dims.data()[row.ndim + i];
    }
    return {row.offset * row.item, (row.offset + last + 1) * row.item};
}

// One output, whose version nobody else has before it has arrived.
struct Landing {
    std::shared_ptr<Storage> storage;
    std::uint64_t key;
    std::shared_ptr<Version> version;
    Ref tensor;
    Extent extent;
};

// A collective whose outputs are being filled; its rows wait until it is known what came.
struct Flight {
    Ref work;  // c10d's Work; null for functional collectives, for which wait_tensor is called
    std::int32_t step = 0;
    bool row = false, futureless = false;
    std::vector<Landing> landings;
    CallRow call;
    std::string args, error;
    std::vector<TensorRow> tensors;
};

}  // namespace opscope

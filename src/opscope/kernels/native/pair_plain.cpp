// SPDX-License-Identifier: Apache-2.0
// The pass over two arrays for what every processor of the architecture runs.
#include "pair_kernel.hpp"

namespace opscope {

const PairTable& plain_pair_kernels() { return PAIR_TABLE; }

}  // namespace opscope

// SPDX-License-Identifier: Apache-2.0
// The pass over two arrays for AVX2 with F16C.
#include "pair_kernel.hpp"

namespace opscope {

const PairTable& avx2_pair_kernels() { return PAIR_TABLE; }

}  // namespace opscope

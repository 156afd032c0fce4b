// SPDX-License-Identifier: Apache-2.0
// The pass over two arrays for AVX-512.
#include "pair_kernel.hpp"

namespace opscope {

const PairTable& avx512_pair_kernels() { return PAIR_TABLE; }

}  // namespace opscope

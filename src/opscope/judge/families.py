# SPDX-License-Identifier: Apache-2.0
"""Kinds of operators by how their results err: which rule of judge.tolerance an operator's family falls under.

Names are those of judge.operators.family: PyTorch's words, MindSpore's, CANN's and GE's types in lower case. What is not named is
found by the parts of its name; what has none of them is "unknown" and is judged most leniently.
"""

from __future__ import annotations

import re
from functools import lru_cache

from opscope.judge import operators

# Correct results of these need not be alike: random numbers, bases and orders that are not unique, contents of fresh memory.
UNJUDGED = {
    "random": "random numbers: alike only where both sides drew the same",
    "basis": "a factorisation or an order that is not unique",
    "memory": "memory that was not written yet",
    "conditioning": "a solution whose error is that of its matrix, which is not known",
}
_UNJUDGED_NAMES = {
    "random": frozenset({
        "normal", "uniform", "random", "bernoulli", "exponential", "log_normal", "cauchy", "geometric", "randn", "rand", "randint",
        "randperm", "rand_like", "randn_like", "randint_like", "multinomial", "poisson", "binomial", "dropout", "native_dropout",
        "alpha_dropout", "feature_dropout", "dropoutdomask", "dropoutgenmask", "dropoutdomaskv3", "dropoutgenmaskv3", "standardnormal",
        "randomuniform", "randomstandardnormal", "truncatednormal", "rrelu_with_noise", "rrelu", "gumbel_softmax",
        "statelessrandomuniform", "dropout2d", "dropout3d", "dropout1d", "randomchoicewithmask", "uniformreal", "uniformint",
        "parameterizedtruncatednormal", "_standard_gamma", "_sample_dirichlet", "standardlaplace", "multinomialwithreplacement",
        "statelessdropoutgenmask", "_fused_dropout", "npu_dropout",
    }),
    "basis": frozenset({
        "svd", "_linalg_svd", "linalg_svd", "linalg_eigh", "_linalg_eigh", "linalg_eig", "linalg_qr", "qr", "eig", "geqrf", "symeig",
        "linalg_svdvals", "svd_lowrank", "pca_lowrank", "lobpcg",
    }),
    "memory": operators.ALLOCATORS,
    "conditioning": frozenset({
        "inverse", "linalg_inv", "linalg_inv_ex", "linalg_solve", "_linalg_solve_ex", "linalg_solve_ex", "linalg_solve_triangular",
        "triangular_solve", "linalg_lstsq", "linalg_pinv", "pinverse", "linalg_cholesky", "linalg_cholesky_ex", "cholesky",
        "cholesky_solve", "cholesky_inverse", "linalg_lu", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "lu_solve",
        "linalg_det", "_linalg_det", "linalg_slogdet", "_linalg_slogdet", "logdet", "det", "linalg_matrix_exp", "matrix_exp",
        "matrixinverse", "linalg_eigvalsh", "linalg_eigvals", "linalg_ldl_factor", "linalg_ldl_solve", "matrix_power",
        "linalg_matrix_power",
    }),
}  # fmt: skip

_ARITHMETIC = frozenset({
    "add", "sub", "rsub", "mul", "div", "sqrt", "rsqrt", "square", "reciprocal", "addcmul", "addcdiv", "lerp", "fmod", "remainder",
    "leaky_relu", "leaky_relu_backward", "hardswish", "hardswish_backward", "hardsigmoid", "hardsigmoid_backward",
    "hardtanh_backward", "prelu", "_prelu_kernel", "_prelu_kernel_backward", "true_divide", "divide", "multiply", "subtract", "axpy",
    "axpyv2", "floor_divide", "floormod", "mod", "hypot", "relu6", "relugrad", "relugradv2", "relu_backward", "scale", "bias",
    "rsqrtgrad", "sqrtgrad", "reciprocalgrad", "leakyrelu", "leakyrelugrad", "squareddifference", "native_dropout_backward",
    "_foreach_add", "_foreach_sub", "_foreach_mul", "_foreach_div", "_foreach_addcmul", "_foreach_addcdiv", "_foreach_lerp",
    "_foreach_sqrt", "_foreach_reciprocal", "_foreach_rsqrt", "xdivy", "dequantize", "quantize", "quantize_per_tensor",
    "quantize_per_channel", "ascendquant", "ascenddequant", "fake_quantize_per_tensor_affine", "max_pool2d_with_indices_backward",
    "evenly_distribute_backward", "value_selecting_reduction_backward", "assignadd", "assignsub", "linspace", "arange", "addv2",
    "_amp_foreach_non_finite_check_and_unscale", "lin_space", "glu", "glu_backward_jvp", "masked_scale", "_masked_scale",
})  # fmt: skip

_ELEMENTARY = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "erfc", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "softplus", "logaddexp", "logaddexp2", "xlogy", "sinc",
    "sigmoid_backward", "tanh_backward", "softsign", "elu", "celu", "selu", "float_power", "angle", "polar", "logit", "erfinv",
    "_foreach_exp", "_foreach_log", "_foreach_pow", "_foreach_tanh", "_foreach_sigmoid", "tanhgrad", "sigmoidgrad", "power", "exponent",
    "i0", "i1", "softplusgrad",
})  # fmt: skip

_COMPOSED = frozenset({
    "gelu", "gelu_backward", "silu", "silu_backward", "mish", "mish_backward", "elu_backward", "softplus_backward", "log_sigmoid",
    "logsigmoid", "log_sigmoid_forward", "log_sigmoid_backward", "softshrink_backward", "lgamma", "digamma", "polygamma", "gelugrad",
    "gelugradv2", "fastgelu", "fast_gelu", "npu_fast_gelu", "quickgelu", "swiglu", "npu_swiglu", "npu_swiglu_backward", "geglu", "swish",
    "swishgrad", "glu_backward", "rotary_mul", "rotarymul", "npu_rotary_mul", "applyrotaryposemb", "npu_apply_rotary_pos_emb",
    "tanhshrink", "logit_backward", "erfinvgrad", "special_erfcx", "logcumsumexp", "mvlgamma", "eluv2", "elugrad",
    "rotarypositionembedding",
})  # fmt: skip

_SUM = frozenset({
    "sum", "mean", "nansum", "nanmean", "cumsum", "cumprod", "prod", "norm", "linalg_vector_norm", "linalg_norm", "linalg_matrix_norm",
    "_foreach_norm", "std", "var", "std_mean", "var_mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "avgpool",
    "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward",
    "avgpoolgrad", "index_add", "scatter_add", "scatter_reduce", "index_reduce", "segment_reduce", "_segment_reduce_backward",
    "embedding_dense_backward", "embedding_backward", "_embedding_bag", "embedding_bag", "index_put", "_index_put_impl",
    "_unsafe_index_put", "unsortedsegmentsum", "scatternd", "scatterndupdate", "scatterelements", "tensorscatteradd",
    "tensorscatterupdate", "reduceall", "squaresumv1", "square_sum", "squaresumall", "l2loss", "lpnorm", "dist", "trace",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d", "grid_sampler_2d", "grid_sampler_3d",
    "_cdist_forward", "cdist", "_euclidean_dist", "pdist", "renorm", "histc", "bincount", "allreduce", "all_reduce",
    "allreduce_coalesced", "reduce_scatter", "_reduce_scatter_base", "reducescatter", "reduce", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "biasaddgrad", "accumulatenv2", "unfold_backward", "col2im", "im2col_backward",
    "gathernd_backward", "embeddingdensegrad", "addn", "sum_to_size", "stdv2", "reducestd", "cumulativelogsumexp", "gridsampler2d",
    "_upsample_bilinear2d_aa",
})  # fmt: skip

_SOFTMAX = frozenset({
    "_softmax", "softmax", "_log_softmax", "log_softmax", "logsumexp", "_softmax_backward_data", "_log_softmax_backward_data", "softmin",
    "softmaxgrad", "logsoftmaxgrad", "softmaxv2", "masked_softmax", "_masked_softmax", "_safe_softmax", "scaledmaskedsoftmax",
    "npu_scaled_masked_softmax", "softmax_backward", "reducelogsumexp", "softmaxgradext", "log_softmax_backward_data",
    "softmax_backward_data",
})  # fmt: skip

_OPTIMIZER = re.compile(
    r"^(apply|sparseapply|fused|_fused_|npu_apply_|foreach)?_?(adam|adamw|sgd|momentum|adagrad|rmsprop|lamb|lars|ftrl|adadelta|adamax|adafactor)"
)
# In this order: the first that is found in a name that no set holds.
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("optimizer", _OPTIMIZER),
    ("attention", re.compile(r"attention|flash_attn|^mha|_sdp")),
    ("loss", re.compile(r"loss|cross_?entropy|kl_?div")),
    ("norm", re.compile(r"(layer|batch|group|instance|rms|local_response)_?norm|^bn|bntraining|bninfer|^lrn|deepnorm")),
    ("softmax", re.compile(r"softmax")),
    ("sum", re.compile(r"upsample|interpolate|resize")),
    ("product", re.compile(r"matmul|conv|gemm|_mm$|^mm|lstm|gru|rnn|einsum|linear|deconv|moe|_ffn|^ffn|correlation")),
    ("transform", re.compile(r"^_?fft|_fft_|stft")),
    ("sum", re.compile(r"reduce(sum|mean|prod)|segment|pool.*(backward|grad)|pooling$|scatter_?add|nansum")),
)  # fmt: skip
_SETS: tuple[tuple[str, frozenset[str]], ...] = (
    ("cast", operators.CASTS),
    ("arithmetic", _ARITHMETIC),
    ("elementary", _ELEMENTARY),
    ("composed", _COMPOSED),
    ("sum", _SUM),
    ("softmax", _SOFTMAX),
    ("product", operators.CONTRACTIONS),
    ("exact", operators.MOVES | operators.PREDICATES),
)
_MORE_EXACT = frozenset({
    "floor", "ceil", "round", "trunc", "sign", "signbit", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "argmax", "argmin",
    "argsort", "one_hot", "nonzero", "searchsorted", "bucketize", "tril", "triu", "zeros", "ones", "full", "zeros_like", "ones_like",
    "full_like", "new_zeros", "new_ones", "new_full", "scalar_tensor", "eye", "fill", "zero", "allgather", "_allgather_base",
    "all_gather", "broadcast", "send", "recv", "alltoall", "alltoall_base", "all_to_all", "barrier", "gather", "nan_to_num", "copysign",
    "heaviside", "max_pool2d", "maxpool", "max_pool3d_with_indices", "max_pool1d", "adaptive_max_pool2d", "frac", "isin", "count_nonzero",
    "stop_gradient", "depend", "load", "updatestate", "assign", "data", "constant", "const", "parameter", "netoutput", "reluv2",
    "argmaxv2", "argmaxd", "tiled", "tile", "padd", "padv3", "stridedslice", "gatherv2", "onehot", "onehotd", "range", "zeroslike",
    "oneslike", "meshgrid", "tril_indices", "triu_indices", "upsample_nearest2d", "upsample_nearest1d", "upsample_nearest3d",
    "channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "softshrink", "hardshrink", "threshold", "logical_and", "logical_or",
    "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor", "unsqueeze", "masked_scatter_backward", "where",
    "allgather_into_tensor_coalesced", "all_gather_into_tensor", "wait", "wait_tensor", "identityn", "reshaped", "squeezed", "splitd",
    "threshold_backward", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "split_with_sizes_copy", "split", "splitv", "splitvd", "pack", "unpack", "concatv2", "concatv2d",
})  # fmt: skip


@lru_cache(maxsize=8192)
def kind_of(name: str) -> str:
    """The rule an operator's family falls under: a key of judge.tolerance's rules."""
    if unjudged_kind(name):
        return "unjudged"
    for kind, names in _SETS:
        if name in names:
            return kind
    if name in _MORE_EXACT:
        return "exact"
    lowered = name.lower()
    return next((kind for kind, part in _PARTS if part.search(lowered)), "unknown")


@lru_cache(maxsize=8192)
def unjudged_kind(name: str) -> str:
    """Why results of this family need not be alike: a key of UNJUDGED, or an empty text."""
    return next((kind for kind, names in _UNJUDGED_NAMES.items() if name in names), "")

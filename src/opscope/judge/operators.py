# SPDX-License-Identifier: Apache-2.0
"""What an operator does to values, known by its name alone, whatever world it comes from.

family() reduces every spelling of an operator ("aten::log_.default", "torch.Tensor.log_", "Log", "LogV2") to one word;
the sets below hold such words. Sources: PyTorch's native_functions.yaml, MindSpore's and CANN's operator lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_CAMEL = re.compile(r"^[A-Z][A-Za-z0-9]*$")
_VERSION = re.compile(r"(V\d+D?|Ext\d?)$")


@lru_cache(maxsize=8192)
def family(op: str) -> str:
    """The operator's bare name: no namespace, no overload, no in-place underscore, lower case for CamelCase types."""
    rest = op.rpartition("::")[2]
    bare = rest.partition(".")[0] if "::" in op else rest.rpartition("/")[2].rpartition(".")[2]
    if _CAMEL.match(bare):
        bare = _VERSION.sub("", bare).lower()
        bare = _SPELLINGS.get(bare, bare)
    if bare.endswith("_") and not bare.startswith("__"):
        bare = bare[:-1]
    return bare


def namespace(op: str) -> str:
    """What stands before "::", or an empty text."""
    return op.partition("::")[0] if "::" in op else ""


def in_place(op: str) -> bool:
    """Whether the operator writes to its first argument by PyTorch's trailing underscore."""
    bare = op.rpartition("::")[2].partition(".")[0] if "::" in op else op.rpartition(".")[2]
    return bare.endswith("_") and not bare.endswith("__")


# Types of MindSpore and CANN whose lower-case form differs from PyTorch's word.
_SPELLINGS = {
    "realdiv": "div", "divnonan": "div", "truediv": "div", "mult": "mul", "subtract": "sub", "adds": "add", "muls": "mul", "addn": "add",
    "inv": "reciprocal", "batchmatmul": "bmm", "matmul": "mm", "dense": "linear", "conv2dbackpropinput": "convolution_backward",
    "conv2dbackpropfilter": "convolution_backward", "softmax": "_softmax", "logsoftmax": "_log_softmax", "reducesum": "sum",
    "reducesumd": "sum", "reducemean": "mean", "reducemeand": "mean", "reducemax": "amax", "reducemin": "amin", "reduceprod": "prod",
    "fills": "fill", "maskedfill": "masked_fill", "select": "where", "selectext": "where", "concat": "cat", "concatd": "cat",
    "layernorm": "native_layer_norm", "batchnorm": "native_batch_norm", "biasadd": "add", "transposed": "transpose", "tensoradd": "add",
    "notequal": "ne", "equal": "eq", "greater": "gt", "greaterequal": "ge", "less": "lt", "lessequal": "le", "isfinite": "isfinite",
    "gatherd": "gather", "expanddims": "unsqueeze", "broadcastto": "expand", "stridedslice": "slice", "stridedsliced": "slice",
    "nllloss": "nll_loss", "fusedmuladd": "addcmul", "nantonum": "nan_to_num", "tensormove": "clone", "transdata": "clone",
}  # fmt: skip

# Outputs hold what the memory held before.
ALLOCATORS = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "empty_quantized", "resize",
    "_empty_affine_quantized", "_empty_per_channel_affine_quantized",
})  # fmt: skip

# Outputs that are handed to the backward kernel alone: padded, or in part never written (the recurrence of a short sequence).
SCRATCH = {
    "_ctc_loss": frozenset({"1"}), "_cudnn_ctc_loss": frozenset({"1"}), "_scaled_dot_product_efficient_attention": frozenset({"1"}),
    "_efficient_attention_forward": frozenset({"1"}),
}  # fmt: skip

# Values come in from outside of the recorded program: shared memory of a worker, a mapped file.
BRINGS = frozenset({"set", "from_file"})

# The same elements, or some of them, under another shape.
VIEWS = frozenset({
    "t", "view", "_unsafe_view", "reshape", "_reshape_alias", "permute", "transpose", "detach", "alias", "expand", "select", "slice",
    "split", "split_with_sizes", "unsafe_split", "unsafe_chunk", "chunk", "unbind", "unsqueeze", "squeeze", "as_strided", "diagonal",
    "unfold",
    "view_as_real", "view_as_complex", "narrow", "real", "imag", "swapaxes", "movedim", "flatten", "unflatten", "expand_as", "view_as",
    "lift",
    "lift_fresh", "lift_fresh_copy", "_conj", "values", "_values", "tensor_split", "data", "getitem", "__getitem__", "requires_grad",
    "load",
    "identity",
})  # fmt: skip

# Every element of an output is an element of an input, unchanged (or a scalar argument); nothing is computed.
MOVES = VIEWS | frozenset({
    "clone", "contiguous", "copy", "_to_copy", "to", "cast", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "index_select",
    "index", "_unsafe_index", "gather", "take", "take_along_dim", "flip", "roll", "repeat", "tile", "repeat_interleave",
    "constant_pad_nd",
    "pad", "masked_select", "masked_scatter", "masked_fill", "where", "tril", "triu", "diag", "diag_embed", "diagonal_scatter", "scatter",
    "index_put", "_unsafe_index_put", "_index_put_impl", "slice_scatter", "select_scatter", "index_copy", "index_fill", "_foreach_copy",
    "embedding", "pixel_shuffle", "pixel_unshuffle", "topk", "sort", "max", "min", "amax", "amin", "aminmax", "median", "kthvalue",
    "mode",
    "maximum", "minimum", "fmax", "fmin", "cummax", "cummin", "max_pool2d_with_indices", "relu", "abs", "neg", "dropout",
    "_pin_memory", "pin_memory", "_local_scalar_dense", "item", "wait_tensor", "rot90", "channel_shuffle", "unique", "_unique2",
    "fill", "fill_diagonal", "slice_backward", "select_backward", "_foreach_neg", "_foreach_abs", "_foreach_maximum", "_foreach_max",
})  # fmt: skip

# Whoever runs these on a value that is not finite does so knowingly, or only chooses among elements.
GUARDS = frozenset({
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "nan_to_num", "where", "masked_fill", "masked_select", "nansum",
    "nanmean",
    "nanmedian", "nanquantile", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "equal",
    "allclose", "isclose", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "minimum", "maximum", "fmin", "fmax", "min", "max",
    "amin",
    "amax", "aminmax", "argmax", "argmin", "argsort", "topk", "sort", "kthvalue", "median", "mode", "cummax", "cummin", "sign", "signbit",
    "nonzero", "count_nonzero", "any", "all", "is_nonzero", "searchsorted", "bucketize", "_amp_foreach_non_finite_check_and_unscale",
    "index", "index_put", "scatter", "is_same_size", "unique", "_unique2", "copysign", "heaviside", "bincount", "histc", "isin",
    "_foreach_clamp_min", "_foreach_clamp_max", "_foreach_maximum", "_foreach_minimum", "floatstatus", "npu_get_float_status",
    "_assert_async", "_assert_scalar",
})  # fmt: skip

# A constant in the place of elements that are chosen by where they lie, not by what they are.
FILLS = frozenset({"index_fill", "fill_diagonal", "masked_scatter"})

# Asking what a value is: the answer is not what became of it.
PREDICATES = frozenset({
    "isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and",
    "logical_or", "logical_xor", "equal", "allclose", "isclose", "any", "all", "is_nonzero", "signbit",
    "_amp_foreach_non_finite_check_and_unscale", "_assert_async",
})  # fmt: skip

# The value leaves the tensors for the program's own variables.
LEAVES = frozenset({"_local_scalar_dense", "item"})

# Reading by these says nothing: the value leaves the tensors, or only its shape is read.
SILENT = VIEWS | frozenset({
    "_local_scalar_dense", "item", "is_nonzero", "equal", "record_stream", "ones_like", "zeros_like", "full_like", "rand_like",
    "randn_like",
    "randint_like", "empty_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "sym_size", "size", "stride",
    "_record_function_enter_new", "_record_function_exit", "_has_same_storage_numel", "is_same_size", "_assert_tensor_metadata",
    "type_as",
    "zero", "detach", "_version", "_foreach_zero", "numel", "shape", "bernoulli", "normal", "uniform", "random",
})  # fmt: skip

# A scalar argument can become an element of the output as it stands, whatever it is.
PLACES = frozenset({
    "fill", "fills", "full", "full_like", "new_full", "masked_fill", "where", "scalar_tensor", "index_fill", "fill_diagonal",
    "constant_pad_nd", "pad", "padv3", "scatter", "lift_fresh", "lift_fresh_copy", "clamp", "clamp_min", "clamp_max", "clip",
    "nan_to_num",
    "hardtanh", "threshold", "add", "sub", "rsub", "index_put", "maximum", "minimum", "fmin", "fmax", "const", "constant",
    "_foreach_add", "_foreach_sub",
    "_foreach_clamp_min", "_foreach_clamp_max", "tensor", "as_tensor", "sub_scalar", "slice_scatter", "scalartotensor", "upper_tri",
    "triu",
    "tril", "arange", "linspace", "empty", "value",
})  # fmt: skip

# An infinite scalar is the order of a norm, not a value.
ORDERS = frozenset({
    "linalg_vector_norm", "linalg_norm", "linalg_matrix_norm", "norm", "_foreach_norm", "renorm", "_cdist_forward", "_cdist_backward",
    "_pdist_forward", "_pdist_backward", "cdist", "pdist",
})  # fmt: skip

# Infinity of one sign in, infinity of the other sign or the same out, and nothing overflowed.
FLIPS = frozenset({"neg", "_neg_view", "rsub", "sub", "mul", "div", "abs", "square", "pow", "negative", "_foreach_neg", "_foreach_abs"})

# A sum of products that is rounded or overflows while it is accumulated.
CONTRACTIONS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "mv", "addmv", "dot", "vdot", "inner", "linear", "einsum", "tensordot",
    "bilinear",
    "_trilinear", "linear_backward", "mkldnn_linear", "_addmm_activation", "_scaled_mm", "_int_mm", "_grouped_mm", "grouped_matmul",
    "convolution", "_convolution", "convolution_overrideable", "convolution_backward", "convolution_backward_overrideable",
    "cudnn_convolution", "miopen_convolution", "mkldnn_convolution", "mps_convolution", "thnn_conv2d", "_slow_conv2d_forward",
    "_slow_conv2d_backward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_transpose2d", "slow_conv_transpose3d", "_conv_depthwise2d",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_depthwise2d", "conv_depthwise3d",
    "mkldnn_rnn_layer", "matmulv2", "gemm", "depthwiseconv2d", "depthwiseconv2dnative", "fullyconnection", "fullconnection",
    "npu_linear", "conv2dtranspose", "deconvolution", "conv3dbackpropinput", "conv3dbackpropfilter", "mkldnn_rnn_layer_backward",
})  # fmt: skip

# One element type in, another out.
CASTS = frozenset(
    {"_to_copy", "to", "copy", "cast", "type", "half", "float", "bfloat16", "npu_dtype_cast", "_npu_dtype_cast", "astype", "_foreach_copy"}
)

# Every output element depends on the input elements at its own place only.
ELEMENTWISE = frozenset({
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt",
    "square", "pow",
    "reciprocal", "sin", "cos", "tan", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu", "celu", "selu", "leaky_relu", "erf",
    "erfinv",
    "addcmul", "addcdiv", "lerp", "floor", "ceil", "round", "trunc", "fmod", "remainder", "atan2", "acos", "asin", "atan", "cosh", "sinh",
    "logit", "xlogy", "hypot", "logaddexp", "_to_copy", "to", "cast", "copy", "relu", "clamp", "dropout", "native_dropout", "mish",
    "hardswish",
})  # fmt: skip


@lru_cache(maxsize=8192)
def removes(op: str, *, masked: bool) -> bool:
    """Whether a call leaves out what is not finite on purpose, bounds it or puts something else there; masked: it reads a mask of bools."""
    name = family(op)
    return name in FILLS or (name in GUARDS and (masked or name in PLACES or name.startswith("nan")))


_LOSS = re.compile(r"loss|cross_?entropy|kl_div|crossentropy|kldiv")
_LOSS_BACKWARD = re.compile(r"backward|grad|_bw")

# Arguments whose previous content cannot show in the result, by family: the first component of their slots.
_OVERWRITTEN = {
    "copy": "0", "fill": "0", "zero": "0", "normal": "0", "uniform": "0", "random": "0", "bernoulli": "0", "exponential": "0",
    "log_normal": "0", "cauchy": "0", "geometric": "0", "_foreach_copy": "0", "_foreach_zero": "0", "set": "0",
}  # fmt: skip
_OVERWRITTEN_COLLECTIVE = {
    "allgather": "0", "_allgather_base": "0", "allgather_into_tensor_coalesced": "0", "allgather_coalesced": "0", "reduce_scatter": "0",
    "_reduce_scatter_base": "0", "reduce_scatter_tensor_coalesced": "0", "recv": "0", "recv_any_source": "0", "gather": "0",
    "scatter": "0",
    "alltoall": "0", "alltoall_base": "0",
}  # fmt: skip


@lru_cache(maxsize=8192)
def is_collective(op: str, phase: str | None = None) -> bool:
    """Whether the call exchanges values with other ranks."""
    space = namespace(op)
    return phase == "communication" or "c10d" in space or op.startswith(("torch.distributed", "Distributed."))


@lru_cache(maxsize=8192)
def is_loss(op: str) -> bool:
    """Whether the operator computes a loss by its name (nll_loss_forward, SoftmaxCrossEntropyWithLogits), not a gradient of one."""
    name = family(op).lower()
    return _LOSS.search(name) is not None and _LOSS_BACKWARD.search(name) is None


HANDS_ON = frozenset({"wait_tensor", "_wrap_tensor_autograd"})  # give what a functional collective began as their result


@lru_cache(maxsize=65536)
def is_overwritten(op: str, slot: str) -> bool:
    """Whether what this input held before the call cannot show in the result: out= arguments, destinations of copy_ and fill_."""
    if slot == "kwargs.out" or slot.startswith("kwargs.out."):
        return True
    head = slot.partition(".")[0]
    if is_collective(op):
        return _OVERWRITTEN_COLLECTIVE.get(family(op)) == head
    return in_place(op) and _OVERWRITTEN.get(family(op)) == head


@lru_cache(maxsize=8192)
def is_per_element(op: str) -> bool:
    """Whether the operator runs over lists of tensors, the i-th result depending on the i-th of each list only."""
    name = family(op)
    return name.startswith(("_foreach_", "_fused_")) or name == "_amp_foreach_non_finite_check_and_unscale"


@lru_cache(maxsize=65536)
def element_of(slot: str) -> int | None:
    """Position in its list of a slot of an operator over lists ("1.3" -> 3); None for an argument all share."""
    head, dot, last = slot.rpartition(".")
    if not dot or head == "kwargs" or not last.isdigit():
        return None
    return int(last)


def is_workspace(op: str, dtype: str) -> bool:
    """Whether a tensor of a call is a library's own scratch memory, which is handed to the backward kernel and means nothing else."""
    return dtype == "uint8" and any(word in op for word in ("rnn", "cudnn", "miopen", "mkldnn"))


def any_of(op: str, names: Iterable[str]) -> bool:
    """Whether the operator's family is one of these words."""
    return family(op) in names

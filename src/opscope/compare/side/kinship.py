# SPDX-License-Identifier: Apache-2.0
"""Operators of different frameworks that compute the same thing, under one word each: for comparisons between frameworks only.

judge.operators.family tells spellings of one operator; kin() goes further and calls aten::addmm, MatMul and Dense one thing. What
the words hold: PyTorch's native_functions.yaml, MindSpore's ops.operations, the operator lists of CANN (GE types) and TensorFlow.
"""

from __future__ import annotations

import re
from functools import lru_cache

from opscope.operators.catalogue import family, words_with

_TABLE = {
    "convolution": "conv1d conv2d conv2dd conv3d conv3dd convolution _convolution depthwiseconv2d depthwiseconv2dd depthwiseconv2dnative "
    "depthwiseconv2dnatived mkldnn_convolution cudnn_convolution miopen_convolution thnn_conv2d _slow_conv2d_forward slow_conv3d "
    "_conv_depthwise2d conv_depthwise2d npu_conv2d convolution_overrideable conv2dext",
    "conv_transpose2d": "conv2dtranspose conv2dtransposed deconvolution conv_transpose1d conv_transpose2d conv_transpose3d",
    "convolution_backward": "convolution_backward conv2dbackpropinput conv2dbackpropinputd conv2dbackpropfilter conv2dbackpropfilterd "
    "conv3dbackpropinput conv3dbackpropinputd conv3dbackpropfilter conv3dbackpropfilterd depthwiseconv2dnativebackpropinput "
    "depthwiseconv2dnativebackpropfilter convolution_backward_overrideable _slow_conv2d_backward convolutiongrad",
    "matmul": "mm addmm bmm baddbmm addbmm matmul matmuld linear dense batchmatmul batchmatmuld batchmatmulext matmulext gemm mv addmv "
    "fullyconnection fullconnection npu_linear mkldnn_linear npu_bmmv2 innerproduct inner_product _addmm_activation",
    "max_pool2d": "maxpool maxpoold maxpool2d maxpool3d maxpoolwithargmax max_pool2d max_pool1d max_pool3d max_pool2d_with_indices "
    "max_pool3d_with_indices mkldnn_max_pool2d max_pool2d_with_mask_ext maxpoolext",
    "max_pool2d_backward": "maxpoolgrad maxpoolgradd maxpoolgradwithargmax max_pool2d_with_indices_backward "
    "max_pool3d_with_indices_backward maxpool3dgrad",
    "avg_pool2d": "avgpool avgpoold avg_pool1d avg_pool2d avg_pool3d avgpool2d avgpool3d",
    "avg_pool2d_backward": "avgpoolgrad avgpoolgradd avg_pool2d_backward avg_pool3d_backward avgpool2dgrad",
    "_adaptive_avg_pool2d": "adaptiveavgpool2d adaptive_avg_pool2d _adaptive_avg_pool2d adaptiveavgpool2dext",
    "relu": "relu reluext", "relu6": "relu6 hardtanh",
    "threshold_backward": "relugrad relu_grad threshold_backward relu_backward",
    "gelu": "gelu fastgelu geluext", "gelu_backward": "gelugrad gelu_backward fastgelugrad gelugradext",
    "silu": "silu swish", "silu_backward": "silugrad silu_backward swishgrad",
    "sigmoid": "sigmoid", "sigmoid_backward": "sigmoidgrad sigmoid_backward",
    "tanh": "tanh", "tanh_backward": "tanhgrad tanh_backward",
    "leaky_relu": "leakyrelu leaky_relu", "elu": "elu", "hardswish": "hswish hardswish", "softplus": "softplus", "erf": "erf",
    "_softmax": "softmax _softmax softmaxd softmaxext", "_softmax_backward_data": "softmaxgrad softmaxbackward _softmax_backward_data",
    "_log_softmax": "logsoftmax log_softmax _log_softmax logsoftmaxext",
    "_log_softmax_backward_data": "logsoftmaxgrad _log_softmax_backward_data",
    "native_layer_norm": "layernorm native_layer_norm layer_norm layernormext",
    "native_layer_norm_backward": "layernormgrad layernormgradext native_layer_norm_backward layernormxbackprop",
    "native_batch_norm": "batchnorm batchnormext batch_norm native_batch_norm cudnn_batch_norm fusedbatchnorm fusedbatchnormex "
    "bntrainingupdate bninfer bninferenced _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update",
    "native_batch_norm_backward": "batchnormgrad batchnormgradext native_batch_norm_backward fusedbatchnormgrad fusedbatchnormgradex "
    "bntrainingupdategrad _batch_norm_backward",
    "native_group_norm": "groupnorm native_group_norm group_norm", "rms_norm": "rmsnorm rms_norm npu_rms_norm",
    "embedding": "gather gatherd embedding embeddinglookup gather_nd gathernd index_select indexselect",
    "embedding_dense_backward": "embedding_dense_backward embeddingdensebackward unsortedsegmentsum embeddinggrad",
    "mean": "mean reducemean reducemeand meanext", "sum": "sum reducesum reducesumd biasaddgrad sumext reduce_sum",
    "amax": "amax reducemax reducemaxd max maximumreduce", "amin": "amin reducemin reducemind",
    "argmax": "argmax argmaxd argmaxwithvalue argmaxext", "permute": "permute transpose transposed transpose_d swapaxes swapdims",
    "eq": "eq equal", "bilinear": "bilinear bidense",
    "add": "add addd addext biasadd biasaddd addn tensoradd inplaceadd inplaceaddext addv2", "sub": "sub subd subext rsub",
    "mul": "mul muld muls multiply", "div": "div divd realdiv realdivd divs truedivide divmod",
    "pow": "pow powd powtensorscalar square", "sqrt": "sqrt", "rsqrt": "rsqrt", "exp": "exp", "log": "log", "neg": "neg",
    "cat": "cat concat concatd concatv2 concatenate", "stack": "stack pack packd", "slice": "slice stridedslice stridedsliced sliced",
    "split": "split splitd splitv splitwithsize split_with_sizes", "_to_copy": "cast _to_copy to type astype",
    "dropout": "dropout dropoutdomask native_dropout dropoutext", "native_dropout_backward": "dropoutgrad native_dropout_backward",
    "where": "where select selectv2 selectext", "masked_fill": "maskedfill masked_fill", "clamp": "clamp clipbyvalue clip clampscalar",
    "nll_loss_forward": "nllloss nll_loss nll_loss_forward nll_loss2d_forward", "mse_loss": "mseloss mse_loss mselossext",
    "nll_loss_backward": "nlllossgrad nll_loss_backward nll_loss2d_backward", "mse_loss_backward": "mselossgrad mse_loss_backward",
    "cross_entropy_loss": "sparsesoftmaxcrossentropywithlogits softmaxcrossentropywithlogits cross_entropy cross_entropy_loss",
    "binary_cross_entropy": "binarycrossentropy binary_cross_entropy", "smooth_l1_loss": "smoothl1loss smooth_l1_loss",
    "binary_cross_entropy_with_logits": "bcewithlogitsloss sigmoidcrossentropywithlogits binary_cross_entropy_with_logits",
    "pad": "pad padd padv3 constant_pad_nd", "expand": "expand broadcastto broadcasttod tile tiled repeat",
    "scaled_dot_product_attention": "flashattentionscore npu_fusion_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention scaled_dot_product_attention promptflashattention",
}  # fmt: skip
_KIN = {name: word for word, names in _TABLE.items() for name in names.split()}
_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_TORCH = re.compile(r"\w+::|(torch|Functional|Tensor|Torch|NPU|Aten)\.")

# Nothing is computed, and what is read bears the version of what was viewed, or values that nobody wrote.
DROPPED = words_with("allocates") | frozenset({
    "t", "detach", "alias", "lift", "lift_fresh", "lift_fresh_copy", "_local_scalar_dense", "item", "zeros", "ones", "zeros_like",
    "ones_like", "zeroslike", "oneslike", "full", "full_like", "fill", "scalar_tensor", "updatestate", "is_nonzero", "record_stream",
    "memset", "const", "constant", "data", "new_zeros", "new_ones",
})  # fmt: skip
# The output is the input, perhaps shaped otherwise; who reads it is fed by whoever made the input.
HANDED_ON = frozenset({
    "view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "flattengrad", "unflatten", "squeeze", "unsqueeze", "expanddims",
    "identity", "load", "depend", "tensormove", "clone", "contiguous", "transdata", "view_as", "maketuple", "tuplegetitem",
    "reshaped", "squeezed", "unsqueezed", "stopgradient", "viewcopy", "alias_copy",
})  # fmt: skip
# Outputs after the first are by-products: indices, masks, statistics, workspaces.
ONE_RESULT = frozenset({
    "max_pool2d", "native_layer_norm", "native_batch_norm", "dropout", "native_group_norm", "rms_norm", "nll_loss_forward",
    "scaled_dot_product_attention", "cross_entropy_loss",
})  # fmt: skip
# Building blocks of which frameworks compose other operators: the word alone says nothing of what a call is for.
GENERIC = frozenset({
    "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "pow", "sum", "mean", "amax", "amin", "expand", "permute", "eq",
    "ne", "masked_fill", "where", "cat", "stack", "slice", "split", "_to_copy", "copy", "embedding", "reciprocal", "abs", "erf", "clamp",
    "select",
    "maximum", "minimum", "gt", "ge", "lt", "le", "sign", "logical_and", "logical_not", "pad", "one_hot", "onehot", "gather", "scatter",
})  # fmt: skip
BIASED = frozenset({"convolution", "matmul", "conv_transpose2d"})  # may carry a bias, or leave it to an addition behind


@lru_cache(maxsize=8192)
def kin(op: str) -> str:
    """One word for what an operator of any framework computes; its family where it has no kin."""
    name = family(op)
    if op.startswith("BiasAddGrad"):
        return "sum"
    return _KIN.get(name.lower(), name)


@lru_cache(maxsize=8192)
def world(op: str) -> str:
    """Whose spelling an operator has: "torch", "graph" (MindSpore, CANN, TensorFlow), or "" for none of them."""
    if _TORCH.match(op):
        return "torch"
    return "graph" if _CAMEL.fullmatch(op) else ""

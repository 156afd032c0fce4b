# SPDX-License-Identifier: Apache-2.0
"""What the spelling of an operator tells by itself: whose it is, its bare word, its overload,
whether it works in place.
"""

from __future__ import annotations

import re

DISPATCHER, API, GRAPH, COLLECTIVE = "dispatcher", "api", "graph", "collective"
ONNX, JAX, TENSORFLOW = "onnx", "jax", "tf"  # worlds and their namespaces
NAMESPACED = frozenset({ONNX, JAX, TENSORFLOW})
COMPILED = "compiled::"  # before the name of a graph of torch.compile

# Namespaces of torch itself and of torch_npu, whose operators nobody but the shipped data tells of.
OWN = frozenset(
    {
        "aten",
        "prim",
        "prims",
        "quantized",
        "_quantized",
        "quantization",
        "sparse",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "onednn",
        "static_runtime",
        "inductor",
        "inductor_prims",
        "debugprims",
        "rngprims",
        "profiler",
        "export",
        "symm_mem",
        "c10d",
        "_c10d_functional",
        "_c10d_functional_autograd",
        "_dtensor",
        "_native",
        "npu",
        "higher_order",
        "compiled",
    }
)

_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_VERSION = re.compile(r"(V\d+D?|Ext\d?)$")


def world_of(op: str) -> str:
    """Whose spelling it is: torch's dispatcher, an API's (torch.cat, Tensor.add_), a graph's
    (MatMul), ONNX's (onnx::MatMul), JAX's (jax::dot_general), TensorFlow's (tf::MatMul); "" where
    it does not tell.

    Calls of torch.distributed are a world of their own: their `gather` is not aten's.
    """
    if "c10d" in namespace(op) or op.startswith(("torch.distributed", "Distributed.")):
        return COLLECTIVE
    if namespace(op) in NAMESPACED:
        return namespace(op)
    if _CAMEL.fullmatch(_last(op)):
        return GRAPH
    return DISPATCHER if "::" in op else API if "." in op else ""


def word_of(op: str) -> str:
    """The bare word: no namespace, no overload, no in-place underscore; types of graphs in lower
    case and without their version.
    """
    word = _last(op)
    if _CAMEL.fullmatch(word):
        word = _VERSION.sub("", word).lower()
    return word[:-1] if word.endswith("_") and not word.startswith("__") else word


def overload_of(op: str) -> str:
    """What stands behind the dot of a name of torch's dispatcher ("self" of aten::where.self), or
    an empty text.
    """
    return op.rpartition("::")[2].partition(".")[2] if "::" in op else ""


def namespace(op: str) -> str:
    """What stands before "::", or an empty text."""
    return op.partition("::")[0] if "::" in op else ""


def in_place(op: str) -> bool:
    """Whether the operator writes to its first argument by PyTorch's trailing underscore."""
    bare = op.rpartition("::")[2].partition(".")[0] if "::" in op else op.rpartition(".")[2]
    return bare.endswith("_") and not bare.endswith("__")


def _last(op: str) -> str:
    rest = op.rpartition("::")[2]
    return rest.partition(".")[0] if "::" in op else rest.rpartition("/")[2].rpartition(".")[2]

# SPDX-License-Identifier: Apache-2.0
"""What the nets of jax_nets.py and jax_torch.py begin with and are given: the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS, WIDTH, WORDS, LENGTH, ROWS, CLASSES = 3, 16, 29, 6, 5, 4


def _drawn(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def _norm(rng: np.random.Generator, size: int) -> dict[str, Any]:
    scale, bias = 1 + 0.1 * rng.normal(size=size), 0.1 * rng.normal(size=size)
    return {"scale": scale.astype(np.float32), "bias": bias.astype(np.float32)}


def _dense(rng: np.random.Generator, given: int, made: int) -> dict[str, Any]:
    return {"kernel": _drawn(rng, given, made), "bias": 0.1 * _drawn(rng, made)}


def _mlp(rng: np.random.Generator) -> dict[str, Any]:
    sizes = (7, WIDTH, WIDTH, CLASSES)
    return {f"layer{i}": _dense(rng, *sizes[i : i + 2]) for i in range(3)}


def _block(rng: np.random.Generator) -> dict[str, Any]:
    dense = {name: _dense(rng, WIDTH, WIDTH) for name in ("query", "key", "value", "out")}
    dense |= {"up": _dense(rng, WIDTH, 4 * WIDTH), "down": _dense(rng, 4 * WIDTH, WIDTH)}
    return {**dense, "before": _norm(rng, WIDTH), "after": _norm(rng, WIDTH)}


def _gpt(rng: np.random.Generator) -> dict[str, Any]:
    blocks = {f"block{i}": _block(rng) for i in range(2)}
    tables = {"words": _drawn(rng, WORDS, WIDTH), "places": _drawn(rng, LENGTH, WIDTH)}
    return {**tables, **blocks, "last": _norm(rng, WIDTH), "head": _dense(rng, WIDTH, WORDS)}


def _conv(rng: np.random.Generator) -> dict[str, Any]:
    kernels = {
        f"conv{i}": {"kernel": 0.3 * rng.normal(size=(3, 3, given, made)).astype(np.float32)}
        for i, (given, made) in enumerate(((3, 8), (8, WIDTH)))
    }
    norms = {"norm0": _norm(rng, 8), "norm1": _norm(rng, WIDTH)}
    return {**kernels, **norms, "head": _dense(rng, WIDTH, CLASSES)}


def _lstm(rng: np.random.Generator) -> dict[str, Any]:
    cell = {"given": _drawn(rng, WIDTH, 4 * WIDTH), "held": _drawn(rng, WIDTH, 4 * WIDTH)}
    cell["bias"] = 0.1 * _drawn(rng, 4 * WIDTH)
    words = _drawn(rng, WORDS, WIDTH)
    return {"words": words, "cell": cell, "head": _dense(rng, WIDTH, CLASSES)}


NETS = {"mlp": _mlp, "gpt": _gpt, "conv": _conv, "lstm": _lstm}


def weights(net: str) -> dict[str, Any]:
    """The parameters that a net begins with: kernels as JAX has them, (in, out)."""
    return NETS[net](np.random.default_rng(7))


def batches(net: str) -> list[tuple[Any, Any]]:
    """What a net is given in each step, and the labels."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(STEPS):
        if net == "mlp":
            given = rng.normal(size=(ROWS, 7)).astype(np.float32)
        elif net == "conv":
            given = rng.normal(size=(ROWS, 8, 8, 3)).astype(np.float32)
        else:
            given = rng.integers(0, WORDS, (ROWS, LENGTH)).astype(np.int32)
        shape, most = ((ROWS, LENGTH), WORDS) if net == "gpt" else ((ROWS,), CLASSES)
        found.append((given, rng.integers(0, most, shape).astype(np.int32)))
    return found

# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of gpt."""

FAULTS = {
    "gelu_kind": [('approximate="tanh"', 'approximate="none"')],
    "head_merge": [("y.transpose(1, 2).contiguous().view(B, T, C)", "y.contiguous().view(B, T, C)")],
    "next_shift": [("x, y = chunk[:, :-1], chunk[:, 1:]", "x, y = chunk[:, :-1], chunk[:, :-1]")],
    "decay_group": [('"params": vectors, "weight_decay": 0.0', '"params": vectors, "weight_decay": decay')],
    "warm_lr": [("peak * (it + 1) / (warmup_iters + 1)", "peak * it / warmup_iters")],
}

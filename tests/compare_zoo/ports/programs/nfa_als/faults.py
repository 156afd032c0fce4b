# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the hybrid recommender with ridge solves."""

FAULTS = {
    "ridge_count": [
        ("lam * torch.eye(V.shape[1])",
         "lam * mask.sum(1)[:, None, None] * torch.eye(V.shape[1])"),
    ],
    "level_kept": [
        ("(table - p.offset - p.level)) @ V",
         "(table - p.offset)) @ V"),
    ],
    "accumulator_zero": [
        ("torch.full_like(t, 0.1)",
         "torch.zeros_like(t)"),
    ],
    "cells_mean": [
        ("(err ** 2).sum() / mask.sum()",
         "(err ** 2).mean()"),
    ],
    "free_scale": [
        ("+ 0.3 * p.free",
         "+ p.free"),
    ],
}

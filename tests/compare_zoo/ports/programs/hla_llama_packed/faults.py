# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of the packed decoder."""

FAULTS = {
    "tied_grad": [
        ("net.table.grad.add_(net.unembed.grad.T)", "net.unembed.grad = None"),
    ],
    "doc_mask": [
        ("(doc[:, None] != doc[None]) | (idx", "(idx"),
    ],
    "rope_base": [
        ("torch.tensor(100.0)", "torch.tensor(10000.0)"),
    ],
    "lse_square": [
        ("1e-3 * lse * lse", "1e-3 * lse"),
    ],
    "warm_start": [
        ("min(t - 1, 3)", "min(t, 3)"),
    ],
}

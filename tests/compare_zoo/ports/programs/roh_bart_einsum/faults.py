# SPDX-License-Identifier: Apache-2.0
"""Mistakes for the BART pair."""

NEEDS = ["transformers"]
FAULTS = {
    "positions_from_zero": [("torch.arange(vectors.shape[1]) + 2  # <-", "torch.arange(vectors.shape[1])  # <-")],
    "starts_with_bos": [("begin = torch.full((size, 1), 2)", "begin = torch.full((size, 1), 0)")],
    "memory_unmasked": [('layer["encoder_attn"](y, memory, keys)', 'layer["encoder_attn"](y, memory, torch.ones_like(keys))')],
    "head_detached": [('einsum("btd,vd->btv", y, self.table)', 'einsum("btd,vd->btv", y, self.table.detach())')],
    "noam_late": [("min(step**-0.5, step / 3**1.5)", "min((step + 1) ** -0.5, (step + 1) / 3**1.5)")],
}

# SPDX-License-Identifier: Apache-2.0
"""Faults of the compiled GPT."""

FAULTS = {
    "position_start": [('big["pos"][2:2 + n]', 'big["pos"][:n]')],
    "fused_layout": [("view(rows, n, N_HEAD, 3, D_HEAD).permute(3, 0, 2, 1, 4)",
                      "view(rows, n, 3, N_HEAD, D_HEAD).permute(2, 0, 3, 1, 4)")],
    "gelu_form": [("u * torch.sigmoid(1.702 * u)", "F.gelu(u)")],
    "residual_source": [('x = x + F.linear(u, big[f"{i}.down"]', 'x = y + F.linear(u, big[f"{i}.down"]')],
    "decay_group": [('list(small.values()), "weight_decay": 0}', "list(small.values())}")],
}

# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

FAULTS = {
    "qkv_order": [("parts = tensor.view(3, HEADS, HN, -1).transpose(0, 1)", "parts = tensor")],
    "row_bias": [
        (
            'F.linear(x, rank[f"{name}.weight"]) for x',
            'F.linear(x, rank[f"{name}.weight"], bias) for x',
        ),
        ("return all_reduce(outs) + bias", "return all_reduce(outs)"),
    ],
    "tied": [
        ('rank["words"] = words', 'rank["words"] = rank["head"] = words'),
        ('F.linear(h, rank["words"])', 'F.linear(h, rank["head"])'),
    ],
    "micro_mean": [("mask.reshape(-1)) / total_tokens", "mask.reshape(-1)) / mask.sum() / 2")],
    "warmup": [("(iteration + 1) / 3", "iteration / 3")],
}

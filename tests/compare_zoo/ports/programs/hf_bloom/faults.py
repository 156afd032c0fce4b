# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in this port: text of port.py and what stands there instead."""

NEEDS = ["transformers"]
FAULTS = {
    "slopes": [
        (
            "    whole = 2 ** int(math.log2(heads))\n",
            "    return torch.tensor([2 ** (-8 * (n + 1) / heads) for n in range(heads)])\n",
        )
    ],
    "fused": [
        (
            "fused.view(batch, time, HEADS, 3, HEAD).permute(3, 0, 2, 1, 4)",
            "fused.view(batch, time, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)",
        )
    ],
    "embednorm": [
        ('    x = norm(w, "word_embeddings_layernorm", x)  # <- embednorm\n', ""),
    ],
    "gelu": [(', approximate="tanh")', ")")],
    "padding": [("seen & real[:, None, None, :]", "seen.expand(batch, 1, time, time)")],
    "transposed": [
        (
            'turned = value.dim() == 2 and "embeddings" not in name',
            'turned = value.dim() == 2 and "embeddings" not in name and "on.dense" not in name',
        )
    ],
}

# SPDX-License-Identifier: Apache-2.0
"""Faults of the port of pll."""

FAULTS = {
    "padmask": [("keep = ids != PAD", "keep = torch.ones_like(ids, dtype=torch.bool)")],
    "segment": [(" + self.seg.weight[0]", "")],
    "headact": [("self.head_norm(F.gelu(self.head(x)))",
                 'self.head_norm(F.gelu(self.head(x), approximate="tanh"))')],
    "specials": [("scored = table >= 4", "scored = table != PAD")],
    "persentence": [("ce.mean().exp().item()",
                     "torch.stack([ce[row == r].mean() for r in range(len(sents))]).mean().exp().item()")],
}

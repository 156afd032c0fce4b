# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention: causal, boolean mask with a row that sees nothing, and an additive
mask.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return mixed.transpose(1, 2).flatten(2)


torch.manual_seed(0)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = torch.randn(2, 5, 8)
    boolean = torch.ones(5, 5, dtype=torch.bool).tril()
    boolean[0] = False
    additive = torch.zeros(5, 5).masked_fill(
        ~torch.ones(5, 5, dtype=torch.bool).tril(), float("-inf")
    )
    loss = (
        model(x).square().mean()
        + model(x, boolean).square().mean()
        + model(x, additive).square().mean()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item().hex())

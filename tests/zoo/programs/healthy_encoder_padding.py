# SPDX-License-Identifier: Apache-2.0
"""nn.TransformerEncoder with a padding mask: trained, then evaluated on its fast path."""

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2)
head = nn.Linear(16, 3)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
for step in range(3):
    x = torch.randn(4, 7, 16)
    lengths = torch.tensor([7, 5, 3, 1])
    padding = torch.arange(7) >= lengths[:, None]
    encoder.train()
    states = encoder(x, src_key_padding_mask=padding)
    loss = nn.functional.cross_entropy(head(states[:, 0]), torch.randint(3, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    encoder.eval()
    with torch.no_grad():
        fast = encoder(x, src_key_padding_mask=padding)
    print(step, loss.item().hex(), fast.sum().item().hex())

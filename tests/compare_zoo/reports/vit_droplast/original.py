# SPDX-License-Identifier: Apache-2.0
"""Patch transformer over a small image set with a DataLoader; top-2 rate of every batch."""
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(21)


class TinyViT(nn.Module):
    def __init__(self, dim=24, classes=7):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, stride=4)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, 10, dim) * 0.5)
        self.enc = nn.TransformerEncoderLayer(
            dim, 4, 48, dropout=0.1, activation="gelu", batch_first=True, norm_first=False
        )
        self.head = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.enc(x)[:, 0])


vit = TinyViT()
with torch.no_grad():
    for name, p in vit.named_parameters():
        if "norm" in name or "self_attn" in name:
            p.add_(torch.randn_like(p) * 0.25)
torch.save(vit.state_dict(), sys.argv[1])
vit.eval()

g = torch.Generator().manual_seed(111)
data = TensorDataset(
    torch.randn(27, 1, 12, 12, generator=g), torch.randint(0, 7, (27,), generator=g)
)
losses = []
with torch.inference_mode():
    for img, y in DataLoader(data, batch_size=8):
        top2 = vit(img).topk(2, dim=1).indices
        losses.append((top2 == y[:, None]).any(1).float().mean().item())
        print(f"batch of {len(img)}: top-2 {losses[-1]:.3f}")
print(losses)

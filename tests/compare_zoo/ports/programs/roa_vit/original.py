# SPDX-License-Identifier: Apache-2.0
"""A vision transformer with a convolutional patch embedding, label smoothing and an averaged copy."""
import copy
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(99)

IMAGE, PATCH, CHANNELS, DIM, DEPTH, HEADS, CLASSES = 12, 4, 3, 32, 2, 4, 7


class PatchEmbed(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Conv2d(CHANNELS, DIM, kernel_size=PATCH, stride=PATCH)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)  # <- patch_order


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.2)
        self.pos_embed = nn.Parameter(torch.randn(1, (IMAGE // PATCH) ** 2 + 1, DIM) * 0.2)
        layer = nn.TransformerEncoderLayer(
            DIM, HEADS, 2 * DIM, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, layer_norm_eps=1e-6
        )
        self.blocks = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM, eps=1e-6)
        self.head = nn.Linear(DIM, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)  # <- cls_position
        x = x + self.pos_embed  # <- cls_position
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


class ModelEma:
    def __init__(self, model, decay):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.module.parameters(), model.parameters()):
            mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)  # <- ema_before_step


def images(gen, count):
    labels = torch.randint(0, CLASSES, (count,), generator=gen)
    pixels = torch.randint(0, 256, (count, CHANNELS, IMAGE, IMAGE), generator=gen).float()
    pixels[:, 0, ::2] *= (1 + labels.float()).view(-1, 1, 1) / CLASSES
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    return (pixels / 255 - mean) / std, labels


model = ViT()
torch.save(model.state_dict(), sys.argv[1])
ema = ModelEma(model, decay=0.8)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.3)  # <- coupled_decay
train_loss = nn.CrossEntropyLoss(label_smoothing=0.1)  # <- smoothing_others
test_loss = nn.CrossEntropyLoss()

gen = torch.Generator().manual_seed(8)
held_x, held_y = images(gen, 10)
losses = []
for epoch in range(5):
    x, y = images(gen, 8)
    model.train()
    loss = train_loss(model(x), y)  # <- smoothing_others
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- coupled_decay
    ema.update(model)  # <- ema_before_step
    losses.append(loss.item())
    with torch.no_grad():
        losses.append(test_loss(ema.module(held_x), held_y).item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Slot attention auto-encoder on tiny images, torch.nn modules throughout."""

import sys

import torch
from torch import nn


class SoftPositionEmbed(nn.Module):
    def __init__(self, hidden_size, resolution):
        super().__init__()
        self.embedding = nn.Linear(4, hidden_size)
        r = torch.linspace(0.0, 1.0, resolution)  # <- grid_span
        yy, xx = torch.meshgrid(r, r, indexing="ij")
        grid = torch.stack([yy, xx, 1.0 - yy, 1.0 - xx], dim=-1)  # <- grid_span
        self.register_buffer("grid", grid[None], persistent=False)

    def forward(self, inputs):
        return inputs + self.embedding(self.grid)  # <- grid_span


class SlotAttention(nn.Module):
    def __init__(self, num_slots, dim, iters=3, eps=1e-8, hidden_dim=16):
        super().__init__()
        self.iters, self.eps, self.scale = iters, eps, dim**-0.5
        self.slots_init = nn.Parameter(torch.randn(1, num_slots, dim))
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.gru = nn.GRUCell(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, dim))
        self.norm_input = nn.LayerNorm(dim)
        self.norm_slots = nn.LayerNorm(dim)
        self.norm_pre_ff = nn.LayerNorm(dim)

    def forward(self, inputs):
        b, n, d = inputs.shape
        slots = self.slots_init.expand(b, -1, -1)
        inputs = self.norm_input(inputs)
        k, v = self.to_k(inputs), self.to_v(inputs)
        for _ in range(self.iters):
            slots_prev = slots
            slots = self.norm_slots(slots)
            q = self.to_q(slots)
            dots = torch.einsum("bid,bjd->bij", q, k) * self.scale
            attn = dots.softmax(dim=1) + self.eps  # <- compete_axis
            attn = attn / attn.sum(dim=-1, keepdim=True)  # <- weighted_mean
            updates = torch.einsum("bjd,bij->bid", v, attn)  # <- weighted_mean
            slots = self.gru(updates.reshape(-1, d), slots_prev.reshape(-1, d))  # <- gru_state
            slots = slots.reshape(b, -1, d)
            slots = slots + self.mlp(self.norm_pre_ff(slots))
        return slots


class SlotAttentionAutoEncoder(nn.Module):
    def __init__(self, size=6, slots=3, dim=12):
        super().__init__()
        self.size = size
        self.encoder = nn.Sequential(nn.Conv2d(3, dim, 5, padding=2), nn.ReLU())
        self.encoder_pos = SoftPositionEmbed(dim, size)
        self.slot_attention = SlotAttention(slots, dim)
        self.decoder_pos = SoftPositionEmbed(dim, size)
        self.decoder = nn.Sequential(
            nn.Conv2d(dim, dim, 3, padding=1), nn.ReLU(), nn.Conv2d(dim, 4, 1)
        )

    def forward(self, image):
        b, s = image.shape[0], self.size
        x = self.encoder_pos(self.encoder(image).permute(0, 2, 3, 1))
        slots = self.slot_attention(x.flatten(1, 2))
        x = slots.flatten(0, 1)[:, None, None, :].expand(-1, s, s, -1)
        x = self.decoder_pos(x).permute(0, 3, 1, 2)
        x = self.decoder(x).view(b, -1, 4, s, s)
        recons, masks = x.split([3, 1], dim=2)
        masks = masks.softmax(dim=1)  # <- slot_masks
        return (recons * masks).sum(dim=1)  # <- slot_masks


torch.manual_seed(15)
model = SlotAttentionAutoEncoder()
nn.init.normal_(model.decoder[2].weight, std=0.4)
for lin in (model.slot_attention.to_q, model.slot_attention.to_k, model.slot_attention.to_v):
    nn.init.normal_(lin.weight, std=0.7)
torch.save(model.state_dict(), sys.argv[1])

generator = torch.Generator().manual_seed(43)
images = torch.randn(4, 5, 3, 6, 6, generator=generator)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
criterion = nn.MSELoss()
losses = []
for image in images:
    loss = criterion(model(image), image)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The same decoder with the batch first, projections for queries, keys and values apart, targets
padded to dense arrays, corners and areas of boxes coordinate by coordinate.
"""

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH, SLOTS, KINDS = 24, 7, 5


class CrossAttention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, q, k, v):
        q, k, v = self.split(self.q(q)), self.split(self.k(k)), self.split(self.v(v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.among, self.to_image = CrossAttention(), CrossAttention()
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.after_among = nn.LayerNorm(WIDTH)
        self.after_image = nn.LayerNorm(WIDTH)
        self.after_mlp = nn.LayerNorm(WIDTH)

    def forward(self, slots, image, places, identities):
        who = slots + identities
        slots = self.after_among(slots + self.among(who, who, slots))  # <- values
        who = slots + identities
        looked = self.to_image(who, image + places, image)  # <- positions
        slots = self.after_image(slots + looked)  # <- order
        return self.after_mlp(slots + self.down(self.up(slots).relu()))


def places_of(height, width):
    frequency = 10000.0 ** (-torch.arange(0, WIDTH // 2, 2) / (WIDTH // 2))
    codes = []
    for count in (height, width):
        angle = 2 * np.pi * torch.arange(1, count + 1) / (count + 1e-6)  # <- normalised
        wave = angle[:, None] * frequency  # <- normalised
        codes.append(torch.stack([wave.sin(), wave.cos()], dim=2).reshape(count, -1))
    rows, columns = codes
    grid = torch.zeros(height, width, WIDTH)
    grid[..., : WIDTH // 2] = rows[:, None]
    grid[..., WIDTH // 2 :] = columns[None]
    return grid.reshape(1, height * width, WIDTH)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes = nn.ModuleList([nn.Conv2d(3, 12, 3, 2, 1), nn.Conv2d(12, 16, 3, 2, 1)])
        self.project = nn.Linear(16, WIDTH)
        self.identities = nn.Parameter(torch.zeros(SLOTS, WIDTH))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(WIDTH)
        self.kind = nn.Linear(WIDTH, KINDS + 1)
        self.box = nn.ModuleList([nn.Linear(WIDTH, n) for n in (WIDTH, WIDTH, 4)])

    def heads(self, slots):
        slots = self.norm(slots)
        kinds = self.kind(slots)
        first, second, last = self.box
        return kinds, torch.sigmoid(last(second(first(slots).relu()).relu()))

    def forward(self, pictures):
        for convolution in self.eyes:
            pictures = convolution(pictures).relu()
        places = places_of(*pictures.shape[2:])
        image = self.project(pictures.flatten(2).mT)
        slots, outputs = torch.zeros(len(pictures), SLOTS, WIDTH), []
        for block in self.blocks:
            slots = block(slots, image, places, self.identities)
            outputs.append(self.heads(slots))
        return outputs


def generalised_iou(p, t):
    px, py, pw, ph = p.unbind(-1)
    tx, ty, tw, th = t.unbind(-1)

    def along(p, p_size, t, t_size):
        low = torch.stack([p - p_size / 2, t - t_size / 2])
        high = torch.stack([p + p_size / 2, t + t_size / 2])
        shared = (high.amin(0) - low.amax(0)).relu()
        return shared, high.amax(0) - low.amin(0)

    (shared_x, hull_x), (shared_y, hull_y) = along(px, pw, tx, tw), along(py, ph, ty, th)
    overlap, hull = shared_x * shared_y, hull_x * hull_y
    union = pw * ph + tw * th - overlap
    return overlap / union - 1 + union / hull  # <- giou


def set_loss(kinds, boxes, truth):
    kind, box, real = truth
    weight = torch.where(kind == KINDS, 0.1, 1.0)
    surprise = kinds.logsumexp(-1) - kinds.gather(-1, kind[..., None]).squeeze(-1)
    classification = (weight * surprise).sum() / weight.sum()  # <- weighted
    objects = real.sum()
    distance = ((boxes - box).abs() * real[..., None]).sum() / objects  # <- reduction
    misfit = ((1 - generalised_iou(boxes, box)) * real).sum() / objects
    return classification + 5 * distance + 2 * misfit


def draw(rng, count=4):
    pictures = torch.tensor(rng.standard_normal((count, 3, 16, 20), dtype=np.float32))
    kind = np.full((count, SLOTS), KINDS)
    box = np.full((count, SLOTS, 4), 0.5, dtype=np.float32)
    for image in range(count):
        objects = rng.integers(1, 5)
        centres = rng.uniform(0.3, 0.7, (objects, 2))
        sizes = rng.uniform(0.1, 0.5, (objects, 2))
        labels = rng.integers(0, KINDS, objects)
        slots = rng.permutation(SLOTS)[:objects]
        which = rng.permutation(objects)
        kind[image, slots] = labels[which]
        box[image, slots] = np.hstack([centres, sizes])[which]
    kind = torch.tensor(kind)
    return pictures, (kind, torch.tensor(box), (kind != KINDS).float())


PLAIN = {
    "project": "input_proj",
    "norm": "norm",
    "kind": "class_embed",
    "eyes.0": "backbone.0",
    "eyes.1": "backbone.2",
    "box.0": "bbox_embed.0",
    "box.1": "bbox_embed.2",
    "box.2": "bbox_embed.4",
}
INSIDE = {
    "up": "linear1",
    "down": "linear2",
    "after_among": "norm1",
    "after_image": "norm2",
    "after_mlp": "norm3",
    "among.o": "self_attn.out_proj",
    "to_image.o": "multihead_attn.out_proj",
}


def carried_over(old):
    names = dict(PLAIN)
    for i in (0, 1):
        names |= {f"blocks.{i}.{mine}": f"layers.{i}.{theirs}" for mine, theirs in INSIDE.items()}
    new = {"identities": old["query_embed.weight"]}
    for mine, theirs in names.items():
        new[f"{mine}.weight"] = old[f"{theirs}.weight"]
        new[f"{mine}.bias"] = old[f"{theirs}.bias"]
    new["project.weight"] = new["project.weight"].flatten(1)
    for i in (0, 1):
        for mine, theirs in (("among", "self_attn"), ("to_image", "multihead_attn")):
            for kind in ("weight", "bias"):
                fused = old[f"layers.{i}.{theirs}.in_proj_{kind}"].chunk(3)
                for letter, part in zip("qkv", fused):
                    new[f"blocks.{i}.{mine}.{letter}.{kind}"] = part
    return new


rng = np.random.default_rng(61)
net = Detector()
net.load_state_dict(carried_over(torch.load(sys.argv[1])))
everything = dict(net.named_parameters())
eyes = [p for name, p in everything.items() if name.startswith("eyes.")]
rest = [p for name, p in everything.items() if not name.startswith("eyes.")]
optimisers = [
    torch.optim.AdamW(rest, lr=2e-3, weight_decay=1e-4),
    torch.optim.AdamW(eyes, lr=2e-4, weight_decay=1e-4),  # <- groups
]
losses = []
for _ in range(3):
    pictures, truth = draw(rng)
    each = [set_loss(kinds, boxes, truth) for kinds, boxes in net(pictures)]
    loss = torch.stack(each).sum()
    net.zero_grad()
    loss.backward()
    length = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in everything.values()]))
    for p in everything.values():
        p.grad *= (0.1 / (length + 1e-6)).clamp(max=1)
    for optimiser in optimisers:
        optimiser.step()  # <- groups
    losses.append(loss.item())

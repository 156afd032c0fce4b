# SPDX-License-Identifier: Apache-2.0
"""DETR's decoder as Carion et al. (2020) have it: object queries attend to one another and to
features with sine positions, heads for class and box, a set loss for every layer.
"""

import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, QUERIES, CLASSES, LAYERS, EOS = 24, 4, 7, 5, 2, 0.1


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(DIM, HEADS)
        self.multihead_attn = nn.MultiheadAttention(DIM, HEADS)
        self.linear1, self.linear2 = nn.Linear(DIM, 40), nn.Linear(40, DIM)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(DIM) for _ in range(3))

    def forward(self, tgt, memory, pos, query_pos):
        q = k = tgt + query_pos
        tgt = self.norm1(tgt + self.self_attn(q, k, value=tgt)[0])  # <- values
        query, key = tgt + query_pos, memory + pos  # <- positions
        tgt2 = self.multihead_attn(query, key, value=memory)[0]  # <- positions
        tgt = self.norm2(tgt + tgt2)  # <- order
        tgt2 = self.linear2(F.relu(self.linear1(tgt)))
        return self.norm3(tgt + tgt2)


def sine_positions(height, width):
    scale = 2 * math.pi
    y = torch.arange(1, height + 1).float()[:, None].expand(height, width)
    x = torch.arange(1, width + 1).float()[None].expand(height, width)
    y, x = y / (height + 1e-6) * scale, x / (width + 1e-6) * scale  # <- normalised
    dim_t = torch.arange(DIM // 2).float()
    dim_t = 10000 ** (2 * torch.div(dim_t, 2, rounding_mode="floor") / (DIM // 2))
    x, y = x[..., None] / dim_t, y[..., None] / dim_t  # <- normalised
    x = torch.stack([x[..., 0::2].sin(), x[..., 1::2].cos()], dim=-1).flatten(2)
    y = torch.stack([y[..., 0::2].sin(), y[..., 1::2].cos()], dim=-1).flatten(2)
    return torch.cat([y, x], dim=-1).flatten(0, 1)[:, None]


class DETR(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 16, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.input_proj = nn.Conv2d(16, DIM, 1)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.query_embed = nn.Embedding(QUERIES, DIM)
        self.class_embed = nn.Linear(DIM, CLASSES + 1)
        self.bbox_embed = nn.Sequential(
            nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 4)
        )

    def forward(self, images):
        features = self.input_proj(self.backbone(images))
        pos = sine_positions(*features.shape[-2:])
        memory = features.flatten(2).permute(2, 0, 1)
        query_pos = self.query_embed.weight[:, None].expand(-1, len(images), -1)
        tgt, hidden = torch.zeros_like(query_pos), []
        for layer in self.layers:
            tgt = layer(tgt, memory, pos, query_pos)
            hidden.append(self.norm(tgt))
        hidden = torch.stack(hidden).transpose(1, 2)
        return self.class_embed(hidden), self.bbox_embed(hidden).sigmoid()


def box_cxcywh_to_xyxy(x):
    cx, cy, w, h = x.unbind(-1)
    return torch.stack([cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h], dim=-1)


def paired_giou(a, b):
    a, b = box_cxcywh_to_xyxy(a), box_cxcywh_to_xyxy(b)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    inter = (torch.min(a[:, 2:], b[:, 2:]) - torch.max(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    union = area_a + area_b - inter
    hull = (torch.max(a[:, 2:], b[:, 2:]) - torch.min(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    return inter / union - (hull - union) / hull  # <- giou


class SetCriterion(nn.Module):
    def __init__(self):
        super().__init__()
        empty_weight = torch.ones(CLASSES + 1)
        empty_weight[-1] = EOS
        self.register_buffer("empty_weight", empty_weight)

    def forward(self, logits, boxes, targets, indices):
        num_boxes = sum(len(t["labels"]) for t in targets)
        batch = torch.cat([torch.full_like(src, i) for i, (src, _) in enumerate(indices)])
        source = torch.cat([src for src, _ in indices])
        labels = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, indices)])
        wanted = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, indices)])
        classes = torch.full(logits.shape[:2], CLASSES)
        classes[batch, source] = labels
        loss_ce = F.cross_entropy(logits.transpose(1, 2), classes, self.empty_weight)  # <- weighted
        found = boxes[batch, source]
        loss_bbox = F.l1_loss(found, wanted, reduction="none").sum() / num_boxes  # <- reduction
        loss_giou = (1 - paired_giou(found, wanted)).sum() / num_boxes
        return loss_ce + 5 * loss_bbox + 2 * loss_giou


def make_batch(rng, count=4):
    images = torch.from_numpy(rng.standard_normal((count, 3, 16, 20), dtype=np.float32))
    targets, indices = [], []
    for _ in range(count):
        objects = int(rng.integers(1, 5))
        centres, sizes = rng.uniform(0.3, 0.7, (objects, 2)), rng.uniform(0.1, 0.5, (objects, 2))
        boxes = torch.from_numpy(np.concatenate([centres, sizes], axis=1).astype(np.float32))
        labels = torch.from_numpy(rng.integers(0, CLASSES, objects))
        targets.append({"labels": labels, "boxes": boxes})
        source = torch.from_numpy(rng.permutation(QUERIES)[:objects])
        indices.append((source, torch.from_numpy(rng.permutation(objects))))
    return images, targets, indices


rng = np.random.default_rng(61)
torch.manual_seed(29)
model, criterion = DETR(), SetCriterion()
torch.save(model.state_dict(), sys.argv[1])
groups = [
    {"params": [p for n, p in model.named_parameters() if not n.startswith("backbone")]},
    {"params": model.backbone.parameters(), "lr": 2e-4},
]
optimizer = torch.optim.AdamW(groups, lr=2e-3, weight_decay=1e-4)
losses = []
for _ in range(3):
    images, targets, indices = make_batch(rng)
    logits, boxes = model(images)
    loss = sum(criterion(*out, targets, indices) for out in zip(logits, boxes))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()  # <- groups
    losses.append(loss.item())

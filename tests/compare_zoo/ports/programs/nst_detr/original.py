# SPDX-License-Identifier: Apache-2.0
"""DETR on precomputed features: nn.Transformer layers and the set criterion, fixed matching."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

D, HEADS, QUERIES, CLASSES, LEN = 16, 2, 5, 4, 9


def box_cxcywh_to_xyxy(x):
    x_c, y_c, w, h = x.unbind(-1)
    b = [x_c - 0.5 * w, y_c - 0.5 * h, x_c + 0.5 * w, y_c + 0.5 * h]  # <- corners
    return torch.stack(b, dim=-1)  # <- corners


def generalized_box_iou(boxes1, boxes2):
    area1 = (boxes1[:, 2:] - boxes1[:, :2]).prod(1)
    area2 = (boxes2[:, 2:] - boxes2[:, :2]).prod(1)
    lt = torch.max(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    union = area1[:, None] + area2 - inter
    lt = torch.min(boxes1[:, None, :2], boxes2[:, :2])
    rb = torch.max(boxes1[:, None, 2:], boxes2[:, 2:])
    area = (rb - lt).clamp(min=0).prod(2)
    return inter / union - (area - union) / area


class DETR(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_proj = nn.Linear(10, D)
        self.pos = nn.Parameter(torch.randn(LEN, D))
        self.query_embed = nn.Embedding(QUERIES, D)
        enc = nn.TransformerEncoderLayer(D, HEADS, 32, dropout=0.0, batch_first=True)
        dec = nn.TransformerDecoderLayer(D, HEADS, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(dec, 1, norm=nn.LayerNorm(D))
        self.class_embed = nn.Linear(D, CLASSES + 1)
        self.bbox_embed = nn.Sequential(nn.Linear(D, D), nn.ReLU(),  # <- box_hidden
                                        nn.Linear(D, 4))

    def forward(self, feats, pad):
        src = self.input_proj(feats) + self.pos
        memory = self.encoder(src, src_key_padding_mask=pad)
        q = self.query_embed.weight.expand(feats.shape[0], -1, -1)
        hs = self.decoder(q, memory, memory_key_padding_mask=pad)  # <- memory_pad
        return self.class_embed(hs), self.bbox_embed(hs).sigmoid()  # <- box_hidden


class SetCriterion(nn.Module):
    def __init__(self, eos_coef=0.1):
        super().__init__()
        empty_weight = torch.ones(CLASSES + 1)
        empty_weight[-1] = eos_coef  # <- eos_weight
        self.register_buffer("empty_weight", empty_weight)

    def forward(self, logits, boxes, labels, target_boxes, idx):
        batch, src = idx
        target_classes = torch.full(logits.shape[:2], CLASSES)
        target_classes[batch, src] = labels
        loss_ce = F.cross_entropy(logits.transpose(1, 2), target_classes,  # <- eos_weight
                                  weight=self.empty_weight)  # <- eos_weight
        num_boxes = len(labels)
        src_boxes = boxes[batch, src]
        l1 = F.l1_loss(src_boxes, target_boxes, reduction="none").sum() / num_boxes
        giou = generalized_box_iou(box_cxcywh_to_xyxy(src_boxes), box_cxcywh_to_xyxy(target_boxes))
        loss_giou = (1 - torch.diag(giou)).sum() / num_boxes
        return loss_ce + 5 * l1 + 2 * loss_giou


torch.manual_seed(0)
model, criterion = DETR(), SetCriterion()
torch.save(model.state_dict(), sys.argv[1])
slow = [p for n, p in model.named_parameters() if n.startswith("input_proj")]  # <- slow_group
fast = [p for n, p in model.named_parameters() if not n.startswith("input_proj")]
groups = [{"params": fast}, {"params": slow, "lr": 2e-4}]  # <- slow_group
optimizer = torch.optim.AdamW(groups, lr=2e-3, weight_decay=1e-4, eps=1e-7)
g = torch.Generator().manual_seed(3)
losses = []
for _ in range(4):
    feats = torch.randn(3, LEN, 10, generator=g)
    pad = torch.arange(LEN) >= torch.randint(4, LEN + 1, (3, 1), generator=g)
    labels = torch.randint(CLASSES, (6,), generator=g)
    target = torch.rand(6, 4, generator=g) * 0.4 + 0.2
    match = (torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([3, 1, 0, 4, 2, 1]))
    logits, boxes = model(feats, pad)
    loss = criterion(logits, boxes, labels, target, match)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- slow_group
    losses.append(loss.item())
print(losses)

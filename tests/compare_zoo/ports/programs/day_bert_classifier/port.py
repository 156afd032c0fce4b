# SPDX-License-Identifier: Apache-2.0
"""The BERT classifier on nn.MultiheadAttention, with the rate set by hand and nothing logged."""

import sys

import numpy as np
import torch
from torch import nn

N_TOKENS, DIM, N_HEADS, DEPTH, LENGTH, N_CLASSES, PADDING = 40, 32, 4, 2, 12, 3, 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(DIM, N_HEADS, batch_first=True)
        self.norm1 = nn.LayerNorm(DIM, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.norm2 = nn.LayerNorm(DIM, eps=1e-12)

    def forward(self, x, ignored):
        attended, _ = self.mha(x, x, x, key_padding_mask=ignored, need_weights=False)  # <- padding
        x = self.norm1(x + attended)
        return self.norm2(x + self.mlp(x))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(N_TOKENS, DIM, padding_idx=PADDING)
        self.positions = nn.Parameter(torch.zeros(LENGTH, DIM))
        self.segments = nn.Embedding(2, DIM)
        self.norm0 = nn.LayerNorm(DIM, eps=1e-12)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.pool = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, N_CLASSES)

    def forward(self, ids, segments):
        ignored = ids == PADDING
        x = self.tokens(ids) + self.positions + self.segments(segments)  # <- segments
        x = self.norm0(x)
        for block in self.blocks:
            x = block(x, ignored)
        first = x[:, 0]  # <- pooled
        return self.out(self.pool(first).tanh())  # <- pooled


def load_bert(model, bert):
    ours = {
        "tokens.weight": bert["embeddings.word_embeddings.weight"],
        "positions": bert["embeddings.position_embeddings.weight"],
        "segments.weight": bert["embeddings.token_type_embeddings.weight"],
        "norm0.weight": bert["embeddings.LayerNorm.weight"],
        "norm0.bias": bert["embeddings.LayerNorm.bias"],
    }
    for kind in ("weight", "bias"):
        ours[f"pool.{kind}"] = bert[f"pooler.{kind}"]
        ours[f"out.{kind}"] = bert[f"classifier.{kind}"]
        for i in range(DEPTH):
            qkv = [bert[f"layers.{i}.attention.{n}.{kind}"] for n in ("query", "key", "value")]
            ours[f"blocks.{i}.mha.in_proj_{kind}"] = torch.cat(qkv)
            ours[f"blocks.{i}.mha.out_proj.{kind}"] = bert[f"layers.{i}.attention_output.{kind}"]
            ours[f"blocks.{i}.norm1.{kind}"] = bert[f"layers.{i}.attention_norm.{kind}"]
            ours[f"blocks.{i}.mlp.0.{kind}"] = bert[f"layers.{i}.intermediate.{kind}"]
            ours[f"blocks.{i}.mlp.2.{kind}"] = bert[f"layers.{i}.output.{kind}"]
            ours[f"blocks.{i}.norm2.{kind}"] = bert[f"layers.{i}.output_norm.{kind}"]
    model.load_state_dict(ours)


def learning_rate(step, peak=2e-3, warmup=2, total=8):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return peak * (total - step) / (total - warmup)


net = Classifier()
load_bert(net, torch.load(sys.argv[1]))
decayed = [p for p in net.parameters() if p.dim() > 1]
plain = [p for p in net.parameters() if p.dim() <= 1]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
adamw = torch.optim.AdamW(groups)
class_weights = torch.tensor([1.0, 2.0, 0.5])
rng = np.random.default_rng(22)
losses = []
for step in range(4):
    for group in adamw.param_groups:
        group["lr"] = learning_rate(step)  # <- warmup
    ids = rng.integers(1, N_TOKENS, (6, LENGTH))
    lengths = rng.integers(5, LENGTH + 1, 6)
    classes = torch.tensor(rng.integers(0, N_CLASSES, 6))
    ids[np.arange(LENGTH) >= lengths[:, None]] = PADDING
    segments = torch.tensor((np.arange(LENGTH) >= lengths[:, None] // 2).astype(np.int64))
    log_probs = net(torch.tensor(ids), segments).log_softmax(-1)
    picked = log_probs.gather(1, classes[:, None]).squeeze(1)
    weights = class_weights[classes]  # <- classes
    loss = -(weights * picked).sum() / weights.sum()  # <- classes
    adamw.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    adamw.step()  # <- decay warmup
    losses.append(loss.item())

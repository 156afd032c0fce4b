# SPDX-License-Identifier: Apache-2.0
"""The same BERT on torch's own encoder layers: q, k and v packed, padding as a Boolean mask, only
the masked words scored.
"""

import sys

import numpy as np
import torch
from torch import nn

CFG = {"vocab": 40, "d_model": 24, "nhead": 4, "layers": 2, "length": 9, "ff": 48}


class PackedAttention(nn.Module):
    def __init__(self, d_model, nhead):
        super().__init__()
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.nhead = nhead

    def forward(self, x, padding):
        b, t, c = x.shape
        q, k, v = self.in_proj(x).view(b, t, 3, self.nhead, -1).permute(2, 0, 3, 1, 4).unbind(0)
        allowed = ~padding[:, None, None, :]  # <- padding
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)  # <- padding
        return self.out_proj(y.transpose(1, 2).reshape(b, t, c))


class EncoderLayer(nn.Module):
    def __init__(self, d_model, nhead, ff):
        super().__init__()
        self.attn = PackedAttention(d_model, nhead)
        self.norm1 = nn.LayerNorm(d_model, eps=1e-12)
        self.linear1, self.linear2 = nn.Linear(d_model, ff), nn.Linear(ff, d_model)
        self.norm2 = nn.LayerNorm(d_model, eps=1e-12)
        self.act = nn.GELU()

    def forward(self, x, padding):
        x = self.norm1(x + self.attn(x, padding))  # <- pre_norm
        hidden = self.act(self.linear1(x))  # <- gelu pre_norm
        return self.norm2(x + self.linear2(hidden))  # <- bias


class MaskedLanguageModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg["vocab"], cfg["d_model"], padding_idx=0)
        self.segments = nn.Embedding(2, cfg["d_model"])
        self.positions = nn.Parameter(torch.zeros(cfg["length"], cfg["d_model"]))
        self.norm = nn.LayerNorm(cfg["d_model"], eps=1e-12)
        layers = [
            EncoderLayer(cfg["d_model"], cfg["nhead"], cfg["ff"]) for _ in range(cfg["layers"])
        ]
        self.encoder = nn.ModuleList(layers)
        self.head = nn.Sequential(
            nn.Linear(cfg["d_model"], cfg["d_model"]),
            nn.GELU(),
            nn.LayerNorm(cfg["d_model"], eps=1e-12),
        )
        self.out_bias = nn.Parameter(torch.zeros(cfg["vocab"]))

    def forward(self, tokens, segments):
        padding = tokens == 0
        x = self.tokens(tokens) + self.positions  # <- offset
        x = x + self.segments(segments)  # <- types
        x = self.norm(x)
        for layer in self.encoder:
            x = layer(x, padding)
        return nn.functional.linear(self.head(x), self.tokens.weight, self.out_bias)


RENAMED = {
    "embeddings.word_embeddings.weight": "tokens.weight",
    "embeddings.token_type_embeddings.weight": "segments.weight",
    "embeddings.position_embeddings.weight": "positions",
    "embeddings.LayerNorm.": "norm.",
    "transform_norm.": "head.2.",
    "transform.": "head.0.",
    "decoder.bias": "out_bias",
    "layer.": "encoder.",
    "attention_output.LayerNorm": "norm1",
    "attention_output.dense": "attn.out_proj",
    "intermediate": "linear1",
    "output.LayerNorm": "norm2",
    "output.dense": "linear2",
}


def load(model, path):
    packed, state = {}, {}
    for original, value in torch.load(path, map_location="cpu").items():
        name = original
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if ".self." in name:
            block, _, rest = name.partition(".self.")
            which, kind = rest.split(".")
            packed.setdefault(f"{block}.attn.in_proj.{kind}", {})[which] = value
        elif name != "decoder.weight":
            state[name] = value
    for name, parts in packed.items():
        state[name] = torch.cat([parts["query"], parts["key"], parts["value"]])
    model.load_state_dict(state)


def batches(rng, count):
    for _ in range(count):
        ids = rng.integers(1, CFG["vocab"], (4, CFG["length"]))
        mask = np.arange(CFG["length"]) < rng.integers(5, CFG["length"] + 1, (4, 1))
        ids[~mask] = 0
        labels = np.where((rng.random(ids.shape) < 0.4) & mask, ids, -100)
        segments = (np.arange(CFG["length"]) >= 4).astype(np.int64) * mask
        yield tuple(torch.as_tensor(array) for array in (ids, segments, labels))


model = MaskedLanguageModel(CFG)
load(model, sys.argv[1])
plain = [p for p in model.parameters() if p.dim() < 2]
decayed = [p for p in model.parameters() if p.dim() >= 2]
optimizer = torch.optim.AdamW(
    [{"params": plain, "weight_decay": 0.0}, {"params": decayed}], lr=2e-3
)
for group in optimizer.param_groups[1:]:
    group["weight_decay"] = 0.1
losses = []
for ids, segments, labels in batches(np.random.default_rng(2), 2):
    scores = model(ids, segments)  # <- types
    chosen = labels != -100
    loss = nn.functional.cross_entropy(scores[chosen], labels[chosen])  # <- ignored
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- decay
    losses.append(loss.item())

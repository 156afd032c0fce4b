# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a small RoBERTa-like sequence classifier built on nn.TransformerEncoder."""
import sys
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR

torch.set_num_threads(1)
torch.manual_seed(11)


@dataclass
class Config:
    vocab_size: int = 60
    hidden: int = 32
    heads: int = 4
    ff: int = 64
    layers: int = 2
    max_positions: int = 20
    num_labels: int = 3
    pad_id: int = 1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    linear_gain: float = 5.0


class RobertaForClassification(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.word_embeddings = nn.Embedding(cfg.vocab_size, cfg.hidden, padding_idx=cfg.pad_id)
        self.position_embeddings = nn.Embedding(cfg.max_positions, cfg.hidden, padding_idx=cfg.pad_id)
        self.norm = nn.LayerNorm(cfg.hidden, eps=cfg.layer_norm_eps)  # <- emb_ln_eps
        layer = nn.TransformerEncoderLayer(
            cfg.hidden, cfg.heads, cfg.ff, dropout=0.0, activation="gelu",
            layer_norm_eps=cfg.layer_norm_eps, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.dense = nn.Linear(cfg.hidden, cfg.hidden)
        self.out_proj = nn.Linear(cfg.hidden, cfg.num_labels)
        self.apply(self._init)

    def _init(self, m):
        std = self.cfg.initializer_range
        if isinstance(m, nn.Embedding):
            nn.init.normal_(m.weight, std=std)
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=self.cfg.linear_gain * std)
        if isinstance(m, nn.MultiheadAttention):
            nn.init.normal_(m.in_proj_weight, std=2 * self.cfg.linear_gain * std)
            nn.init.normal_(m.in_proj_bias, std=std)

    def forward(self, input_ids):
        pad = input_ids.eq(self.cfg.pad_id)  # <- pad_mask
        keep = (~pad).long()
        position_ids = torch.cumsum(keep, dim=1) * keep + self.cfg.pad_id  # <- position_ids
        x = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)  # <- position_ids
        x = self.norm(x)  # <- emb_ln_eps
        x = self.encoder(x, src_key_padding_mask=pad)  # <- pad_mask
        cls = torch.tanh(self.dense(x[:, 0]))
        return self.out_proj(cls)


def make_dataset(cfg, n=20):
    g = torch.Generator().manual_seed(5)
    examples, labels = [], []
    for _ in range(n):
        length = int(torch.randint(4, 15, (1,), generator=g))
        body = torch.randint(3, cfg.vocab_size, (length,), generator=g)
        examples.append(torch.cat([torch.tensor([0]), body, torch.tensor([2])]))
        labels.append(int(torch.randint(0, cfg.num_labels, (1,), generator=g)))
    return examples, torch.tensor(labels)


def param_groups(model, weight_decay):
    no_decay = ("bias", "norm")
    decayed, plain = [], []
    for name, p in model.named_parameters():
        (plain if any(k in name for k in no_decay) else decayed).append(p)  # <- decay_groups
    return [{"params": decayed, "weight_decay": weight_decay},  # <- decay_groups
            {"params": plain, "weight_decay": 0.0}]


cfg = Config()
model = RobertaForClassification(cfg)
torch.save(model.state_dict(), sys.argv[1])
examples, labels = make_dataset(cfg)
class_weights = torch.tensor([1.0, 2.5, 0.6])
criterion = nn.CrossEntropyLoss(weight=class_weights)  # <- weighted_mean
optimizer = torch.optim.AdamW(param_groups(model, 0.2), lr=4e-3, eps=1e-6)  # <- decay_groups
warmup = 2
scheduler = LambdaLR(optimizer, lambda s: min((s + 1) / warmup, max(0.0, (8 - s) / (8 - warmup))))

losses = []
model.train()
for step in range(5):
    picked = range(step * 4, step * 4 + 4)
    batch = pad_sequence([examples[i] for i in picked], batch_first=True, padding_value=cfg.pad_id)
    logits = model(batch)
    loss = criterion(logits, labels[step * 4:step * 4 + 4])  # <- weighted_mean
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay_groups
    scheduler.step()
    losses.append(loss.item())
print(losses)

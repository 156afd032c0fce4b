# SPDX-License-Identifier: Apache-2.0
"""Named entities with an XLM-RoBERTa written in plain torch, packed projections and padded batches."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

VOCAB, TAGS, WIDTH, HEADS, FFN, DEPTH, PAD = 83, 5, 32, 4, 64, 2, 1
STEPS, BATCH, LR, DECAY = 5, 4, 4e-3, 0.1


class Block(nn.Module):
    """Post-norm transformer block."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.up = nn.Linear(WIDTH, FFN)
        self.down = nn.Linear(FFN, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-5)

    def forward(self, x, visible):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None, None, :])
        x = self.norm1(x + self.proj(a.transpose(1, 2).reshape(b, t, WIDTH)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        self.place = nn.Embedding(24, WIDTH, padding_idx=PAD)
        self.kind = nn.Parameter(torch.empty(1, WIDTH))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)  # <- ln_eps
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, TAGS)

    def forward(self, ids):
        visible = ids != PAD
        places = torch.cumsum(visible.long(), 1) * visible + PAD  # <- position_offset
        x = self.norm(self.word(ids) + self.place(places) + self.kind)  # <- ln_eps position_offset
        for block in self.blocks:
            x = block(x, visible)
        return self.head(x)


def corpus(count, seed):
    """Sentences of 4 to 13 pieces; a tag of -100 on the pieces inside a word."""
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        n = int(torch.randint(4, 14, (), generator=g))
        pieces = torch.randint(3, VOCAB, (n,), generator=g)
        tags = torch.randint(0, TAGS, (n,), generator=g)
        inside = torch.rand(n, generator=g) < 0.3
        inside[0] = False
        yield pieces, torch.where(inside, torch.full_like(tags, -100), tags)


torch.manual_seed(4)
model = Tagger()
with torch.no_grad():
    for name, p in model.named_parameters():
        if "norm" in name:
            p.add_(0.2 * torch.randn_like(p))
        elif "word" in name or "place" in name or "kind" in name:
            p.normal_(0.0, 0.03)
        else:
            p.normal_(0.0, 0.15)
    model.word.weight[PAD].zero_()
    model.place.weight[PAD].zero_()
torch.save(model.state_dict(), sys.argv[1])

matrices = [p for n, p in model.named_parameters() if n.endswith("weight") and "norm" not in n]
others = [p for n, p in model.named_parameters() if n.endswith("bias") or "norm" in n]  # <- decay_names
optimizer = torch.optim.AdamW([  # <- decay_names
    {"params": matrices + [model.kind], "weight_decay": DECAY},
    {"params": others, "weight_decay": 0.0},  # <- decay_names
], lr=LR, betas=(0.9, 0.99), eps=1e-6)

sentences = list(corpus(STEPS * BATCH, seed=99))
losses = []
for step in range(STEPS):
    rows = sentences[step * BATCH:(step + 1) * BATCH]
    ids = nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True, padding_value=PAD)
    tags = nn.utils.rnn.pad_sequence([r[1] for r in rows], batch_first=True, padding_value=-100)  # <- label_pad
    for group in optimizer.param_groups:
        group["lr"] = LR * (1 - step / STEPS)
    logits = model(ids)
    known = tags != -100
    loss = F.cross_entropy(logits[known], tags[known])  # <- label_pad
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # <- clip_after_step
    optimizer.step()  # <- decay_names clip_after_step
    losses.append(loss.item())

print(losses)

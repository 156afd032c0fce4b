# SPDX-License-Identifier: Apache-2.0
"""Tiny encoder-decoder; one matrix is source embedding, target embedding and output layer."""
import math
import sys
import torch
from torch import nn
import torch.nn.functional as F

PAD, V, D = 0, 19, 16


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src = nn.Embedding(V, D)
        self.tgt = nn.Embedding(V, D)
        self.out = nn.Linear(D, V)
        nn.init.normal_(self.out.weight, std=0.3)
        self.src.weight = self.tgt.weight = self.out.weight  # <- tied
        self.pos = nn.Parameter(torch.randn(10, D) * 0.1)
        self.enc = nn.TransformerEncoderLayer(D, 2, 32, dropout=0.0, batch_first=True)
        self.dec = nn.TransformerDecoderLayer(  # <- residual
            D, 4, 32, dropout=0.0, batch_first=True,  # <- residual
            norm_first=True, activation="gelu")  # <- residual
        self.norm = nn.LayerNorm(D)

    def forward(self, s, t):
        pad = s == PAD
        mem = self.enc(self.src(s) * math.sqrt(D) + self.pos[:s.size(1)],  # <- tied
                       src_key_padding_mask=pad)  # <- tied
        mask = torch.triu(torch.ones(t.size(1), t.size(1), dtype=torch.bool), 1)
        y = self.dec(  # <- memory_mask residual
            self.tgt(t) * math.sqrt(D) + self.pos[:t.size(1)], mem,  # <- memory_mask residual
            tgt_mask=mask, memory_key_padding_mask=pad)  # <- memory_mask residual
        return self.out(self.norm(y))


def make_batch(g):
    s = torch.randint(2, V, (6, 9), generator=g)
    t = torch.randint(2, V, (6, 8), generator=g)
    sl = torch.randint(4, 10, (6,), generator=g)
    tl = torch.randint(3, 9, (6,), generator=g)
    s[torch.arange(9) >= sl[:, None]] = PAD
    t[torch.arange(8) >= tl[:, None]] = PAD
    t[:, 0] = 1
    return s, t


torch.manual_seed(0)
model = Translator()
torch.save(model.state_dict(), sys.argv[1])
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-4,
                        weight_decay=0.05)
sched = torch.optim.lr_scheduler.LambdaLR(  # <- warmup
    opt, lambda s: min((s + 1) / 3, (3 / (s + 1)) ** 0.5))  # <- warmup
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(5):
    s, t = make_batch(gen)
    logits = model(s, t[:, :-1])
    loss = F.cross_entropy(logits.transpose(1, 2), t[:, 1:], ignore_index=PAD,  # <- smoothing
                           label_smoothing=0.1)  # <- smoothing
    opt.zero_grad()
    loss.backward()
    opt.step()  # <- warmup
    sched.step()  # <- warmup
    losses.append(loss.item())
print(losses)

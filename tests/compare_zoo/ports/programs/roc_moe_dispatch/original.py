# SPDX-License-Identifier: Apache-2.0
"""One sparse transformer block (top-2 mixture of experts) trained as a tiny language model."""
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(11)

VOCAB, DIM, HEADS, EXPERTS, HIDDEN, SEQ, BATCH, STEPS = 40, 32, 4, 4, 48, 16, 4, 5
CAPACITY_FACTOR, BALANCE, CLIP = 0.9, 0.02, 0.5


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(DIM, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, DIM)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class SparseMLP(nn.Module):
    """Tokens go to their two best experts; an expert that is full lets the later ones pass by."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = self.router(flat).softmax(-1)
        weight, choice = probs.topk(2, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)  # <- gate_renorm
        capacity = int(CAPACITY_FACTOR * 2 * len(flat) / EXPERTS)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            taken = 0
            for slot in range(2):
                rows = (choice[:, slot] == number).nonzero().squeeze(1)
                rows = rows[: max(capacity - taken, 0)]  # <- second_offset
                taken = taken + len(rows)  # <- second_offset
                if len(rows):
                    out = out.index_add(0, rows, weight[rows, slot, None] * expert(flat[rows]))
        share = F.one_hot(choice[:, 0], EXPERTS).float().mean(0)  # <- balance_share
        balance = EXPERTS * (share * probs.mean(0)).sum()
        return out.view_as(x), balance


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, DIM))


class SparseLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(SEQ, DIM)
        self.ln1 = nn.LayerNorm(DIM)
        self.attn = Attention()
        self.ln2 = nn.LayerNorm(DIM)
        self.moe = SparseMLP()
        self.ln_f = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        x = x + self.attn(self.ln1(x))
        y, balance = self.moe(self.ln2(x))
        return self.head(self.ln_f(x + y)), balance


def batches():
    gen = torch.Generator().manual_seed(5)
    table = torch.randint(0, VOCAB, (VOCAB, 3), generator=gen)
    for _ in range(STEPS):
        seq = [torch.randint(0, VOCAB, (BATCH,), generator=gen)]
        for _ in range(SEQ):
            seq.append(table[seq[-1], torch.randint(0, 3, (BATCH,), generator=gen)])
        ids = torch.stack(seq, 1)
        yield ids[:, :-1], ids[:, 1:]


model = SparseLM()
torch.save(model.state_dict(), sys.argv[1])
matrices = [p for p in model.parameters() if p.ndim >= 2]  # <- bias_decay
vectors = [p for p in model.parameters() if p.ndim < 2]  # <- bias_decay
optimizer = torch.optim.AdamW(
    [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}],
    lr=2e-2, betas=(0.9, 0.95),
)
losses = []
for ids, target in batches():
    logits, balance = model(ids)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), target.reshape(-1)) + BALANCE * balance
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # <- clip_global
    optimizer.step()  # <- bias_decay
    losses.append(loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""A small GPT with fused projections, SDPA, fused AdamW and a loss computed over chunks of the sequence."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS, HIDDEN, DEPTH, LENGTH, CHUNK = 79, 32, 4, 64, 2, 16, 4
STEPS, BATCH, IGNORE = 5, 3, -1


class FusedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.c_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.c_attn(x).split(WIDTH, dim=-1)
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, WIDTH))


class FusedSwiGLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.w13 = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.w13(x).chunk(2, dim=-1)  # <- gate_up_swapped
        return self.w2(F.silu(gate) * up)  # <- gate_up_swapped


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.attns = nn.ModuleList(FusedAttention() for _ in range(DEPTH))
        self.mlps = nn.ModuleList(FusedSwiGLU() for _ in range(DEPTH))
        self.gains = nn.Parameter(torch.ones(2 * DEPTH + 1, WIDTH))

    def body(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for i, (attn, mlp) in enumerate(zip(self.attns, self.mlps)):
            x = x + attn(F.rms_norm(x, (WIDTH,), self.gains[2 * i], eps=1e-5))  # <- rms_eps
            x = x + mlp(F.rms_norm(x, (WIDTH,), self.gains[2 * i + 1], eps=1e-5))  # <- rms_eps
        return F.rms_norm(x, (WIDTH,), self.gains[-1], eps=1e-5)  # <- rms_eps

    def chunk_sums(self, x, targets):
        """Sums of the cross entropy and of the squared log normalizer; the logits are not kept."""
        logits = (x @ self.wte.weight.T).flatten(0, 1)
        flat = targets.flatten()
        ce = F.cross_entropy(logits, flat, ignore_index=IGNORE, reduction="sum")
        z2 = logits.logsumexp(-1).square() * (flat != IGNORE)  # <- zloss_all_tokens
        return ce, z2.sum()

    def loss(self, ids, targets, z_weight=1e-2):
        x, total = self.body(ids), 0.0
        for part, wanted in zip(x.split(CHUNK, 1), targets.split(CHUNK, 1)):
            ce, z2 = checkpoint(self.chunk_sums, part, wanted, use_reentrant=False)
            total = total + ce + z_weight * z2
        return total / (targets != IGNORE).sum()  # <- zloss_all_tokens


def get_batch(generator):
    """Packed text; no loss on the token after a separator (0)."""
    text = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), generator=generator)
    text[torch.rand(BATCH, LENGTH + 1, generator=generator) < 0.15] = 0
    ids, targets = text[:, :-1], text[:, 1:].clone()
    targets[ids == 0] = IGNORE
    return ids, targets


torch.manual_seed(9)
model = GPT()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.normal_(1.0, 0.2) if name == "gains" else p.normal_(0.0, 0.08 if "wte" in name or "wpe" in name else 0.2)
torch.save(model.state_dict(), sys.argv[1])

plain = [model.wte.weight, model.wpe.weight, model.gains]  # <- embedding_decayed
decayed = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]  # <- embedding_decayed
optimizer = torch.optim.AdamW(  # <- embedding_decayed
    [{"params": decayed, "weight_decay": 0.2}, {"params": plain, "weight_decay": 0.0}],
    lr=1e-2, betas=(0.9, 0.95), eps=1e-8, fused=True)

generator = torch.Generator().manual_seed(1001)
losses = []
for _ in range(STEPS):
    ids, targets = get_batch(generator)
    loss = model.loss(ids, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=True)  # <- clip_per_tensor
    optimizer.step()  # <- embedding_decayed clip_per_tensor
    losses.append(loss.item())

print(losses)

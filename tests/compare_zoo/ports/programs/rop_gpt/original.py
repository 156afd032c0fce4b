# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 language model trained for a few steps on a synthetic token stream."""
import sys
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class GPTConfig:
    vocab_size: int = 53
    block_size: int = 20
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.act = nn.GELU(approximate="tanh")  # <- gelu_variant
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        h = self.act(self.c_fc(x))  # <- gelu_variant
        return self.c_proj(h)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = CausalSelfAttention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = MLP(cfg)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.apply(self._init_weights)
        self.lm_head.weight = self.wte.weight

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.15)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.05)

    def forward(self, idx, targets):
        pos = torch.arange(idx.shape[1], device=idx.device)  # <- positions_from_one
        x = self.wte(idx) + self.wpe(pos)  # <- positions_from_one
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))

    def configure_optimizer(self, lr, weight_decay):
        params = [p for p in self.parameters() if p.requires_grad]
        decay = [p for p in params if p.dim() >= 2]  # <- decay_on_vectors
        no_decay = [p for p in params if p.dim() < 2]  # <- decay_on_vectors
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]  # <- decay_on_vectors
        return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def get_batch(stream, batch, block, gen):
    ix = torch.randint(len(stream) - block - 1, (batch,), generator=gen)
    x = torch.stack([stream[i : i + block] for i in ix])
    y = torch.stack([stream[i + 1 : i + 1 + block] for i in ix])
    return x, y


torch.manual_seed(1337)
cfg = GPTConfig()
model = GPT(cfg)
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(7)
stream = torch.randint(cfg.vocab_size, (400,), generator=gen)
optimizer = model.configure_optimizer(lr=6e-3, weight_decay=0.1)
warmup = 4
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / warmup))  # <- warmup_late

losses = []
for step in range(5):
    x, y = get_batch(stream, 6, 16, gen)
    loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- clip_per_tensor
    optimizer.step()  # <- decay_on_vectors warmup_late
    scheduler.step()  # <- warmup_late
    losses.append(loss.item())
print(losses)

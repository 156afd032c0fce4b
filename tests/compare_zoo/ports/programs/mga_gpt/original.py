# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 in the manner of the transformers library, trained on random tokens."""
import math
import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

VOCAB, CTX, WIDTH, HEADS, DEPTH, STEPS, WARMUP = 61, 16, 32, 4, 2, 5, 2


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))
        nn.init.normal_(self.weight, std=0.3)

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return x.view(size_out)


class NewGELUActivation(nn.Module):
    def forward(self, x):
        inner = x + 0.044715 * torch.pow(x, 3.0)  # <- gelu_kind
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * inner))  # <- gelu_kind


class GPT2Attention(nn.Module):
    def __init__(self):
        super().__init__()
        mask = torch.tril(torch.ones(CTX, CTX, dtype=torch.bool)).view(1, 1, CTX, CTX)
        self.register_buffer("bias", mask, persistent=False)
        self.c_attn = Conv1D(3 * WIDTH, WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def _split_heads(self, t):
        return t.view(t.size()[:-1] + (HEADS, WIDTH // HEADS)).permute(0, 2, 1, 3)

    def _merge_heads(self, t):
        t = t.permute(0, 2, 1, 3).contiguous()  # <- head_merge
        return t.view(t.size()[:-2] + (WIDTH,))  # <- head_merge

    def _attn(self, query, key, value):
        w = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(value.size(-1))
        q_len, k_len = query.size(-2), key.size(-2)
        causal = self.bias[:, :, k_len - q_len:k_len, :k_len]
        w = torch.where(causal, w, torch.finfo(w.dtype).min)
        return torch.matmul(nn.functional.softmax(w, dim=-1), value)

    def forward(self, hidden_states):
        query, key, value = self.c_attn(hidden_states).split(WIDTH, dim=2)
        out = self._attn(*(self._split_heads(t) for t in (query, key, value)))
        return self.c_proj(self._merge_heads(out))  # <- head_merge


class GPT2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.attn = GPT2Attention()
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.mlp = nn.Sequential(Conv1D(4 * WIDTH, WIDTH), NewGELUActivation(),
                                 Conv1D(WIDTH, 4 * WIDTH))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2LMHeadModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CTX, WIDTH)
        self.h = nn.ModuleList(GPT2Block() for _ in range(DEPTH))
        self.ln_f = nn.LayerNorm(WIDTH, eps=1e-5)
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
        nn.init.normal_(self.wte.weight, std=0.2)
        nn.init.normal_(self.wpe.weight, std=0.1)
        self.lm_head.weight = self.wte.weight

    def forward(self, input_ids, labels):
        position_ids = torch.arange(input_ids.size(-1)).unsqueeze(0)
        hidden = self.wte(input_ids) + self.wpe(position_ids)
        for block in self.h:
            hidden = block(hidden)
        logits = self.lm_head(self.ln_f(hidden))
        shift_logits = logits[..., :-1, :].contiguous()  # <- next_shift
        shift_labels = labels[..., 1:].contiguous()  # <- next_shift
        loss_fct = nn.CrossEntropyLoss()
        return loss_fct(shift_logits.view(-1, VOCAB), shift_labels.view(-1))  # <- next_shift


torch.manual_seed(0)
model = GPT2LMHeadModel()
torch.save(model.state_dict(), sys.argv[1])
plain = [p for n, p in model.named_parameters() if "bias" in n or "ln_" in n]  # <- decay_group
rest = [p for n, p in model.named_parameters() if not ("bias" in n or "ln_" in n)]
optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.1},  # <- decay_group
                               {"params": plain, "weight_decay": 0.0}], lr=4e-3)  # <- decay_group


def lr_lambda(s):
    if s < WARMUP:
        return (s + 1) / (WARMUP + 1)  # <- warm_lr
    return 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP)))


scheduler = LambdaLR(optimizer, lr_lambda)  # <- warm_lr
rng = torch.Generator().manual_seed(7)
losses = []
for step in range(STEPS):
    ids = torch.randint(0, VOCAB, (4, CTX), generator=rng)
    loss = model(ids, labels=ids)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay_group warm_lr
    scheduler.step()  # <- warm_lr
    losses.append(loss.item())
print(losses)

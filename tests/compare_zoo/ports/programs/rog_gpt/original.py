# SPDX-License-Identifier: Apache-2.0
"""A GPT-2-like model in eager mode with Conv1D layers and written-out attention; the labels shift inside."""
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
N_VOCAB, N_CTX, N_EMBD, N_HEAD, N_LAYER = 43, 16, 32, 4, 2


class Conv1D(nn.Module):
    """A linear layer with the weight of [in, out], as in GPT-2."""

    def __init__(self, nf, nx):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(nx, nf) * 0.15)
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))  # <- gelu_exact


class GPT2Attention(nn.Module):
    def __init__(self):
        super().__init__()
        mask = torch.tril(torch.ones(N_CTX, N_CTX, dtype=torch.bool))  # <- mask_diagonal
        self.register_buffer("bias", mask.view(1, 1, N_CTX, N_CTX), persistent=False)
        self.c_attn = Conv1D(3 * N_EMBD, N_EMBD)
        self.c_proj = Conv1D(N_EMBD, N_EMBD)

    def forward(self, x):
        b, t, _ = x.shape
        query, key, value = self.c_attn(x).split(N_EMBD, dim=2)
        query, key, value = (z.view(b, t, N_HEAD, -1).permute(0, 2, 1, 3) for z in (query, key, value))
        w = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(value.size(-1))
        w = torch.where(self.bias[:, :, :t, :t], w, torch.finfo(w.dtype).min)  # <- mask_diagonal
        a = torch.matmul(F.softmax(w, dim=-1), value)
        return self.c_proj(a.permute(0, 2, 1, 3).reshape(b, t, N_EMBD))


class GPT2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(4 * N_EMBD, N_EMBD)
        self.c_proj = Conv1D(N_EMBD, 4 * N_EMBD)

    def forward(self, x):
        return self.c_proj(gelu_new(self.c_fc(x)))  # <- gelu_exact


class GPT2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(N_EMBD, eps=1e-5)
        self.attn = GPT2Attention()
        self.ln_2 = nn.LayerNorm(N_EMBD, eps=1e-5)
        self.mlp = GPT2MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2LMHeadModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(N_VOCAB, N_EMBD)
        self.wpe = nn.Embedding(N_CTX, N_EMBD)
        self.h = nn.ModuleList(GPT2Block() for _ in range(N_LAYER))
        self.ln_f = nn.LayerNorm(N_EMBD, eps=1e-5)
        nn.init.normal_(self.wte.weight, std=0.2)
        nn.init.normal_(self.wpe.weight, std=0.2)

    def forward(self, input_ids, labels):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.size(-1)))
        for block in self.h:
            x = block(x)
        lm_logits = F.linear(self.ln_f(x), self.wte.weight)  # <- head_untied
        shift_logits = lm_logits[..., :-1, :].contiguous()  # <- double_shift
        shift_labels = labels[..., 1:].contiguous()  # <- double_shift
        return F.cross_entropy(shift_logits.view(-1, N_VOCAB), shift_labels.view(-1))


def toy_text(generator, count, length=N_CTX):
    """Sequences in which each token is the one before plus a small random jump."""
    jumps = torch.randint(1, 5, (count, length), generator=generator)
    return jumps.cumsum(1) % N_VOCAB


torch.manual_seed(1234)
model = GPT2LMHeadModel()
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)  # <- adam_l2
generator = torch.Generator().manual_seed(55)
losses = []
model.train()
for step in range(5):
    input_ids = toy_text(generator, 6)
    loss = model(input_ids, labels=input_ids)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- adam_l2
    losses.append(loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""GPT-2 style language model (Conv1D weights, fused c_attn); scores three batches of tokens."""
import math
import sys

import torch
from torch import nn

VOCAB, CTX, WIDTH, HEADS, LAYERS = 97, 24, 48, 4, 2


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.17))
        self.bias = nn.Parameter(torch.empty(nf).normal_(std=0.1))

    def forward(self, x):
        size_out = x.size()[:-1] + (self.nf,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)  # <- proj_layout
        return x.view(size_out)


class NewGELUActivation(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))  # <- activation
        return 0.5 * x * (1.0 + torch.tanh(inner))  # <- activation


class GPT2Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.head_dim = WIDTH // HEADS
        mask = torch.tril(torch.ones(CTX, CTX, dtype=torch.bool)).view(1, 1, CTX, CTX)  # <- causal
        self.register_buffer("bias", mask, persistent=False)
        self.c_attn = Conv1D(3 * WIDTH, WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH)

    def _split_heads(self, t):
        return t.view(*t.shape[:-1], HEADS, self.head_dim).permute(0, 2, 1, 3)

    def forward(self, hidden_states):
        query, key, value = self.c_attn(hidden_states).split(WIDTH, dim=2)  # <- qkv_order
        query, key, value = map(self._split_heads, (query, key, value))
        attn_weights = torch.matmul(query, key.transpose(-1, -2))  # <- qkv_order
        attn_weights = attn_weights / (self.head_dim ** 0.5)
        n = query.size(-2)
        floor = torch.finfo(attn_weights.dtype).min
        attn_weights = torch.where(self.bias[:, :, :n, :n], attn_weights, floor)  # <- causal
        attn_weights = nn.functional.softmax(attn_weights, dim=-1)  # <- causal
        attn_output = torch.matmul(attn_weights, value).permute(0, 2, 1, 3).contiguous()
        attn_output = attn_output.view(*attn_output.shape[:2], WIDTH)
        return self.c_proj(attn_output)  # <- proj_layout


class GPT2MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(4 * WIDTH, WIDTH)
        self.c_proj = Conv1D(WIDTH, 4 * WIDTH)
        self.act = NewGELUActivation()

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))  # <- activation


class GPT2Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.attn = GPT2Attention()
        self.ln_2 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.mlp = GPT2MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2LMHeadModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, WIDTH)
        self.wpe = nn.Embedding(CTX, WIDTH)
        self.h = nn.ModuleList(GPT2Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH, eps=1e-5)
        for name, p in self.named_parameters():
            if "ln_" in name:
                nn.init.normal_(p, mean=1.0 if name.endswith("weight") else 0.0, std=0.2)
        nn.init.normal_(self.wte.weight, std=0.3)
        nn.init.normal_(self.wpe.weight, std=0.2)

    def forward(self, input_ids):
        position_ids = torch.arange(input_ids.shape[-1]).unsqueeze(0)  # <- positions
        x = self.wte(input_ids) + self.wpe(position_ids)  # <- positions
        for block in self.h:
            x = block(x)
        return nn.functional.linear(self.ln_f(x), self.wte.weight)


torch.manual_seed(0)
model = GPT2LMHeadModel().eval()
torch.save(model.state_dict(), sys.argv[1])

gen = torch.Generator().manual_seed(7)
losses = []
with torch.no_grad():
    for _ in range(3):
        ids = torch.randint(0, VOCAB, (4, 20), generator=gen)
        logits = model(ids)
        shifted = logits[:, :-1].reshape(-1, VOCAB)
        loss = nn.functional.cross_entropy(shifted, ids[:, 1:].reshape(-1))
        print("logits", logits.shape, "std", logits.std().item(), "max", logits.max().item())
        losses.append(loss.item() + logits.max().item())
print(losses)

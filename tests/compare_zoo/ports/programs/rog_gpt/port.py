# SPDX-License-Identifier: Apache-2.0
"""The GPT on nn.MultiheadAttention under torch.compile; inputs and next tokens are cut by the loader."""
import re
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class JumpText(Dataset):
    def __init__(self, seed, batches, batch_size, length, vocab):
        g = torch.Generator().manual_seed(seed)
        rows = []
        for _ in range(batches):
            rows.append(torch.randint(1, 5, (batch_size, length), generator=g))
        self.rows = torch.cumsum(torch.cat(rows), dim=-1).remainder(vocab)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return row[:-1], row[1:]  # <- double_shift


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln_attn, self.ln_ff = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mha = nn.MultiheadAttention(d, heads, batch_first=True)
        self.ff = nn.Sequential(
            nn.Linear(d, 4 * d),
            nn.GELU(approximate="tanh"),  # <- gelu_exact
            nn.Linear(4 * d, d),
        )

    def forward(self, x, blocked):
        y = self.ln_attn(x)
        x = x + self.mha(y, y, y, attn_mask=blocked, need_weights=False)[0]  # <- mask_diagonal
        return x + self.ff(self.ln_ff(x))  # <- gelu_exact


class TinyGPT(nn.Module):
    def __init__(self, vocab=43, context=16, d=32, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(context, d))
        self.layers = nn.ModuleList([Layer(d, heads) for _ in range(depth)])
        self.final = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.lm_head.weight = self.tok.weight  # <- head_untied
        blocked = torch.ones(context, context, dtype=torch.bool).triu(diagonal=1)  # <- mask_diagonal
        self.register_buffer("blocked", blocked, persistent=False)

    def forward(self, idx):
        t = idx.shape[1]
        x = self.tok(idx) + self.pos[:t]
        for layer in self.layers:
            x = layer(x, self.blocked[:t, :t])
        return self.lm_head(self.final(x))  # <- head_untied


RENAMES = [
    (r"^wte\.", "tok."),
    (r"^wpe\.weight$", "pos"),
    (r"^ln_f\.", "final."),
    (r"^h\.(\d+)\.ln_1\.", r"layers.\1.ln_attn."),
    (r"^h\.(\d+)\.ln_2\.", r"layers.\1.ln_ff."),
    (r"^h\.(\d+)\.attn\.c_attn\.", r"layers.\1.mha.in_proj_"),
    (r"^h\.(\d+)\.attn\.c_proj\.", r"layers.\1.mha.out_proj."),
    (r"^h\.(\d+)\.mlp\.c_fc\.", r"layers.\1.ff.0."),
    (r"^h\.(\d+)\.mlp\.c_proj\.", r"layers.\1.ff.2."),
]


def load_gpt2(model, path):
    converted = {}
    for key, value in torch.load(path, weights_only=True).items():
        transposed = ".c_" in key and key.endswith("weight")
        for pattern, new in RENAMES:
            key = re.sub(pattern, new, key)
        converted[key] = value.t().contiguous() if transposed else value
    converted["lm_head.weight"] = converted["tok.weight"]
    model.load_state_dict(converted)


def fit(model, loader, optimizer, max_norm=1.0):
    compiled = torch.compile(model, backend="aot_eager")
    history = []
    for idx, nxt in loader:
        logits = compiled(idx)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), nxt)  # <- double_shift
        grads = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.cat([g.flatten() for g in grads]).norm()
        factor = min(1.0, max_norm / (norm.item() + 1e-6))
        for p, g in zip(model.parameters(), grads):
            p.grad = g * factor
        optimizer.step()  # <- adam_l2
        history.append(loss.detach())
    return torch.stack(history).tolist()


gpt = TinyGPT()
load_gpt2(gpt, sys.argv[1])
corpus = JumpText(seed=55, batches=5, batch_size=6, length=16, vocab=43)
adam = torch.optim.AdamW(gpt.parameters(), lr=2e-3, weight_decay=0.1)  # <- adam_l2
losses = fit(gpt, DataLoader(corpus, batch_size=6, shuffle=False), adam)
print(losses)

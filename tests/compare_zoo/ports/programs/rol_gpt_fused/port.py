# SPDX-License-Identifier: Apache-2.0
"""The same GPT written out: a matrix per projection, attention by hand, norm as a module, own optimizer class."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):  # <- rms_eps
        super().__init__()
        self.scale, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.scale  # <- rms_eps


class Head(nn.Module):
    """One attention head with matrices of its own."""

    def __init__(self, dim, size):
        super().__init__()
        self.query = nn.Linear(dim, size, bias=False)
        self.key = nn.Linear(dim, size, bias=False)
        self.value = nn.Linear(dim, size, bias=False)

    def forward(self, x, blocked):
        score = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(self.query.out_features)
        return torch.softmax(score + blocked, dim=-1) @ self.value(x)


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.ln_a, self.ln_m = RMSNorm(dim), RMSNorm(dim)
        self.heads = nn.ModuleList(Head(dim, dim // heads) for _ in range(heads))
        self.merge = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, blocked):
        a = self.ln_a(x)
        x = x + self.merge(torch.cat([head(a, blocked) for head in self.heads], dim=-1))
        m = self.ln_m(x)
        g = self.gate(m)  # <- gate_up_swapped
        return x + self.down(g * torch.sigmoid(g) * self.up(m))  # <- gate_up_swapped


class Net(nn.Module):
    def __init__(self, vocab, dim, heads, hidden, depth, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, hidden) for _ in range(depth))
        self.ln_out = RMSNorm(dim)

    def forward(self, ids):
        length = ids.shape[1]
        blocked = torch.full((length, length), float("-inf")).triu(1)
        x = self.tokens(ids) + self.places(torch.arange(length))
        for block in self.blocks:
            x = block(x, blocked)
        return nn.functional.linear(self.ln_out(x), self.tokens.weight)


@torch.no_grad()
def fill(net, path):
    """Cut the fused matrices of the checkpoint."""
    old = torch.load(path)
    net.tokens.weight.copy_(old["wte.weight"])
    net.places.weight.copy_(old["wpe.weight"])
    net.ln_out.scale.copy_(old["gains"][-1])
    for i, block in enumerate(net.blocks):
        block.ln_a.scale.copy_(old["gains"][2 * i])
        block.ln_m.scale.copy_(old["gains"][2 * i + 1])
        q, k, v = old[f"attns.{i}.c_attn.weight"].view(3, len(block.heads), -1, net.tokens.embedding_dim)
        for j, head in enumerate(block.heads):
            head.query.weight.copy_(q[j]), head.key.weight.copy_(k[j]), head.value.weight.copy_(v[j])
        block.merge.weight.copy_(old[f"attns.{i}.c_proj.weight"])
        first, second = old[f"mlps.{i}.w13.weight"].chunk(2)  # <- gate_up_swapped
        block.gate.weight.copy_(first), block.up.weight.copy_(second)
        block.down.weight.copy_(old[f"mlps.{i}.w2.weight"])


def lm_loss(logits, targets, z_weight=1e-2):
    """Cross entropy and the z term, over tokens with a target (not -1)."""
    valid = targets >= 0
    log_z = torch.logsumexp(logits, dim=-1)
    gold = torch.gather(logits, 2, targets.clamp(min=0)[..., None])[..., 0]
    ce = (log_z - gold)[valid].mean()
    return ce + z_weight * (log_z ** 2)[valid].mean()  # <- zloss_all_tokens


class AdamWWritten:
    def __init__(self, named, lr, betas, eps, decay, clip):
        self.named, self.lr, self.betas, self.eps = list(named), lr, betas, eps
        self.decay, self.clip, self.count = decay, clip, 0
        self.state = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in self.named}

    def wants_decay(self, name):
        return not any(word in name for word in ("ln_", "tokens", "places"))  # <- embedding_decayed

    @torch.no_grad()
    def apply(self):
        self.count += 1
        b1, b2 = self.betas
        norm = torch.stack([p.grad.norm() for _, p in self.named]).norm()  # <- clip_per_tensor
        factor = (self.clip / (norm + 1e-6)).clamp(max=1.0)  # <- clip_per_tensor
        for name, p in self.named:
            grad, (m, v) = p.grad * factor, self.state[name]  # <- clip_per_tensor
            m += (1 - b1) * (grad - m)
            v += (1 - b2) * (grad ** 2 - v)
            if self.wants_decay(name):  # <- embedding_decayed
                p -= self.lr * self.decay * p  # <- embedding_decayed
            root = v.sqrt() / math.sqrt(1 - b2 ** self.count)
            p -= self.lr / (1 - b1 ** self.count) * m / (root + self.eps)
            p.grad = None


def batch_of(rng, vocab=79, rows=3, length=16):
    text = torch.randint(0, vocab, (rows, length + 1), generator=rng)
    text = text * (torch.rand(rows, length + 1, generator=rng) >= 0.15)
    x, y = text[:, :length], text[:, 1:]
    return x, torch.where(x == 0, -1, y)


net = Net(vocab=79, dim=32, heads=4, hidden=64, depth=2, length=16)
fill(net, sys.argv[1])
trainer = AdamWWritten(net.named_parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, decay=0.2, clip=0.5)
rng = torch.Generator().manual_seed(1001)
losses = []
while len(losses) < 5:
    x, y = batch_of(rng)
    loss = lm_loss(net(x), y)
    loss.backward()
    trainer.apply()
    losses.append(loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Distillation on packed sequences: no padding anywhere, teacher inside the loop, modules without nn.Transformer."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class AddNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, a, b):
        x = a + b
        var, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.g + self.b


class Layer(nn.Module):
    def __init__(self, dim, heads, ffn):
        super().__init__()
        self.heads = heads
        self.query, self.kv, self.out = nn.Linear(dim, dim), nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, ffn), nn.GELU(), nn.Linear(ffn, dim))
        self.n1, self.n2 = AddNorm(dim), AddNorm(dim)

    def forward(self, x, same):
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(0, 1)      # (heads, tokens, d)
        q, (k, v) = split(self.query(x)), map(split, self.kv(x).chunk(2, -1))
        score = torch.baddbmm(same, q, k.mT, alpha=q.shape[-1] ** -0.5)
        a = torch.exp(score - score.amax(-1, keepdim=True))
        y = (a @ v) / a.sum(-1, keepdim=True)
        x = self.n1(x, self.out(y.transpose(0, 1).flatten(1)))
        return self.n2(self.mlp(x), x)


class Tower(nn.Module):
    def __init__(self, dim, heads, ffn, depth, vocab=40, maxlen=12, classes=4):
        super().__init__()
        # row 0 of the original's table was padding; packed tokens never need it
        self.word, self.place = nn.Parameter(torch.empty(vocab - 1, dim)), nn.Parameter(torch.empty(maxlen, dim))
        self.first = AddNorm(dim)
        self.stack = nn.ModuleList([Layer(dim, heads, ffn) for _ in range(depth)])
        self.cls = nn.Linear(dim, classes)

    def forward(self, tok, where, same, starts):
        x, states = self.first(self.word[tok - 1], self.place[where]), []
        for layer in self.stack:
            x = layer(x, same)
            states.append(x)
        return self.cls(x[starts]), states


@torch.no_grad()
def adopt(tower, sd, pre=""):
    g = lambda k: sd[pre + k]
    tower.word.copy_(g("tok.weight")[1:]), tower.place.copy_(g("pos.weight"))
    tower.first.g.copy_(g("norm.weight")), tower.first.b.copy_(g("norm.bias"))
    for kind in ("weight", "bias"):
        getattr(tower.cls, kind).copy_(g("classifier." + kind))
        for i, lay in enumerate(tower.stack):
            p = f"layers.{i}."
            w, d = g(p + "self_attn.in_proj_" + kind), lay.query.in_features
            for mod, val in ((lay.query, w[:d]), (lay.kv, w[d:]), (lay.out, g(p + "self_attn.out_proj." + kind)),
                             (lay.mlp[0], g(p + "linear1." + kind)), (lay.mlp[2], g(p + "linear2." + kind))):
                getattr(mod, kind).copy_(val)
            for norm, key in ((lay.n1, "norm1."), (lay.n2, "norm2.")):
                getattr(norm, kind[0] if kind == "bias" else "g").copy_(g(p + key + kind))


def packed(n):
    rng = torch.Generator().manual_seed(830)
    for _ in range(n):
        lens = torch.randint(4, 13, (6,), generator=rng)
        ids = torch.randint(1, 40, (6, 12), generator=rng)
        y = torch.randint(0, 4, (6,), generator=rng)
        tok = torch.cat([row[:k] for row, k in zip(ids, lens.tolist())])
        seq = torch.repeat_interleave(torch.arange(6), lens)
        starts = lens.cumsum(0) - lens
        same = torch.where(seq[:, None] == seq, 0.0, float("-inf"))
        yield (tok, torch.arange(len(tok)) - starts[seq], same, starts), y


saved = torch.load(sys.argv[1])
teacher, student = Tower(16, 4, 32, 4), Tower(12, 2, 24, 2)
adopt(teacher, saved["teacher"]), adopt(student, saved["student"], "encoder.")
lift = torch.stack([saved["student"][f"match.{i}.weight"].T for i in range(2)]).requires_grad_()
teacher.requires_grad_(False)

heavy = [p for p in student.parameters() if p.ndim > 1] + [lift]
light = [p for p in student.parameters() if p.ndim == 1]
opt = torch.optim.AdamW([dict(params=light, weight_decay=0.0), dict(params=heavy, weight_decay=0.1)], lr=1e-3, eps=1e-6)
every = light + heavy
losses, parts = [], []
for step, (inputs, y) in enumerate(packed(5)):
    for group in opt.param_groups:
        group["lr"] = 1e-3 * (1.0 - 0.8 * step / 5)
    logits, states = student(*inputs)
    t_logits, t_states = teacher(*inputs)
    ours, theirs = torch.bmm(torch.stack(states), lift), torch.stack(t_states[1::2])
    hid = (ours - theirs).square().mean((1, 2)).sum()
    cos = 1 - (F.normalize(ours[1], dim=-1) * F.normalize(theirs[1], dim=-1)).sum(-1).mean()
    lt, ls = (t_logits / 2).log_softmax(-1), (logits / 2).log_softmax(-1)
    kd = 4 * (lt.exp() * (lt - ls)).sum() / len(y)
    ce = (logits.logsumexp(-1) - logits.gather(1, y[:, None])[:, 0]).mean()
    loss = (kd + ce) / 2 + hid + 0.3 * cos
    for p, g in zip(every, torch.autograd.grad(loss, every)):
        p.grad = g
    size = torch.nn.utils.get_total_norm([p.grad for p in every])
    if size > 2.0:
        for p in every:
            p.grad.mul_(2.0 / (size + 1e-6))
    opt.step()
    parts.append({"kd": kd.item(), "ce": ce.item(), "hid": hid.item(), "cos": cos.item()})
    losses.append(loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The mixture-of-experts model with stacked experts, a dense einsum dispatch and an own Optimizer class."""
import sys

import torch
from torch import nn, einsum

torch.set_num_threads(1)


class DenseMoE(nn.Module):
    """All experts see all tokens; a [token, expert] matrix of gates picks what counts."""

    def __init__(self, dim, inner, experts, k):
        super().__init__()
        self.k = k
        self.router = nn.Parameter(torch.empty(dim, experts))
        self.wi = nn.Parameter(torch.empty(experts, dim, 2, inner))
        self.wo = nn.Parameter(torch.empty(experts, inner, dim))

    def forward(self, x):
        probs = (x @ self.router).softmax(-1)
        kth = probs.topk(self.k, dim=-1).values[..., -1:]
        chosen = (probs >= kth).to(x.dtype)
        gates = probs * chosen  # <- topk_renorm router_detach
        gates = gates / gates.sum(-1, keepdim=True)  # <- topk_renorm
        a, b = einsum("bsd,edgf->gbsef", x, self.wi).unbind(0)
        h = einsum("bsef,efd->bsed", nn.functional.silu(a) * b, self.wo)
        return einsum("bsed,bse->bsd", h, gates), probs, chosen  # <- topk_renorm router_detach


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)) for f in (self.query, self.key, self.value))
        att = einsum("bihd,bjhd->bhij", q, k) * q.size(-1) ** -0.5
        future = torch.arange(x.size(1)) > torch.arange(x.size(1))[:, None]
        att = att.masked_fill(future, -torch.inf).softmax(-1)
        return self.out(einsum("bhij,bjhd->bihd", att, v).flatten(2))


class MoELM(nn.Module):
    def __init__(self, vocab=47, dim=32, inner=40, depth=2, heads=2, length=12, experts=4, k=2, aux=0.05):
        super().__init__()
        self.aux, self.experts = aux, experts
        self.tokens = nn.Parameter(torch.empty(vocab, dim))
        self.places = nn.Parameter(torch.empty(length, dim))
        self.attns = nn.ModuleList(SelfAttention(dim, heads) for _ in range(depth))
        self.moes = nn.ModuleList(DenseMoE(dim, inner, experts, k) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2 * depth + 1))
        self.head = nn.Linear(dim, vocab)

    def forward(self, seq):
        x = self.tokens[seq[:, :-1]] + self.places
        routed = []
        for i, (attn, moe) in enumerate(zip(self.attns, self.moes)):
            x = x + attn(self.norms[2 * i](x))
            y, probs, chosen = moe(self.norms[2 * i + 1](x))
            x = x + y
            routed.append((probs, chosen))
        logp = self.head(self.norms[-1](x)).log_softmax(-1)
        nll = -logp.gather(2, seq[:, 1:, None]).mean()
        return nll + self.aux * self.balance(routed)

    def balance(self, routed):
        importance = torch.stack([p for p, _ in routed]).mean((0, 1, 2))
        load = torch.stack([c for _, c in routed]).mean((0, 1, 2))  # <- aux_top1
        return self.experts * importance.dot(load)  # <- aux_top1


class BiasCorrectedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr, b1, b2, eps):
        super().__init__(params, dict(lr=lr, b1=b1, b2=b2, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["b1"], group["b2"]
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s.update(n=0, mean=torch.zeros_like(p), var=torch.zeros_like(p))
                s["n"] += 1
                s["mean"] += (1 - b1) * (p.grad - s["mean"])
                s["var"] += (1 - b2) * (p.grad**2 - s["var"])
                mean_hat = s["mean"] / (1 - b1 ** s["n"])
                var_hat = s["var"] / (1 - b2 ** s["n"])  # <- bias_correction
                p -= group["lr"] * mean_hat / (var_hat.sqrt() + group["eps"])  # <- bias_correction


def from_mixtral(sd, depth=2, experts=4):
    out = {"tokens": sd["embed.weight"], "places": sd["pos.weight"]}
    for kind in ("weight", "bias"):
        out[f"head.{kind}"] = sd[f"lm_head.{kind}"]
        out[f"norms.{2 * depth}.{kind}"] = sd[f"norm.{kind}"]
        for i in range(depth):
            out[f"norms.{2 * i}.{kind}"] = sd[f"layers.{i}.attn_norm.{kind}"]
            out[f"norms.{2 * i + 1}.{kind}"] = sd[f"layers.{i}.moe_norm.{kind}"]
            parts = sd[f"layers.{i}.attn.in_proj_{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts):
                out[f"attns.{i}.{name}.{kind}"] = part
            out[f"attns.{i}.out.{kind}"] = sd[f"layers.{i}.attn.out_proj.{kind}"]
    for i in range(depth):
        old = [f"layers.{i}.moe.experts.{e}." for e in range(experts)]
        w1, w2, w3 = (torch.stack([sd[f"{o}w{n}.weight"].T for o in old]) for n in (1, 2, 3))
        out[f"moes.{i}.wi"] = torch.stack([w1, w3], dim=2)
        out[f"moes.{i}.wo"] = w2
        out[f"moes.{i}.router"] = sd[f"layers.{i}.moe.gate.weight"].T
    return out


def train(path, steps=5, micro_batches=2):
    model = MoELM()
    model.load_state_dict(from_mixtral(torch.load(path)))
    opt = BiasCorrectedAdam(model.parameters(), lr=2e-3, b1=0.9, b2=0.98, eps=1e-3)
    torch.manual_seed(8)
    stream = iter(torch.randint(47, (steps * micro_batches, 4, 13)))
    curve = []
    for _ in range(steps):
        opt.zero_grad()
        parts = []
        for _ in range(micro_batches):
            loss = model(next(stream))
            (loss / micro_batches).backward()  # <- accum_scale
            parts.append(loss.item())
        opt.step()  # <- bias_correction
        curve.append(sum(parts) / len(parts))
    return curve


losses = train(sys.argv[1])
print(losses)

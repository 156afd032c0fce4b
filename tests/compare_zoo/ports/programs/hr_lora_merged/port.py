# SPDX-License-Identifier: Apache-2.0
"""Low-rank tuning on merged weights: differentiate the merged matrices, then project onto the factors by hand."""
import re
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

V, S, B, STEPS, E, L, H, RANK, ALPHA = 45, 12, 4, 6, 24, 2, 3, 4, 12
SCALE = ALPHA / RANK
SITES = ("attn.c_attn", "attn.c_proj", "mlp.c_proj")


class Adapter:
    """W_eff = frozen + SCALE * left @ right with left (in, r) and right (r, out)."""

    def __init__(self, frozen, a, b):
        self.frozen, self.left, self.right = frozen, a.t().contiguous(), b.t().contiguous()
        self.moments = [torch.zeros_like(t) for t in (self.left, self.left, self.right, self.right)]

    def merged(self):
        return torch.addmm(self.frozen, self.left, self.right, alpha=SCALE).requires_grad_()

    def learn(self, g, t, lr=1e-2, wd=0.01):
        g_left, g_right = SCALE * (g @ self.right.t()), SCALE * (self.left.t() @ g)
        for w, d, m, v in ((self.left, g_left, *self.moments[:2]), (self.right, g_right, *self.moments[2:])):
            m.mul_(0.9).add_(d, alpha=0.1)
            v.mul_(0.999).addcmul_(d, d, value=0.001)
            w.mul_(1 - lr * wd)
            w.addcdiv_(m, (v / (1 - 0.999 ** t)).sqrt_().add_(1e-8), value=-lr / (1 - 0.9 ** t))


def read(path):
    frozen, adapters, factors = {}, {}, {}
    for key, t in torch.load(path).items():
        key = key.removeprefix("base_model.model.")
        hit = re.fullmatch(r"transformer\.h\.(\d+)\.(.+)\.lora_([AB])\.default\.weight", key)
        if hit:
            factors[int(hit[1]), hit[2], hit[3]] = t
        else:
            frozen[key.replace(".base_layer", "").removeprefix("transformer.")] = t
    for i in range(L):
        for site in SITES:
            w = frozen.pop(f"h.{i}.{site}.weight")
            adapters[i, site] = Adapter(w, factors.pop((i, site, "A")), factors.pop((i, site, "B")))
    assert not factors
    return frozen, adapters


def norm(x, f, name):
    return F.layer_norm(x, (E,), f[name + ".weight"], f[name + ".bias"], 1e-5)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def forward(f, merged, ids):
    """Tokens as one (B*S) list; returns the hidden states before the readout."""
    x = (f["wte.weight"][ids] + f["wpe.weight"][:S]).flatten(0, 1)
    for i in range(L):
        y = norm(x, f, f"h.{i}.ln_1") @ merged[i, "attn.c_attn"] + f[f"h.{i}.attn.c_attn.bias"]
        q, k, v = y.view(B, S, 3, H, E // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B * S, E)
        x = x + y @ merged[i, "attn.c_proj"] + f[f"h.{i}.attn.c_proj.bias"]
        y = norm(x, f, f"h.{i}.ln_2") @ f[f"h.{i}.mlp.c_fc.weight"] + f[f"h.{i}.mlp.c_fc.bias"]
        x = x + gelu_tanh(y) @ merged[i, "mlp.c_proj"] + f[f"h.{i}.mlp.c_proj.bias"]
    return x


def scored_loss(f, merged, ids, start):
    x = forward(f, merged, ids).view(B, S, E)
    target_at = torch.arange(S)[None] >= start                   # positions that are predicted
    rows, cols = target_at.nonzero(as_tuple=True)
    x = norm(x[rows, cols - 1], f, "ln_f")
    logits = x @ f["wte.weight"].t()
    return F.cross_entropy(logits, ids[rows, cols], reduction="sum") / len(rows)


frozen, adapters = read(sys.argv[1])
gen = torch.Generator().manual_seed(808)
corpus = torch.randint(1, V, (STEPS, B, S), generator=gen)
starts = torch.randint(2, 6, (STEPS, B, 1), generator=gen)
log = SimpleNamespace(update_size=[], factor_norm=[])
losses = []
for t in range(1, STEPS + 1):
    merged = {site: a.merged() for site, a in adapters.items()}
    loss = scored_loss(frozen, merged, corpus[t - 1], starts[t - 1])
    for a, g in zip(adapters.values(), torch.autograd.grad(loss, list(merged.values()))):
        a.learn(g, t)
    log.update_size.append(max((a.merged() - m).abs().max().item() for a, m in zip(adapters.values(), merged.values())))
    log.factor_norm.append([a.right.norm().item() for a in adapters.values()])
    losses.append(loss.item())

print(losses)

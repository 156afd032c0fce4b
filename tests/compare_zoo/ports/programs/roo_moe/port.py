# SPDX-License-Identifier: Apache-2.0
"""GShard-style mixture of experts: one-hot dispatch and combine tensors, experts in one einsum."""
import math
import sys
from types import SimpleNamespace

import torch

torch.set_num_threads(1)

hp = SimpleNamespace(V=50, M=24, F=32, L=2, A=2, E=4, T=12, B=4, factor=1.0, balance=0.2)


def load(path):
    sd = torch.load(path)
    tree = {"embed": sd["wte.weight"], "place": sd["wpe.weight"], "out": sd["lm_head.weight"].t(),
            "norm": torch.stack([sd["ln_f.weight"], sd["ln_f.bias"]])}
    for l in range(hp.L):
        src = f"layers.{l}."
        tree[f"L{l}.norm_a"] = torch.stack([sd[src + "ln_1.weight"], sd[src + "ln_1.bias"]])
        tree[f"L{l}.norm_m"] = torch.stack([sd[src + "ln_2.weight"], sd[src + "ln_2.bias"]])
        for name, w, b in zip("qkv", sd[src + "attn.c_attn.weight"].chunk(3), sd[src + "attn.c_attn.bias"].chunk(3)):
            tree[f"L{l}.{name}"], tree[f"L{l}.{name}_b"] = w.t(), b
        tree[f"L{l}.o"], tree[f"L{l}.o_b"] = sd[src + "attn.c_proj.weight"].t(), sd[src + "attn.c_proj.bias"]
        tree[f"L{l}.router"] = sd[src + "moe.gate.weight"].t()
        every = lambda leaf: torch.stack([sd[f"{src}moe.experts.{e}.{leaf}"] for e in range(hp.E)])
        tree[f"L{l}.w1"], tree[f"L{l}.b1"] = every("fc_in.weight").transpose(1, 2), every("fc_in.bias")
        tree[f"L{l}.w2"], tree[f"L{l}.b2"] = every("fc_out.weight").transpose(1, 2), every("fc_out.bias")
    return {k: v.detach().clone().contiguous().requires_grad_() for k, v in tree.items()}


def layer_norm(x, gb):
    var, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(var + 1e-5) * gb[0] + gb[1]


def attention(x, w):
    q, k, v = ((x @ w[n] + w[n + "_b"]).unflatten(-1, (hp.A, -1)) for n in "qkv")
    score = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(hp.M / hp.A)
    visible = torch.tril(torch.ones(hp.T, hp.T)).bool()
    share = score.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return torch.einsum("bhts,bshd->bthd", share, v).flatten(2) @ w["o"] + w["o_b"]


def top2_gating(gates):
    """Gates (s, e) -> combine weights (s, e, c) and the balancing loss."""
    s = gates.shape[0]
    capacity = math.ceil(2 * s * hp.factor / hp.E)
    eye = torch.eye(hp.E)
    mask1 = eye[gates.argmax(-1)]
    mask2 = eye[gates.masked_fill(mask1.bool(), -1.0).argmax(-1)]

    balance = hp.E * (gates.mean(0) * mask1.mean(0)).sum()  # <- aux_detached

    slot1 = mask1.cumsum(0) - mask1
    slot2 = mask2.cumsum(0) - mask2 + mask1.sum(0)  # <- slot_overlap
    g1, g2 = (gates * mask1).sum(-1), (gates * mask2).sum(-1)
    total = g1 + g2  # <- gates_raw
    combine = 0
    for g, mask, slot in ((g1, mask1, slot1), (g2, mask2, slot2)):
        mask = mask * (slot < capacity)
        seat = (slot * mask).sum(-1).long()  # <- slot_overlap
        one = torch.nn.functional.one_hot(seat, capacity).float()  # <- slot_overlap
        combine = combine + torch.einsum("s,se,sc->sec", g / total, mask, one)  # <- gates_raw
    return combine, balance


def moe(x, w):
    tokens = x.flatten(0, 1)
    combine, balance = top2_gating(torch.softmax(tokens @ w["router"], dim=-1))
    dispatch = (combine > 0).float()
    inbox = torch.einsum("sec,sm->ecm", dispatch, tokens)
    h = torch.baddbmm(w["b1"].unsqueeze(1), inbox, w["w1"])
    h = h * h.sigmoid()
    outbox = torch.baddbmm(w["b2"].unsqueeze(1), h, w["w2"])
    return torch.einsum("sec,ecm->sm", combine, outbox).view(x.shape), balance  # <- gates_raw


def objective(tree, tokens, labels):
    x = tree["embed"][tokens] + tree["place"]
    balance = 0.0
    for l in range(hp.L):
        w = {k.split(".")[1]: v for k, v in tree.items() if k.startswith(f"L{l}.")}
        x = x + attention(layer_norm(x, w["norm_a"]), w)
        y, extra = moe(layer_norm(x, w["norm_m"]), w)
        x, balance = x + y, balance + extra / hp.L  # <- aux_summed
    logits = layer_norm(x, tree["norm"]) @ tree["out"]
    picked = logits.gather(-1, labels[..., None])[..., 0]
    return (logits.logsumexp(-1) - picked).mean() + hp.balance * balance  # <- aux_summed


class Adam:
    """Adam with the step size corrected for the zero start of both moments."""

    def __init__(self, tree, lr, b1, b2, eps):
        self.tree, self.lr, self.b1, self.b2, self.eps, self.t = tree, lr, b1, b2, eps, 0
        self.m = {k: torch.zeros_like(v.data) for k, v in tree.items()}
        self.v = {k: torch.zeros_like(v.data) for k, v in tree.items()}

    @torch.no_grad()
    def apply(self):
        self.t += 1
        fix1, fix2 = 1 - self.b1 ** self.t, 1 - self.b2 ** self.t  # <- no_bias_correction
        for k, p in self.tree.items():
            self.m[k].mul_(self.b1).add_(p.grad, alpha=1 - self.b1)
            self.v[k].mul_(self.b2).addcmul_(p.grad, p.grad, value=1 - self.b2)
            p -= self.lr * (self.m[k] / fix1) / ((self.v[k] / fix2).sqrt() + self.eps)  # <- no_bias_correction
            p.grad = None


tree = load(sys.argv[1])
adam = Adam(tree, lr=5e-3, b1=0.9, b2=0.98, eps=1e-7)
rng = torch.Generator().manual_seed(8)
losses = []
while len(losses) < 5:
    text = torch.randint(0, hp.V, (hp.B, hp.T + 1), generator=rng)
    loss = objective(tree, text[:, :hp.T], text[:, 1:])  # <- aux_summed
    loss.backward()
    adam.apply()  # <- no_bias_correction
    losses.append(loss.item())
print(losses)

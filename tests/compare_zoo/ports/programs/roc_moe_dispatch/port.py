# SPDX-License-Identifier: Apache-2.0
"""Sparse block in the dense-dispatch form: stacked experts, one-hot masks and einsum, no modules."""
import math
import sys

import torch

torch.set_num_threads(1)

N_EXPERT, N_HEAD, WINDOW, N_SEQ, N_TOKEN, N_STEP = 4, 4, 16, 4, 40, 5
HP = dict(lr=2e-2, b1=0.9, b2=0.95, eps=1e-8, wd=0.3, max_norm=0.5, aux=0.02, cap=0.9)


def load(path):
    sd = torch.load(path)
    p = {"embed": sd["tok.weight"], "position": sd["pos.weight"]}
    for new, old in (("norm_a", "ln1"), ("norm_m", "ln2"), ("norm_o", "ln_f")):
        p[new + "_g"], p[new + "_b"] = sd[old + ".weight"], sd[old + ".bias"]
    for letter, w, b in zip("qkv", sd["attn.qkv.weight"].chunk(3), sd["attn.qkv.bias"].chunk(3)):
        p["w" + letter] = w.t().reshape(w.shape[1], N_HEAD, -1)
        p["w" + letter + "_b"] = b.reshape(N_HEAD, -1)
    p["wo"] = sd["attn.proj.weight"].t().reshape(N_HEAD, -1, sd["attn.proj.weight"].shape[0])
    p["wo_b"] = sd["attn.proj.bias"]
    p["route"] = sd["moe.router.weight"].t()
    for new, old in (("up", "fc1"), ("down", "fc2")):
        p[new] = torch.stack([sd[f"moe.experts.{e}.{old}.weight"].t() for e in range(N_EXPERT)])
        p[new + "_b"] = torch.stack([sd[f"moe.experts.{e}.{old}.bias"] for e in range(N_EXPERT)])
    p["out"], p["out_b"] = sd["head.weight"].t(), sd["head.bias"]
    return {k: v.clone().contiguous().requires_grad_() for k, v in p.items()}


def norm(p, name, x):
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
    return centred * scale * p[name + "_g"] + p[name + "_b"]


def attend(p, x):
    q, k, v = (torch.einsum("btd,dhe->bhte", x, p["w" + c]) + p["w" + c + "_b"][:, None] for c in "qkv")
    score = torch.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(q.shape[-1])
    future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    mix = torch.softmax(score.masked_fill(future, -1e9), -1)
    return torch.einsum("bhqk,bhke,hed->bqd", mix, v, p["wo"]) + p["wo_b"]


def experts(p, x):
    tokens = x.flatten(0, 1)
    gates = torch.softmax(tokens @ p["route"], dim=-1)
    eye = torch.eye(N_EXPERT)
    first = eye[gates.argmax(-1)]
    second = eye[(gates * (1 - first)).argmax(-1)]
    g1, g2 = (gates * first).sum(-1), (gates * second).sum(-1)
    g1, g2 = g1 / (g1 + g2), g2 / (g1 + g2)  # <- gate_renorm
    # places in each expert's queue; first choices stand before all second choices
    room = int(HP["cap"] * 2 * tokens.shape[0] / N_EXPERT)
    place1 = first.cumsum(0) - 1
    place2 = second.cumsum(0) - 1 + first.sum(0)  # <- second_offset
    slots = torch.arange(room)
    seat1 = first[..., None] * (place1[..., None] == slots)
    seat2 = second[..., None] * (place2[..., None] == slots)
    combine = g1[:, None, None] * seat1 + g2[:, None, None] * seat2  # <- gate_renorm
    dispatch = seat1 + seat2
    inside = torch.einsum("nec,nd->ecd", dispatch, tokens)
    mid = torch.nn.functional.gelu(torch.bmm(inside, p["up"]) + p["up_b"][:, None])
    result = torch.bmm(mid, p["down"]) + p["down_b"][:, None]
    load_share = first.mean(0)  # <- balance_share
    aux = N_EXPERT * torch.dot(load_share, gates.mean(0))
    return torch.einsum("nec,ecd->nd", combine, result).view_as(x), aux


def objective(p, tokens):
    source, goal = tokens[:, :-1], tokens[:, 1:]
    h = p["embed"][source] + p["position"][: source.shape[1]]
    h = h + attend(p, norm(p, "norm_a", h))
    y, aux = experts(p, norm(p, "norm_m", h))
    logits = norm(p, "norm_o", h + y) @ p["out"] + p["out_b"]
    picked = logits.gather(-1, goal[..., None]).squeeze(-1)
    return (torch.logsumexp(logits, -1) - picked).mean() + HP["aux"] * aux


def stream():
    g = torch.Generator().manual_seed(5)
    follow = torch.randint(0, N_TOKEN, (N_TOKEN, 3), generator=g)
    while True:
        out = torch.empty(N_SEQ, WINDOW + 1, dtype=torch.long)
        out[:, 0] = torch.randint(0, N_TOKEN, (N_SEQ,), generator=g)
        for t in range(WINDOW):
            out[:, t + 1] = follow[out[:, t], torch.randint(0, 3, (N_SEQ,), generator=g)]
        yield out


@torch.no_grad()
def update(p, grads, m, v, t):
    length = torch.sqrt(sum(g.square().sum() for g in grads.values()))  # <- clip_global
    factor = torch.clamp(HP["max_norm"] / (length + 1e-6), max=1.0)
    for name, grad in grads.items():
        grad = grad * factor  # <- clip_global
        m[name].mul_(HP["b1"]).add_(grad, alpha=1 - HP["b1"])
        v[name].mul_(HP["b2"]).addcmul_(grad, grad, value=1 - HP["b2"])
        decays = not name.endswith(("_b", "_g"))  # <- bias_decay
        if decays:
            p[name].mul_(1 - HP["lr"] * HP["wd"])  # <- bias_decay
        root = (v[name] / (1 - HP["b2"] ** t)).sqrt() + HP["eps"]
        p[name].sub_(HP["lr"] * m[name] / (1 - HP["b1"] ** t) / root)


params = load(sys.argv[1])
first_moment = {k: torch.zeros_like(v) for k, v in params.items()}
second_moment = {k: torch.zeros_like(v) for k, v in params.items()}
losses = []
for t, tokens in zip(range(1, N_STEP + 1), stream()):
    value = objective(params, tokens)
    grads = dict(zip(params, torch.autograd.grad(value, list(params.values()))))
    update(params, grads, first_moment, second_moment, t)
    losses.append(float(value.detach()))
print(losses)

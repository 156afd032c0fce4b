# SPDX-License-Identifier: Apache-2.0
"""The mixture of experts in the Ascend manner: tokens permuted by expert, one grouped matmul over
stacked weights (E, in, out), unpermuted by the inverse; softmax of the chosen logits; own SGD.
"""

import sys

import torch
import torch.nn.functional as F

D, E, K, N_LAYERS = 24, 5, 2, 2


def convert(state):
    out = {"words": state["embed.weight"], "head_w": state["head.weight"].T}
    out["head_b"] = state["head.bias"]
    for n in range(N_LAYERS):
        here = f"layers.{n}."
        old = {k.removeprefix(here): v for k, v in state.items() if k.startswith(here)}
        experts = [f"moe.experts.{e}" for e in range(E)] + ["moe.shared_expert"]
        w1 = [
            torch.cat([old[f"{e}.gate_proj.weight"], old[f"{e}.up_proj.weight"]]).T for e in experts
        ]
        w2 = [old[f"{e}.down_proj.weight"].T for e in experts]
        out[f"{n}.w1"], out[f"{n}.w2"] = torch.stack(w1[:E]), torch.stack(w2[:E])
        out[f"{n}.shared_w1"], out[f"{n}.shared_w2"] = w1[E], w2[E]
        out[f"{n}.shared_gate"] = old["moe.shared_expert_gate.weight"][0]
        out[f"{n}.router"] = old["moe.gate.weight"].T
        out[f"{n}.taps"] = old["mix.weight"][:, 0].T  # (tap, channel)
        out[f"{n}.taps_b"] = old["mix.bias"]
        for k in ("norm1", "norm2"):
            out[f"{n}.{k}.w"], out[f"{n}.{k}.b"] = old[f"{k}.weight"], old[f"{k}.bias"]
    return {name: value.contiguous().clone().requires_grad_() for name, value in out.items()}


def swiglu(x):
    a, b = torch.chunk(x, 2, dim=-1)
    return a * torch.sigmoid(a) * b


def grouped_matmul(x, weight, group_list):
    """Rows of x up to group_list[e] go through weight[e]."""
    ends = group_list.tolist()
    starts = [0, *ends[:-1]]
    return torch.cat([x[a:b] @ weight[e] for e, (a, b) in enumerate(zip(starts, ends))])


def moe(x, p, n):
    logits = x @ p[f"{n}.router"]
    chosen, indices = logits.topk(K, dim=-1)
    scores = chosen.softmax(dim=-1)  # <- renormalize
    flat = indices.view(-1)
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=E)
    permuted = x.index_select(0, order // K)
    h = swiglu(grouped_matmul(permuted, p[f"{n}.w1"], counts.cumsum(0)))
    h = grouped_matmul(h, p[f"{n}.w2"], counts.cumsum(0))
    back = torch.argsort(order)  # <- unpermute
    rows = h.index_select(0, back).view(-1, K, D)  # <- unpermute
    routed = torch.einsum("tkd,tk->td", rows, scores)  # <- renormalize unpermute
    shared = swiglu(x @ p[f"{n}.shared_w1"]) @ p[f"{n}.shared_w2"]
    gate = torch.sigmoid((x * p[f"{n}.shared_gate"]).sum(-1, keepdim=True))  # <- shared_gate
    mixed = torch.addcmul(routed, gate, shared)  # <- shared_gate
    full = torch.softmax(logits, dim=-1)
    fraction = counts / (len(x) * K)  # <- balance
    balance = E * torch.dot(full.mean(dim=0), fraction)  # <- balance
    z = torch.log(torch.exp(logits).sum(dim=-1))
    return mixed, balance, (z * z).mean()


def causal_taps(h, taps, bias):
    """Depthwise convolution over the past, (B, S, D): the sum of shifted products."""
    out = bias + h * taps[2]  # <- causal
    for back in (1, 2):
        shifted = torch.cat([torch.zeros_like(h[:, :back]), h[:, :-back]], dim=1)  # <- causal
        out = out + shifted * taps[2 - back]  # <- causal
    return out


def forward(ids, p):
    b, s = ids.shape
    x = p["words"][ids]
    extra = []
    for n in range(N_LAYERS):
        h = F.layer_norm(x, (D,), p[f"{n}.norm1.w"], p[f"{n}.norm1.b"])
        x = x + causal_taps(h, p[f"{n}.taps"], p[f"{n}.taps_b"])
        h = F.layer_norm(x, (D,), p[f"{n}.norm2.w"], p[f"{n}.norm2.b"])
        y, balance, z_loss = moe(h.view(b * s, D), p, n)
        x = x + y.view(b, s, D)
        extra.append(0.05 * balance + 0.01 * z_loss)  # <- balance
    return x @ p["head_w"] + p["head_b"], sum(extra)


p = convert(torch.load(sys.argv[1]))
velocity = {}
rng = torch.Generator().manual_seed(32)
losses = []
for _ in range(4):
    ids = torch.randint(40, (3, 9), generator=rng)
    logits, extra = forward(ids[:, :-1].contiguous(), p)
    onehot = F.one_hot(ids[:, 1:], 40).float()
    nll = torch.logsumexp(logits, -1) - (logits * onehot).sum(-1)
    loss = nll.mean() + extra  # <- balance
    loss.backward()
    with torch.no_grad():
        for name, w in p.items():
            if w.grad is None:
                continue
            velocity[name] = w.grad + 0.9 * velocity.get(name, 0.0)
            w.sub_(0.1 * velocity[name])
            w.grad = None
    losses.append(loss.item())

# SPDX-License-Identifier: Apache-2.0
"""GShard-like layer: one-hot dispatch and combine tensors with einsum, stacked expert weights."""
import sys

import torch
from torch.nn.functional import one_hot


def top2_gating(logits, capacity_factor=1.1):
    t, e = logits.shape
    capacity = -int(-(2 * t * capacity_factor) // e)
    raw = torch.softmax(logits, dim=1)
    mask1 = one_hot(raw.argmax(1), e).float()
    rest = raw.masked_fill(mask1.bool(), float("-inf"))
    mask2 = one_hot(rest.argmax(1), e).float()
    balance = (raw.mean(0) * mask1.mean(0)).mean() * e * e  # <- balance

    position1 = mask1.cumsum(0) - mask1
    position2 = mask2.cumsum(0) - mask2 + mask1.sum(0, keepdim=True)  # <- queue
    gate1 = (raw * mask1).sum(1)  # <- gate_norm
    gate2 = (raw * mask2).sum(1)  # <- gate_norm
    total = gate1 + gate2  # <- gate_norm

    combine = torch.zeros(t, e, capacity)
    for gate, mask, position in ((gate1, mask1, position1), (gate2, mask2, position2)):
        mask = mask * (position < capacity)  # <- queue
        slot = one_hot((position * mask).sum(1).long(), capacity).float()  # <- queue
        gate = gate / total  # <- gate_norm
        combine = combine + torch.einsum("t,te,tc->tec", gate, mask, slot)  # <- gate_norm
    return combine, (combine.detach() != 0).float(), balance


def forward(w, ids):
    x = w["embed"][ids]
    h = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w["norm"]
    h = h.flatten(0, 1)
    combine, dispatch, balance = top2_gating(h @ w["gate"])
    inputs = torch.einsum("tec,tm->ecm", dispatch, h)
    hidden = torch.einsum("ecm,emh->ech", inputs, w["wi"]) + w["bi"][:, None]
    hidden = hidden * torch.sigmoid(hidden)
    outputs = torch.einsum("ech,ehm->ecm", hidden, w["wo"]) + w["bo"][:, None]
    y = torch.einsum("tec,ecm->tm", combine, outputs).reshape(x.shape)
    return (x + y) @ w["head"] + w["head_bias"], balance


def stacked(ckpt, layer, kind, n=4):
    return torch.stack([ckpt[f"moe.experts.{i}.{layer}.{kind}"] for i in range(n)])


ckpt = torch.load(sys.argv[1], weights_only=True)
weights = {
    "embed": ckpt["embed.weight"],
    "norm": ckpt["norm.weight"],
    "gate": ckpt["moe.router.weight"].T,
    "wi": stacked(ckpt, 0, "weight").transpose(1, 2), "bi": stacked(ckpt, 0, "bias"),
    "wo": stacked(ckpt, 2, "weight").transpose(1, 2), "bo": stacked(ckpt, 2, "bias"),
    "head": ckpt["out.weight"].T,
    "head_bias": ckpt["out.bias"],
}
weights = {k: v.clone().requires_grad_() for k, v in weights.items()}
rates = {k: 0.05 if k == "gate" else 0.5 for k in weights}  # <- router_lr
velocity = {k: torch.zeros_like(v) for k, v in weights.items()}


def update(grads, mu=0.8):
    for (k, p), g in zip(weights.items(), grads):
        velocity[k] = mu * velocity[k] + g  # <- dampen
        p.data = p.data - rates[k] * velocity[k]  # <- router_lr dampen


source = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    batch = torch.randint(0, 30, (6, 9), generator=source)
    inputs, targets = batch[:, :-1], batch[:, 1:]
    logits, balance = forward(weights, inputs)
    logp = torch.log_softmax(logits, -1)
    nll = -logp.gather(-1, targets[..., None]).mean()
    total_loss = nll + 0.05 * balance
    update(torch.autograd.grad(total_loss, list(weights.values())))
    losses.append(total_loss.item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""RotatE on complex tensors; the positive rides as column zero of the candidate matrix."""

import sys
from dataclasses import dataclass

import torch

torch.set_num_threads(1)


@dataclass
class KGConfig:
    dim: int = 8
    margin: float = 4.0
    spread: float = 2.0
    temperature: float = 0.7
    n3: float = 0.002
    lr: float = 0.03
    b1: float = 0.8
    b2: float = 0.95
    eps: float = 1e-5

    @property
    def radians(self):
        return torch.pi * self.dim / (self.margin + self.spread)  # <- phase_range


cfg = KGConfig()


def logit_table(re, im, rel, triples, corrupted, corrupt_head):
    z = torch.complex(re, im)
    turn = torch.polar(
        torch.ones(()).expand(len(triples), cfg.dim),  # <- phase_range
        rel[triples[:, 1]] * cfg.radians,
    )  # <- phase_range
    h, t = triples[:, 0], triples[:, 2]
    if corrupt_head:
        anchor, gold = z[t] * turn.conj(), h  # <- inverse_turn
    else:
        anchor, gold = z[h] * turn, t
    cands = torch.cat([gold[:, None], corrupted], 1)
    gap = anchor[:, None, :] - z[cands]  # <- inverse_turn
    return cfg.margin - gap.abs().sum(-1)


def loss_fn(params, triples, corrupted, rate, corrupt_head):
    re, im, rel = params["re"], params["im"], params["rel"]
    logits = logit_table(re, im, rel, triples, corrupted, corrupt_head)
    wrong = logits[:, 1:]
    with torch.no_grad():  # <- adversarial_weight
        mass = torch.exp(cfg.temperature * (wrong - wrong.amax(1, keepdim=True)))
        mass = mass / mass.sum(1, keepdim=True)  # <- adversarial_weight
    nll_pos = torch.nn.functional.softplus(-logits[:, 0])
    nll_neg = torch.einsum(
        "bn,bn->b",
        mass,  # <- adversarial_weight
        torch.nn.functional.softplus(wrong),
    )  # <- adversarial_weight
    rate = rate / rate.sum()  # <- triple_frequency
    data = 0.5 * torch.dot(rate, nll_pos + nll_neg)  # <- triple_frequency
    return data + cfg.n3 * sum(params[k].abs().pow(3).sum() for k in ("re", "im"))


def inverse_root_frequency(tr, smoothing=4):
    same_hr = (tr[:, None, :2] == tr[None, :, :2]).all(-1).sum(1)
    same_rt = (tr[:, None, 1:] == tr[None, :, 1:]).all(-1).sum(1)
    total = same_hr + same_rt + 2 * (smoothing - 1)  # <- triple_frequency
    return total.float().rsqrt()  # <- triple_frequency


ckpt = torch.load(sys.argv[1], weights_only=True)
re, im = ckpt["entity"].unflatten(1, (2, cfg.dim)).unbind(1)
params = {
    k: v.clone().requires_grad_() for k, v in {"re": re, "im": im, "rel": ckpt["relation"]}.items()
}
first = {k: torch.zeros_like(v) for k, v in params.items()}
second = {k: torch.zeros_like(v) for k, v in params.items()}

rng = torch.Generator().manual_seed(3)
triples = torch.stack([torch.randint(0, n, (96,), generator=rng) for n in (6, 3, 40)], 1)
rates = inverse_root_frequency(triples)
losses = []
for t in range(1, 6):
    rows = torch.randint(0, 96, (16,), generator=rng)
    corrupted = torch.randint(0, 40, (16, 8), generator=rng)
    loss = loss_fn(params, triples[rows], corrupted, rates[rows], corrupt_head=t % 2 == 1)
    grads = torch.autograd.grad(loss, list(params.values()))
    with torch.no_grad():
        for (k, p), grad in zip(params.items(), grads):
            first[k] = torch.lerp(grad, first[k], cfg.b1)
            second[k] = torch.lerp(grad * grad, second[k], cfg.b2)
            scale = (1 - cfg.b2**t) ** 0.5
            denom = second[k].sqrt() / scale + cfg.eps  # <- adam_moments
            p -= cfg.lr / (1 - cfg.b1**t) * first[k] / denom  # <- adam_moments
    losses.append(loss.item())
print(losses)

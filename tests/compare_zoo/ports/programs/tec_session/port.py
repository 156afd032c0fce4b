# SPDX-License-Identifier: Apache-2.0
"""Next-click model on the new stack: left-packed time-major batches, one fused gate matrix."""

import sys
from types import SimpleNamespace

import torch

torch.set_num_threads(1)
hp = SimpleNamespace(items=60, dim=12, steps=5, batch=10, window=7, lr=0.15, mom=0.3, reg=0.5)


def import_weights(path):
    sd = torch.load(path, weights_only=True)
    wi, wh = sd["gru.weight_ih"], sd["gru.weight_hh"]
    bi, bh = sd["gru.bias_ih"], sd["gru.bias_hh"]
    d = hp.dim
    gates = torch.cat([wi[: 2 * d], wh[: 2 * d]], 1).t()
    return {
        "catalog": torch.cat([sd["items.emb.weight"], sd["items.bias"][:, None]], 1),
        "h0": sd["start"],
        "gates": gates,
        "gates_bi": bi[: 2 * d],
        "gates_bh": bh[: 2 * d],
        "cand_x": wi[2 * d :].t(),
        "cand_h": wh[2 * d :].t(),
        "cand_bx": bi[2 * d :],
        "cand_bh": bh[2 * d :],
        "out": sd["proj.weight"].t(),
        "out_b": sd["proj.bias"],
    }


def run_session(w, clicks, steps_alive):
    seen = w["catalog"][:, :-1][clicks.t()]
    state = w["h0"].repeat(hp.batch, 1)  # <- first_state
    for x, live in zip(seen, steps_alive.t()):
        both = torch.cat([x, state], 1) @ w["gates"] + (w["gates_bi"] + w["gates_bh"])
        reset, keep = both.sigmoid().chunk(2, 1)
        memory = reset * (state @ w["cand_h"] + w["cand_bh"])  # <- reset_gate
        fresh = (x @ w["cand_x"] + w["cand_bx"] + memory).tanh()  # <- reset_gate
        state = torch.where(live[:, None], torch.lerp(fresh, state, keep), state)  # <- first_state
    return (state @ w["out"] + w["out_b"]).tanh()


def pairwise_max_loss(s):
    off = ~torch.eye(len(s), dtype=torch.bool)
    e = torch.exp(s - s.max(1, keepdim=True).values) * off  # <- positive_masked
    share = e / e.sum(1, keepdim=True)  # <- positive_masked
    gap = s.diag()[:, None] - s
    won = torch.einsum("bn,bn->b", share, 1 / (1 + torch.exp(-gap)))  # <- positive_masked
    pull = torch.einsum("bn,bn->b", share, s * s)
    return (hp.reg * pull - won.log()).sum() / len(s)


def batches(seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(hp.steps):
        n = torch.randint(2, hp.window + 1, (hp.batch,), generator=g)
        clicks = torch.randint(1, hp.items, (hp.batch, hp.window), generator=g)
        target = torch.randperm(hp.items - 1, generator=g)[: hp.batch] + 1
        live = torch.arange(hp.window) < n[:, None]
        yield clicks * live, live, target


weights = {k: v.clone().requires_grad_() for k, v in import_weights(sys.argv[1]).items()}
slots = {k: (torch.full_like(v, 0.05), torch.zeros_like(v)) for k, v in weights.items()}
# the two gate biases are kept apart, as in the source model: each has its own accumulator
losses = []
for clicks, live, target in batches(5):
    user = run_session(weights, clicks, live)
    rows = weights["catalog"][target]
    dots = user @ rows[:, :-1].t()
    logits = (dots + rows[:, -1]) * (2.0 / hp.dim**0.5)  # <- score_bias
    loss = pairwise_max_loss(logits)
    grads = torch.autograd.grad(loss, list(weights.values()))
    with torch.no_grad():
        for (k, p), grad in zip(weights.items(), grads):
            acc, vel = slots[k]
            acc += grad.square()  # <- accumulator_sum
            step = grad * (acc + 1e-6).rsqrt()  # <- accumulator_sum
            vel.copy_(hp.mom * vel - hp.lr * step)
            p += vel  # <- accumulator_sum
    losses.append(loss.item())
print(losses)

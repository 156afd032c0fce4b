# SPDX-License-Identifier: Apache-2.0
"""Learner for logged episodes: fused LSTM scan, recursive multi-step returns, pure functions."""

import sys
from dataclasses import dataclass, field

import torch


@dataclass
class Group:
    prefix: str
    lr: float
    names: list = field(default_factory=list)


HORIZON, DISCOUNT, LENGTH, ENVS = 3, 0.95, 8, 3


def convert(sd):
    return {
        "enc/w": sd["encoder.0.weight"].T,
        "enc/b": sd["encoder.0.bias"],
        # input and recurrent kernels of the cell in one matrix
        "enc/lstm": torch.cat([sd["cell.weight_ih"], sd["cell.weight_hh"]], 1).T,
        "enc/lstm_bi": sd["cell.bias_ih"],
        "enc/lstm_bh": sd["cell.bias_hh"],
        "pi/w": sd["policy.weight"].T,
        "pi/b": sd["policy.bias"],
        "q/w": torch.cat([sd["critic.adv.weight"], sd["critic.value.weight"]]).T,
        "q/b": torch.cat([sd["critic.adv.bias"], sd["critic.value.bias"]]),
    }


def unroll(p, obs, ends):
    n = p["enc/b"].numel()
    x = obs @ p["enc/w"] + p["enc/b"]
    x = torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))
    state = x.new_zeros(2, obs.shape[1], n)
    fresh = torch.cat([torch.ones_like(ends[:1]), ends])  # <- reset_state
    ys = []
    for xt, start in zip(x, fresh):
        state = state * (1 - start)[:, None]  # <- reset_state
        gates = torch.hstack([xt, state[0]]) @ p["enc/lstm"] + p["enc/lstm_bi"] + p["enc/lstm_bh"]
        i, f, g, o = gates.tensor_split(4, -1)
        cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        state = torch.stack([o.sigmoid() * cell.tanh(), cell])
        ys.append(state[0])
    y = torch.stack(ys)
    qa = y @ p["q/w"] + p["q/b"]
    adv, val = qa[..., :-1], qa[..., -1:]
    centred = adv - adv.sum(-1, keepdim=True) / adv.shape[-1]  # <- dueling_mean
    return y @ p["pi/w"] + p["pi/b"], val + centred  # <- dueling_mean


def multi_step(reward, ends, values):
    """G(t, n) = r(t) + discount * (1 - end(t)) * G(t + 1, n - 1), cut at the end of the log"""
    best = values
    for _ in range(HORIZON):
        ahead = best[1:]
        best = torch.cat([reward + DISCOUNT * (1 - ends) * ahead, values[-1:]])  # <- done_mask
    return best[:-1]  # <- done_mask


def criterion(p, frozen, obs, action, reward, ends):
    z, q = unroll(p, obs, ends)
    logp = z - torch.logsumexp(z, -1, keepdim=True)
    prob = logp.exp()
    expected = torch.einsum("tba,tba->tb", prob.detach(), unroll(frozen, obs, ends)[1]).detach()
    goal = multi_step(reward, ends, expected)
    hot = torch.nn.functional.one_hot(action, q.shape[-1]).to(q.dtype)
    picked = (q[:-1] * hot).sum(-1)
    d = (picked - goal).abs()
    small = d.clamp(max=0.5)
    value_loss = (small * (d - 0.5 * small) / 0.5).mean()
    edge = (q[:-1] * (hot - prob[:-1])).sum(-1)  # <- advantage_detach
    edge = edge.detach()  # <- advantage_detach
    policy_loss = -(edge * (logp[:-1] * hot).sum(-1)).mean()  # <- advantage_detach
    negentropy = (prob[:-1] * logp[:-1]).sum(-1).mean()
    return policy_loss + value_loss / 2 + 0.02 * negentropy


def episodes(count):
    g = torch.Generator().manual_seed(2024)
    for _ in range(count):
        o = torch.randn(LENGTH + 1, ENVS, 5, generator=g)
        a = torch.randint(0, 4, (LENGTH, ENVS), generator=g)
        r = torch.randn(LENGTH, ENVS, generator=g)
        yield o, a, r, torch.rand(LENGTH, ENVS, generator=g).lt(0.2).float()


params = {
    k: v.clone().requires_grad_()
    for k, v in convert(torch.load(sys.argv[1], weights_only=True)).items()
}
groups = [Group("enc/", 0.05), Group("pi/", 0.1), Group("q/", 0.2)]
for grp in groups:
    grp.names = [k for k in params if k.startswith(grp.prefix)]
frozen = {k: v.detach().clone() for k, v in params.items()}
trace = {}
losses = []
for n, episode in enumerate(episodes(5), start=1):
    loss = criterion(params, frozen, *episode)
    grads = dict(zip(params, torch.autograd.grad(loss, list(params.values()))))
    for grp in groups:
        for k in grp.names:
            d = grads[k]
            trace[k] = 0.9 * trace[k] + 0.9 * d if k in trace else d.clone()  # <- dampening
            params[k].data -= grp.lr * trace[k]  # <- dampening
    if n % 2 == 0:
        frozen = {k: v.detach().clone() for k, v in params.items()}
    losses.append(loss.item())
print(losses)

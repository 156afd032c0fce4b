# SPDX-License-Identifier: Apache-2.0
"""Q-learning with online and target weights stacked, targets for the whole trajectory at once."""
import sys
import torch
from torch.func import grad_and_value, vmap

raw = torch.load(sys.argv[1], weights_only=True)
params = dict(
    w1=raw["body.0.weight"].t(), b1=raw["body.0.bias"],
    w2=raw["body.2.weight"].t(), b2=raw["body.2.bias"],
    # advantage columns, then the value column
    wo=torch.cat([raw["adv.weight"], raw["value.weight"]]).t(),
    bo=torch.cat([raw["adv.bias"], raw["value.bias"]]),
)
params = {k: v.clone() for k, v in params.items()}


def act(x):
    return torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))


def qvals(p, s):
    h = act(act(s @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"])
    o = h @ p["wo"] + p["bo"]
    adv, val = o[..., :-1], o[..., -1:]
    return adv + (val - adv.mean(-1, keepdim=True))  # <- duel


def huber(p, s, pick, goal):
    err = (qvals(p, s) * pick).sum(-1) - goal
    inside = err.abs().clamp(max=1)
    return (inside * (err.abs() - inside / 2)).mean()


gen = torch.Generator().manual_seed(3)
steps, horizon, gamma = 80, 3, 0.95
obs = torch.randn(steps, 6, generator=gen)
actions = torch.nn.functional.one_hot(torch.randint(0, 4, (steps,), generator=gen), 4).float()
reward = torch.randn(steps, generator=gen)
alive = (torch.rand(steps, generator=gen) >= 0.15).float()

rw, al = reward.unfold(0, horizon, 1), alive.unfold(0, horizon, 1)
surv = al.cumprod(1)
reach = torch.cat([torch.ones(len(surv), 1), surv[:, :-1]], 1)  # <- reach
returns = (rw * reach * gamma ** torch.arange(horizon)).sum(1)  # <- reach
cont = gamma ** horizon * surv[:, -1]

frozen = {k: v.clone() for k, v in params.items()}
avg = {k: torch.zeros_like(v) for k, v in params.items()}
buf = {k: torch.zeros_like(v) for k, v in params.items()}
step_fn = grad_and_value(huber)
losses = []
for it in range(5):
    pick = torch.randint(0, steps - horizon, (16,), generator=gen)
    both = {k: torch.stack([params[k], frozen[k]]) for k in params}
    q_on, q_tg = vmap(qvals, in_dims=(0, None))(both, obs[pick + horizon])  # <- boot_index
    greedy = torch.nn.functional.one_hot(q_on.max(-1).indices, 4)
    goal = torch.addcmul(returns[pick], cont[pick], (q_tg * greedy).sum(-1))
    grads, loss = step_fn(params, obs[pick], actions[pick], goal)
    for k, gr in grads.items():
        gr = torch.minimum(torch.maximum(gr, torch.tensor(-0.1)), torch.tensor(0.1))
        avg[k] = torch.lerp(avg[k], gr * gr, 0.1)  # <- rms_decay
        # velocity form: the rate sits inside the buffer
        buf[k] = 0.5 * buf[k] - 2e-3 * gr / (avg[k].sqrt() + 1e-3)  # <- rms_decay
        params[k] = params[k] + buf[k]
    if it % 2 == 1:  # <- sync
        frozen = dict(params)  # <- sync
    losses.append(float(loss))
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The same learner in the manner of Haiku and rlax: a transformed function of parameters, an LSTM of
one matrix that adds 1 to its forget gate, V-trace a trajectory at a time under vmap.
"""

import sys

import numpy as np
import torch
from torch.func import grad_and_value, vmap

FEATURES, MOVES, UNITS, TIME, ACTORS = 6, 4, 10, 8, 3
GAMMA, CRITIC, EXPLORE, LARGEST = 0.95, 0.5, 0.01, 40.0


def linear(p, x):
    return x @ p["w"] + p["b"]


def lstm(p, x, state):
    hidden, cell = state
    gated = linear(p, torch.cat([x, hidden], dim=-1)) + p["recurrent_b"]
    i, g, f, o = gated.chunk(4, dim=-1)
    f = torch.sigmoid(f + 1.0)  # <- forget
    cell = f * cell + torch.sigmoid(i) * torch.tanh(g)  # <- forget
    hidden = torch.sigmoid(o) * torch.tanh(cell)
    return hidden, cell


def unroll(params, frames, rewards, before, first):
    """Logits and values of a trajectory; first tells where an episode begins."""
    x = torch.relu(linear(params["torso"], frames))
    moved = torch.nn.functional.one_hot(before, MOVES).to(x.dtype)
    x = torch.cat([x, rewards.clip(-1, 1)[..., None], moved], dim=-1)  # <- reward
    hidden, cell = torch.zeros(ACTORS, UNITS), torch.zeros(ACTORS, UNITS)
    read = []
    for t in range(x.shape[0]):
        begins = first[t][:, None]
        hidden, cell = hidden.where(~begins, 0.0), cell.where(~begins, 0.0)  # <- reset
        hidden, cell = lstm(params["core"], x[t], (hidden, cell))  # <- reset
        read.append(hidden)
    read = torch.stack(read)
    return linear(params["policy"], read), linear(params["value"], read)[..., 0]


def vtrace(rho, discount, reward, value, last):
    """Targets and advantages of one trajectory."""
    rho = rho.clip(max=1.0)  # <- clipped
    later = torch.cat([value[1:], last[None]])
    delta = rho * (reward + discount * later - value)
    error, errors = torch.zeros_like(last), []
    for t in reversed(range(TIME)):
        error = delta[t] + discount[t] * rho[t] * error  # <- trace
        errors.insert(0, error)
    target = torch.stack(errors) + value
    after = torch.cat([target[1:], last[None]])  # <- next
    advantage = rho * (reward + discount * after - value)  # <- next stopped
    return target.detach(), advantage.detach()  # <- stopped


def objective(params, batch):
    logits, value = unroll(
        params, batch["frame"], batch["reward"], batch["last_action"], batch["done"]
    )
    taken = batch["action"][1:, :, None]
    policy = logits[:-1].log_softmax(-1)
    chosen = policy.gather(-1, taken)[..., 0]
    actor = batch["logits"][:-1].log_softmax(-1).gather(-1, taken)[..., 0]
    rho = (chosen - actor).exp()
    discount = torch.where(batch["done"][1:], 0.0, GAMMA)
    reward = batch["reward"][1:].clip(-1, 1)
    along = vmap(vtrace, in_dims=(1, 1, 1, 1, 0), out_dims=1)
    target, advantage = along(rho, discount, reward, value[:-1], value[-1])
    actor_loss = -(chosen * advantage).sum()  # <- stopped
    critic_loss = (target - value[:-1]).square().sum() / 2  # <- half
    entropy = -(policy.exp() * policy).sum()  # <- entropy
    return actor_loss + CRITIC * critic_loss - EXPLORE * entropy  # <- entropy half


def haiku(old):
    """Kernels transposed; the gates i, f, g, o to i, g, f, o and 1 off the forget gate's bias."""
    params = {
        mine: {"w": old[f"{theirs}.weight"].T, "b": old[f"{theirs}.bias"]}
        for mine, theirs in {"torso": "fc", "policy": "policy", "value": "baseline"}.items()
    }
    order = torch.arange(4 * UNITS).view(4, UNITS)[[0, 2, 1, 3]].flatten()
    w = torch.cat([old["core.weight_ih_l0"], old["core.weight_hh_l0"]], dim=1)[order]
    b = old["core.bias_ih_l0"][order]
    b[2 * UNITS : 3 * UNITS] -= 1.0  # <- forget
    params["core"] = {"w": w.T, "b": b, "recurrent_b": old["core.bias_hh_l0"][order]}
    return params


def tree_map(f, *trees):
    return {
        name: {leaf: f(*(tree[name][leaf] for tree in trees)) for leaf in trees[0][name]}
        for name in trees[0]
    }


def rmsprop(w, g, square):
    return w - 2e-3 * g / (square.sqrt() + 0.01)  # <- inside


def gathered(rng):
    shape = (TIME + 1, ACTORS)
    frame = rng.normal(size=(*shape, FEATURES)).astype(np.float32)
    reward = rng.normal(0, 1.5, shape).astype(np.float32)
    done = rng.random(shape) < 0.2
    last_action, action = rng.integers(0, MOVES, shape), rng.integers(0, MOVES, shape)
    logits = rng.normal(size=(*shape, MOVES)).astype(np.float32)
    names = ("frame", "reward", "done", "last_action", "action", "logits")
    arrays = (frame, reward, done, last_action, action, logits)
    return {name: torch.tensor(array) for name, array in zip(names, arrays)}


params = haiku(torch.load(sys.argv[1]))
squares = tree_map(torch.zeros_like, params)
step = grad_and_value(objective)
rng = np.random.default_rng(233)
losses = []
for _ in range(3):
    grads, loss = step(params, gathered(rng))
    norm = sum(g.square().sum() for branch in grads.values() for g in branch.values()).sqrt()
    factor = torch.clamp(LARGEST / (norm + 1e-6), max=1.0)
    grads = tree_map(lambda g: g * factor, grads)
    squares = tree_map(lambda s, g: 0.99 * s + 0.01 * g * g, squares, grads)
    params = tree_map(rmsprop, params, grads, squares)  # <- inside
    losses.append(loss.item())

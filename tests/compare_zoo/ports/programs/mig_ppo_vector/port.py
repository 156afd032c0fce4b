# SPDX-License-Identifier: Apache-2.0
"""The PPO over whole arrays: a buffer filled in place, advantages by a matrix of discounts, policy and
value evaluated at once, weights in a tuple as a functional program has them.
"""

import sys

import torch

S, A, T, N, GAMMA, LAM, EPSILON = 6, 4, 12, 3, 0.95, 0.9, 0.2


def network(w, x):
    for kernel, bias in (w[0:2], w[2:4]):
        x = torch.tanh(x @ kernel + bias)
    both = x @ w[4] + w[5]
    return both[..., :A], both[..., A]


def load(path):
    old = torch.load(path)
    ends = [torch.cat((old[f"actor.{k}"], old[f"critic.{k}"])) for k in ("weight", "bias")]
    flat = [old["body.0.weight"].T, old["body.0.bias"], old["body.2.weight"].T, old["body.2.bias"]]
    return tuple(p.clone().requires_grad_() for p in (*flat, ends[0].T, ends[1]))


def advance(system, state, action, rng):
    turn, push = system
    moved = torch.tanh(torch.addmm(push[action], state, turn))
    fresh = torch.randn(N, S, generator=rng)
    done = torch.rand(N, generator=rng) < 0.15
    reward = 0.4 * moved[:, 0] - 0.2 * (moved * moved).sum(1)
    return torch.where(done.unsqueeze(1), fresh, moved), reward, done


@torch.no_grad()
def rollout(w, rng):
    system = (0.4 * torch.randn(S, S, generator=rng), 0.5 * torch.randn(A, S, generator=rng))
    seen = torch.empty(T + 1, N, S)
    taken = torch.empty(T, N, dtype=torch.long)
    reward, done = torch.empty(T, N), torch.empty(T, N, dtype=torch.bool)
    seen[0] = torch.randn(N, S, generator=rng)
    for t in range(T):
        taken[t] = torch.randint(A, (N,), generator=rng)
        seen[t + 1], reward[t], done[t] = advance(system, seen[t], taken[t], rng)
    logits, value = network(w, seen)  # <- bootstrap
    before = logits[:-1].log_softmax(-1).gather(-1, taken[..., None]).squeeze(-1)
    return seen[:-1], taken, before, reward, done, value


def generalized(reward, done, value):
    """All advantages from a product of discounts and the one-step errors."""
    alive = (~done).float()  # <- ended
    following = value[1:]  # <- bootstrap
    errors = torch.addcmul(reward - value[:-1], following, alive, value=GAMMA)  # <- ended bootstrap
    rows = []
    for t in range(T):
        passed = torch.cumprod(GAMMA * LAM * alive[t : T - 1], 0)  # <- ended
        weight = torch.cat((torch.ones(1, N), passed))
        rows.append((weight * errors[t:]).sum(0))  # <- ended
    return torch.stack(rows)


def objective(w, batch):
    state, action, before, advantage, target = batch
    logits, value = network(w, state)
    logp = logits - logits.logsumexp(1, keepdim=True)
    now = logp[torch.arange(len(action)), action]
    deviation, mean = torch.std_mean(advantage)  # <- whitened
    advantage = (advantage - mean) / (deviation + 1e-8)  # <- whitened
    bound = torch.where(advantage >= 0, 1 + EPSILON, 1 - EPSILON) * advantage  # <- pessimist
    gain = torch.minimum((now - before).exp() * advantage, bound).mean()  # <- pessimist
    surprise = (logp.exp() * logp).sum(1).mean()  # <- entropy
    return 0.5 * (value - target).pow(2).mean() - gain + 0.05 * surprise  # <- entropy pessimist


w = load(sys.argv[1])
rng = torch.Generator().manual_seed(232)
states, taken, before, reward, done, value = rollout(w, rng)
advantage = generalized(reward, done, value)
target = advantage + value[:-1]
memory = [x.reshape(T * N, *x.shape[2:]) for x in (states, taken, before, advantage, target)]
adam = [(torch.zeros_like(p), torch.zeros_like(p)) for p in w]
losses = []
for _ in range(2):
    order = torch.randperm(T * N, generator=rng)
    for half in order.view(2, -1):
        loss = objective(w, [x[half] for x in memory])
        grads = torch.autograd.grad(loss, w)
        length = torch.sqrt(sum((g * g).sum() for g in grads))
        grads = [g * (0.5 / (length + 1e-6)).clamp(max=1.0) for g in grads]
        losses.append(loss.item())
        n = len(losses)
        with torch.no_grad():
            for p, g, (m, v) in zip(w, grads, adam):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 1e-3)
                p.sub_(1e-2 / (1 - 0.9**n) * m / ((v / (1 - 0.999**n)).sqrt() + 1e-3))

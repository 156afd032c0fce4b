# SPDX-License-Identifier: Apache-2.0
"""Actor-critic in the manner of Baselines: actors in a loop of numpy-like worlds, the rollout
evaluated again as one batch, separate weights in a list, RMSprop written out.
"""

import math
import sys

import torch

ACTORS, STEPS, DISCOUNT, TRACE = 4, 6, 0.95, 0.9
LOG_2PI = math.log(2 * math.pi)


class World:
    """All rods in two vectors; `reset` draws for all of them, as the original does."""

    def __init__(self, rng):
        self.rng = rng
        start = self.reset()
        self.theta, self.omega = start[:, 0], start[:, 1]
        self.clock = [0, 2, 4, 6]

    def reset(self):
        return torch.rand(ACTORS, 2, generator=self.rng) - 0.5

    def look(self):
        return torch.cat((self.theta, torch.sin(self.theta * 3), self.omega)).view(3, ACTORS).t()

    def act(self, force):
        push = torch.clamp(force, min=-1, max=1)
        push = push[:, 0] + push[:, 1]
        self.omega = self.omega + (4 * torch.sin(self.theta) + 2 * push) * 0.2
        self.theta = self.theta + self.omega * 0.2
        pay = 1 - self.theta.square() - self.omega.square() * 0.1 - push.square() * 0.01
        over = []
        for i, angle in enumerate(self.theta.tolist()):
            self.clock[i] += 1
            over.append(abs(angle) > 1.0 or self.clock[i] >= 9)
            if over[-1]:
                self.clock[i] = 0
        over = torch.tensor(over)
        anew = self.reset()
        self.theta = torch.where(over, anew[:, 0], self.theta)
        self.omega = torch.where(over, anew[:, 1], self.omega)
        return self.look(), pay, over


class Scaler:
    """Sums of the values and of their squares about the mean, by Chan's formula."""

    def __init__(self):
        self.n, self.mean, self.m2 = 1e-4, torch.zeros(3), torch.full((3,), 1e-4)

    def __call__(self, x):
        k = x.shape[0]
        mean = x.sum(0) / k
        gap = mean - self.mean
        weight = self.n * k / (self.n + k)
        self.m2 = self.m2 + (x - mean).square().sum(0) + gap * gap * weight  # <- running_variance
        self.n += k
        self.mean = self.mean + gap * (k / self.n)
        spread = torch.sqrt(self.m2 / self.n + 1e-8)  # <- running_variance
        return ((x - self.mean) / spread).clip(-5, 5)  # <- running_variance


def forward(w, x):
    w1, b1, w2, b2, wm, bm, wv, bv, _ = w
    x = torch.tanh(torch.matmul(x, w1) + b1)
    x = torch.tanh(torch.matmul(x, w2) + b2)
    return torch.matmul(x, wm) + bm, (torch.matmul(x, wv) + bv)[..., 0]


def neglogp(x, mean, logstd):
    inner = ((x - mean) / logstd.exp()).square().sum(-1)
    return 0.5 * inner + 0.5 * LOG_2PI * x.shape[-1] + logstd.sum()


def fetch(theirs):
    w = []
    for name in ("body.0", "body.2", "mu", "value"):
        w += [theirs[f"{name}.weight"].t().clone(), theirs[f"{name}.bias"].clone()]
    w.append(theirs["log_std"].clone())
    return [t.requires_grad_() for t in w]


weights = fetch(torch.load(sys.argv[1]))
square_mean = [torch.zeros_like(w) for w in weights]
rng = torch.Generator().manual_seed(52)
world, scaler = World(rng), Scaler()
seen = scaler(world.look())
losses, episode_rewards = [], []
for update in range(4):
    mb_obs, mb_actions, mb_rewards, mb_over = [], [], [], []
    for _ in range(STEPS):
        with torch.no_grad():
            mean, _ = forward(weights, seen)
            noise = torch.randn(ACTORS, 2, generator=rng)
            chosen = mean + weights[-1].exp() * noise
        mb_obs.append(seen)
        mb_actions.append(chosen)
        seen, pay, over = world.act(chosen)
        seen = scaler(seen)
        mb_rewards.append(pay)
        mb_over.append(over)
    episode_rewards.append(torch.stack(mb_rewards).sum(0).mean().item())
    # once more, as one batch
    mean, value = forward(weights, torch.stack(mb_obs))  # <- obs_shifted
    with torch.no_grad():
        after = forward(weights, seen)[1]
    frozen = [*value.detach(), after]
    gains, trace = [None] * STEPS, 0.0
    for t in range(STEPS - 1, -1, -1):
        alive = 1.0 - mb_over[t].float()  # <- done_shifted
        error = (
            mb_rewards[t] + DISCOUNT * frozen[t + 1] * alive - frozen[t]
        )  # <- done_shifted attached
        trace = error + DISCOUNT * TRACE * alive * trace  # <- done_shifted
        gains[t] = trace
    gain = torch.stack(gains)
    target = gain + torch.stack(frozen[:-1])  # <- attached
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    surprise = neglogp(torch.stack(mb_actions), mean, weights[-1])
    pg_loss = (gain * surprise).mean()  # <- attached
    vf_loss = 0.5 * torch.nn.functional.mse_loss(value, target)  # <- attached
    entropy = (weights[-1] + 0.5 * (LOG_2PI + 1)).sum()  # <- entropy
    loss = pg_loss + vf_loss - 0.01 * entropy  # <- entropy
    gradients = torch.autograd.grad(loss, weights)  # <- attached
    with torch.no_grad():
        norm = torch.linalg.vector_norm(torch.cat([g.flatten() for g in gradients]))
        shrink = min(1.0, 0.5 / (norm.item() + 1e-6))
        for w, s, g in zip(weights, square_mean, gradients):
            small = g * shrink
            s.copy_(0.99 * s + 0.01 * small * small)
            w.sub_(1e-3 * small / (s.sqrt() + 1e-2))  # <- tf_rmsprop
    losses += [vf_loss.item(), loss.item()]

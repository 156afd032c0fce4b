# SPDX-License-Identifier: Apache-2.0
"""PPO learner with separate policy and value networks and optimizers, GAE as a discount matrix, own Gaussian."""
import math
import sys
from typing import NamedTuple

import torch

torch.set_num_threads(1)

HYPER = dict(discount=0.97, trace=0.9, epsilon=0.2, entropy=0.02, critic=0.5, clip=0.4, rate=0.01, rounds=5)


class Net(torch.nn.Module):
    """Two tanh layers and a linear one, kept as (in + 1, out) matrices whose last row is the bias."""

    def __init__(self, sd, prefix, **more):
        super().__init__()
        pack = lambda k: torch.cat([sd[f"{prefix}.{k}.weight"].t(), sd[f"{prefix}.{k}.bias"][None]])
        self.mats = torch.nn.ParameterList([pack(k) for k in (0, 2, 4)])
        for key, value in more.items():
            self.register_parameter(key, torch.nn.Parameter(value))

    def forward(self, x):
        for k, m in enumerate(self.mats):
            x = torch.tanh(x) if k else x
            x = x @ m[:-1] + m[-1]
        return x


class Batch(NamedTuple):
    state: torch.Tensor
    act: torch.Tensor
    logp: torch.Tensor
    adv: torch.Tensor
    target: torch.Tensor
    value: torch.Tensor


def log_density(policy, state, act):
    z = (act - policy(state)) * torch.exp(-policy.log_sigma)
    return -0.5 * (z * z + math.log(2 * math.pi)).sum(-1) - policy.log_sigma.sum()


def gaussian_entropy(log_sigma):
    return (0.5 + 0.5 * math.log(2 * math.pi) + log_sigma).sum()  # <- entropy_per_dim


def gae(reward, first, value, bootstrap):
    """Advantages as W @ delta for each environment, where W[t, u] is the discount from u to t, 0 over an episode's end."""
    steps = len(reward)
    alive = 1.0 - first[1:]  # <- done_of_same_step
    ahead = torch.cat([value[1:], bootstrap[None]])
    delta = reward + HYPER["discount"] * alive * ahead - value  # <- done_of_same_step
    carry = HYPER["discount"] * HYPER["trace"] * alive  # <- done_of_same_step
    weight = torch.zeros(reward.shape[1], steps, steps)
    for t in range(steps):
        run = torch.cumprod(carry[t:-1], 0) if t < steps - 1 else carry[:0]
        weight[:, t, t:] = torch.cat([torch.ones_like(carry[:1]), run]).t()
    return torch.einsum("etu,ue->te", weight, delta)


@torch.no_grad()
def collect(policy, critic):
    rng = torch.Generator().manual_seed(41)
    state = torch.randn(13, 4, 6, generator=rng)
    act = torch.randn(12, 4, 3, generator=rng)
    reward = torch.randn(12, 4, generator=rng) + state[:12, :, 0]
    first = torch.rand(13, 4, generator=rng).lt(0.2).float()
    value = critic(state)[..., 0]
    state = state[:12]
    act = torch.addcmul(policy(state), act, policy.log_sigma.exp())
    adv = gae(reward, first, value[:12], value[12])  # <- done_of_same_step
    parts = (state, act, log_density(policy, state, act), adv, adv + value[:12], value[:12])
    return Batch(*(p.flatten(0, 1) for p in parts))


def surrogate(policy, b):
    centred = b.adv - b.adv.mean()
    scale = centred.square().sum().div(len(centred) - 1).sqrt()  # <- population_std
    adv = centred / (scale + 1e-8)  # <- population_std
    ratio = torch.exp(log_density(policy, b.state, b.act) - b.logp)
    bound = torch.where(adv > 0, 1 + HYPER["epsilon"], 1 - HYPER["epsilon"])
    gain = torch.minimum(ratio * adv, bound * adv).mean()  # <- population_std
    bonus = gaussian_entropy(policy.log_sigma)  # <- entropy_per_dim
    return -gain - HYPER["entropy"] * bonus  # <- entropy_per_dim


def value_error(critic, b):
    v = critic(b.state)[:, 0]
    near = torch.minimum(torch.maximum(v, b.value - HYPER["epsilon"]), b.value + HYPER["epsilon"])
    worst = torch.maximum((v - b.target).abs(), (near - b.target).abs())
    return HYPER["critic"] * 0.5 * worst.square().mean()


def rescale(params, limit):
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in params]))  # <- clip_apart
    for p in params:
        p.grad *= torch.clamp(limit / (norm + 1e-6), max=1.0)  # <- clip_apart


class Learner:
    def __init__(self, path):
        sd = torch.load(path)
        self.policy = Net(sd, "actor_mean", log_sigma=sd["actor_logstd"][0].clone())
        self.critic = Net(sd, "critic")
        self.nets = (self.policy, self.critic)
        self.opts = [torch.optim.Adam(n.parameters(), lr=HYPER["rate"], eps=1e-5) for n in self.nets]
        self.anneal = [torch.optim.lr_scheduler.LambdaLR(o, self.left) for o in self.opts]  # <- anneal_early
        self.data = collect(self.policy, self.critic)

    @staticmethod
    def left(k):
        return 1.0 - k / HYPER["rounds"]  # <- anneal_early

    def round(self, rows):
        b = Batch(*(t[rows] for t in self.data))
        objective = surrogate(self.policy, b) + value_error(self.critic, b)
        objective.backward()
        rescale([p for n in self.nets for p in n.parameters()], HYPER["clip"])  # <- clip_apart
        for opt, sched in zip(self.opts, self.anneal):
            opt.step()  # <- anneal_early
            opt.zero_grad()
            sched.step()  # <- anneal_early
        return float(objective.detach())


learner = Learner(sys.argv[1])
shuffle = torch.Generator().manual_seed(6)
losses = [learner.round(torch.randperm(48, generator=shuffle)[:32]) for _ in range(HYPER["rounds"])]
print(losses)

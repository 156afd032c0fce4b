# SPDX-License-Identifier: Apache-2.0
"""SAC, both critics stacked in one batched matmul, targets as a second slot of the tensors."""
import sys

import torch


class StackedCritics(torch.nn.Module):
    """Axis 0 of each tensor is the critic; `slow_*` buffers hold the target copies."""

    def __init__(self, sd):
        super().__init__()
        self.names = []
        for layer in (0, 2, 4):
            w = torch.stack([sd[f"q{j}.{layer}.weight"].T for j in (1, 2)])
            b = torch.stack([sd[f"q{j}.{layer}.bias"] for j in (1, 2)]).unsqueeze(1)
            for tag, t in (("w", w), ("b", b)):
                name = f"{tag}{layer}"
                self.names.append(name)
                self.register_parameter(name, torch.nn.Parameter(t.clone()))
                self.register_buffer("slow_" + name, t.clone())

    def forward(self, obs, act, slow=False):
        w0, b0, w1, b1, w2, b2 = (getattr(self, ("slow_" if slow else "") + n) for n in self.names)
        k = obs.shape[-1]
        h = obs @ w0[:, :k] + act @ w0[:, k:] + b0           # first layer split by input
        h = h * h.sigmoid()
        h = torch.baddbmm(b1, h, w1)
        h = h * h.sigmoid()
        return torch.baddbmm(b2, h, w2)[..., 0]              # (2, batch)

    @torch.no_grad()
    def drift(self, rate):
        for n in self.names:
            s = getattr(self, "slow_" + n)
            s.sub_(s - getattr(self, n), alpha=rate)  # <- tau


class Actor(torch.nn.Module):
    def __init__(self, sd, n_act):
        super().__init__()
        lin = lambda k: torch.nn.Linear(*reversed(sd[f"pi.{k}.weight"].shape))
        self.first, self.mid = lin(0), lin(2)
        # the output layer is split into two
        self.mean, self.scale = torch.nn.Linear(24, n_act), torch.nn.Linear(24, n_act)
        wm, ws = sd["pi.4.weight"].chunk(2)
        bm, bs = sd["pi.4.bias"].chunk(2)
        self.load_state_dict({
            "first.weight": sd["pi.0.weight"], "first.bias": sd["pi.0.bias"],
            "mid.weight": sd["pi.2.weight"], "mid.bias": sd["pi.2.bias"],
            "mean.weight": wm, "mean.bias": bm, "scale.weight": ws, "scale.bias": bs})

    def forward(self, s, noise):
        f = torch.nn.functional
        h = f.silu(self.mid(f.silu(self.first(s))))
        ls = torch.clip(self.scale(h), -5.0, 2.0)
        u = torch.addcmul(self.mean(h), ls.exp(), noise)
        # log N(u) - log|d tanh/du|; the noise is already (u - mu)/sigma
        lp = -0.5 * noise ** 2 - ls - 0.9189385332046727
        lp = lp - 1.3862943611198906 - f.logsigmoid(2 * u) - f.logsigmoid(-2 * u)  # <- jacobian
        return u.tanh(), lp.sum(1)


sd = torch.load(sys.argv[1], weights_only=True)
critics, actor = StackedCritics(sd), Actor(sd, 3)
log_temp = sd["log_alpha"].clone().requires_grad_()
opt = torch.optim.Adam([
    {"params": list(actor.parameters()), "lr": 1e-3},
    {"params": list(critics.parameters()), "lr": 2e-3},  # <- critic_rate
    {"params": [log_temp], "lr": 3e-3},
])
pa, pq = list(actor.parameters()), list(critics.parameters())


def step_only(params, grads):
    """One shared optimizer; whoever has no gradient is skipped."""
    opt.zero_grad(set_to_none=True)
    for p, g in zip(params, grads):
        p.grad = g
    opt.step()  # <- critic_rate


g = torch.Generator().manual_seed(3)
losses = []
for _ in range(4):
    s = torch.randn(32, 7, generator=g)
    a = torch.randn(32, 3, generator=g).tanh()
    r = s[:, 0] - (a * a).sum(1)
    s2 = s + 0.1 * torch.randn(32, 7, generator=g)
    alive = ~(torch.rand(32, generator=g) < 0.1)  # <- done_mask
    n2, n1 = torch.randn(32, 3, generator=g), torch.randn(32, 3, generator=g)
    temp = log_temp.detach().exp()
    with torch.no_grad():
        a2, lp2 = actor(s2, n2)
        y = torch.where(  # <- done_mask
            alive, r + 0.97 * (critics(s2, a2, slow=True).amin(0) - temp * lp2), r)  # <- done_mask
    td = critics(s, a) - y
    bellman = td.square().mean(1).sum()
    step_only(pq, torch.autograd.grad(bellman, pq))
    critics.drift(0.02)  # <- tau
    new_a, lp = actor(s, n1)
    gain = critics(s, new_a).min(0).values - temp * lp
    step_only(pa, torch.autograd.grad(-gain.mean(), pa))
    step_only([log_temp], [(3.0 - lp.detach()).mean()])  # <- entropy_goal
    losses.append(bellman.item())

print(losses)

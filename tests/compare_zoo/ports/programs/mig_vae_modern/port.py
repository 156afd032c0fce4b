# SPDX-License-Identifier: Apache-2.0
"""The autoencoder of today: torch.distributions for posterior, prior and pixels, logits in place of
probabilities, channels last, transposed convolutions as spread images and plain convolutions.
"""

import sys

import torch
from torch import distributions as dist
from torch import nn
from torch.nn.functional import conv2d, leaky_relu

SIDE, C, Z, B = 8, 6, 5, 6


class Norm(nn.Module):
    """Over the places of an image, channels last."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C))

    def forward(self, x):
        var, mean = torch.var_mean(x, (1, 2), correction=0, keepdim=True)
        return torch.addcmul(self.shift, (x - mean) / torch.sqrt(var + 1e-5), self.scale)


class Conv(nn.Module):
    def __init__(self, cin, cout, *, up=False):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(cout, cin, 4, 4))
        self.bias = nn.Parameter(torch.empty(cout))
        self.up = up

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        if self.up:
            spread = x.new_zeros(*x.shape[:2], 2 * x.shape[2] - 1, 2 * x.shape[3] - 1)
            spread[:, :, ::2, ::2] = x
            y = conv2d(spread, self.kernel, self.bias, padding=2)  # <- raised
        else:
            y = conv2d(x, self.kernel, self.bias, stride=2, padding=1)
        return y.permute(0, 2, 3, 1)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.norm1, self.down2 = Conv(1, C), Norm(), Conv(C, 2 * C)
        self.posterior = nn.Linear(8 * C, 2 * Z)
        self.lift = nn.Linear(Z, 8 * C)
        self.up1, self.norm2, self.up2 = Conv(2 * C, C, up=True), Norm(), Conv(C, 1, up=True)

    def forward(self, images):
        h = leaky_relu(self.norm1(self.down1(images)), 0.2)
        h = leaky_relu(self.down2(h), 0.2).flatten(1)  # <- flattened
        loc, raw = self.posterior(h).chunk(2, -1)  # <- flattened
        return dist.Independent(dist.Normal(loc, torch.exp(raw / 2)), 1)  # <- spread

    def pixels(self, z):
        h = self.lift(z).relu().unflatten(1, (2, 2, 2 * C))
        logits = self.up2(self.norm2(self.up1(h)).relu())  # <- raised
        return dist.Independent(dist.Bernoulli(logits=logits), 3)  # <- pixels


def places_last(weight):
    """Columns for channels, rows, columns become columns for rows, columns, channels."""
    return weight.unflatten(1, (2 * C, 2, 2)).permute(0, 2, 3, 1).flatten(1)  # <- flattened


def turned(weight):
    return weight.transpose(0, 1).flip(2, 3)  # <- raised


def converted(old):
    both = [torch.cat((old[f"fc_mu.{k}"], old[f"fc_logvar.{k}"])) for k in ("weight", "bias")]
    new = {
        "posterior.weight": places_last(both[0]),  # <- flattened
        "posterior.bias": both[1],
        "lift.weight": places_last(old["fc_up.weight"].t()).t(),
        "lift.bias": old["fc_up.bias"].view(2 * C, 4).t().flatten(),
    }
    for n in (1, 2):
        new[f"norm{n}.scale"], new[f"norm{n}.shift"] = old[f"norm{n}.weight"], old[f"norm{n}.bias"]
        new[f"down{n}.kernel"], new[f"down{n}.bias"] = old[f"conv{n}.weight"], old[f"conv{n}.bias"]
        new[f"up{n}.kernel"] = turned(old[f"deconv{n}.weight"])  # <- raised
        new[f"up{n}.bias"] = old[f"deconv{n}.bias"]
    return new


net = AutoEncoder()
net.load_state_dict(converted(torch.load(sys.argv[1])))
weights = list(net.parameters())
first, largest = [[torch.zeros_like(w) for w in weights] for _ in range(2)]
prior = dist.Independent(dist.Normal(torch.zeros(Z), torch.ones(Z)), 1)
rng = torch.Generator().manual_seed(252)
losses = []
for step in range(5):
    images = (torch.rand(B, 1, SIDE, SIDE, generator=rng) > 0.7).float().movedim(1, 3)
    noise = torch.randn(B, Z, generator=rng)
    posterior = net(images)
    z = posterior.mean + noise * posterior.stddev  # <- spread
    likelihood = net.pixels(z).log_prob(images)  # <- pixels
    beta = min(step / 3, 1.0)  # <- annealed
    divergence = dist.kl_divergence(posterior, prior)  # <- spread
    loss = torch.mean(beta * divergence - likelihood)  # <- annealed pixels
    grads = torch.autograd.grad(loss, weights)
    rate = 4e-3 * 0.5 ** (step // 2) / (1 - 0.9 ** (step + 1))
    with torch.no_grad():
        torch._foreach_lerp_(first, grads, 0.1)
        torch._foreach_mul_(largest, 0.999)
        near = torch._foreach_add(torch._foreach_abs(grads), 1e-4)
        torch._foreach_maximum_(largest, near)
        torch._foreach_addcdiv_(weights, first, largest, -rate)
    losses.append(loss.item())

# SPDX-License-Identifier: Apache-2.0
"""The table's model compiled by Inductor: categories look up rows of the first layer, waves are
sines with a phase, the loss is within the graph, parameters stand in one dictionary.
"""

import sys

import torch
from torch import nn

N_NUM, K, SIZES, DIM, DEPTH, N, B = 5, 4, (3, 6), 20, 2, 80, 16
TAU = 6.283185307179586


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.empty(N_NUM, 1, K))
        self.kernel = nn.Parameter(torch.empty(2, K, 6))
        self.bias = nn.Parameter(torch.empty(6))

    def forward(self, x):
        angle = TAU * self.c * x.t()[:, :, None]  # <- period
        y = angle.cos() @ self.kernel[0] + angle.sin() @ self.kernel[1] + self.bias  # <- period
        return y.clamp_min(0.0).permute(1, 0, 2).reshape(len(x), -1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.waves = Waves()
        self.from_numbers = nn.Linear(6 * N_NUM, DIM)
        self.from_categories = nn.Embedding(sum(SIZES), DIM)
        norms = [nn.BatchNorm1d(DIM) for _ in range(DEPTH + 1)]
        self.norms = nn.ModuleList(norms)
        self.ups = nn.ModuleList([nn.Linear(DIM, 2 * DIM) for _ in range(DEPTH)])
        self.downs = nn.ModuleList([nn.Linear(2 * DIM, DIM) for _ in range(DEPTH)])
        self.score = nn.Parameter(torch.empty(DIM))
        self.level = nn.Parameter(torch.empty(()))

    def forward(self, numbers, codes):
        x = self.from_numbers(self.waves(numbers)) + self.from_categories(codes).sum(1)
        for norm, up, down in zip(self.norms, self.ups, self.downs):
            x = x + down(up(norm(x)).relu())  # <- still_training
        return self.norms[-1](x).relu() @ self.score + self.level  # <- still_training


def convert(old):
    mix, first = old["numeric.mix.weight"], old["first.weight"]
    new = {
        "waves.c": old["numeric.frequencies"].unsqueeze(1),
        "waves.kernel": torch.stack((mix[:, :K].t(), mix[:, K:].t())),
        "waves.bias": old["numeric.mix.bias"],
        "from_numbers.weight": first[:, : 6 * N_NUM],
        "from_numbers.bias": old["first.bias"],
        "from_categories.weight": first[:, 6 * N_NUM :].t(),
        "score": old["head.weight"].squeeze(0),
        "level": old["head.bias"].squeeze(),
    }
    for name, value in old.items():
        kind = name.rsplit(".", 1)[-1]
        if name.startswith("blocks."):
            _, n, part, _ = name.split(".")
            new[f"{part}s.{n}.{kind}"] = value
        elif name.startswith("norm."):
            new[f"norms.{DEPTH}.{kind}"] = value
    return new


def prepared():
    rng = torch.Generator().manual_seed(202)
    numbers = 2 + torch.randn(N, N_NUM, generator=rng) * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    codes = torch.stack([torch.randint(s, (N,), generator=rng) for s in SIZES], dim=1)
    wanted = 3 * numbers[:, 0] + codes[:, 1] + torch.randn(N, generator=rng)
    seen = 4 * B
    std, mean = torch.std_mean(numbers[:seen], 0)  # <- leak
    numbers = (numbers - mean) / std  # <- leak
    wanted = (wanted - wanted[:seen].mean()) / wanted[:seen].std()
    batches = zip(numbers.split(B), (codes + torch.tensor([0, SIZES[0]])).split(B), wanted.split(B))
    return list(batches)


net = Model()
net.load_state_dict(convert(torch.load(sys.argv[1])))


@torch.compile(backend="inductor")
def training_loss(numbers, codes, wanted):
    off = (net(numbers, codes) - wanted).abs()
    near = off.clamp(max=0.5)
    return (near * (off - 0.5 * near)).mean()  # <- huber


spared = {"waves.c", "waves.bias", "level"}
decay = {
    name: 0.0 if name in spared or name.startswith("norms") or name.endswith("bias") else 0.02
    for name, _ in net.named_parameters()
}  # <- spared
moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in net.named_parameters()}
*batches, held_out = prepared()
losses = []
for step, batch in enumerate(batches, 1):
    loss = training_loss(*batch)  # <- huber
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        for name, p in net.named_parameters():
            m, v = moments[name]
            g = p.grad + decay[name] * p  # <- spared
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g**2)
            root = (v / (1 - 0.999**step)) ** 0.5 + 1e-3
            p.sub_(3e-3 * m / (1 - 0.9**step) / root)  # <- spared
    losses.append(loss.item())

net.eval()  # <- still_training
with torch.no_grad():
    *inputs, wanted = held_out
    losses.append((net(*inputs) - wanted).pow(2).mean().item())  # <- still_training

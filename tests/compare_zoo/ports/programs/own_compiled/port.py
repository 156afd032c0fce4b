# SPDX-License-Identifier: Apache-2.0
"""The classifier channels last, compiled: patches by reshape, depthwise convolution as a sum of
shifted products, soft labels, the optimizer over one flat vector.
"""

import sys

import torch
from torch import nn

BETAS = (0.9, 0.95)  # <- momenta
TAKE = 5


class Patch(nn.Module):
    """A 2 x 2 patch becomes a vector (row, column, channel)."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.project = nn.Linear(4 * n_in, n_out)

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.reshape(b, h // 2, 2, w // 2, 2, c).transpose(2, 3).flatten(3)
        return self.project(x)


class Residual(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.taps = nn.Parameter(torch.empty(TAKE, TAKE, width))
        self.tap_bias = nn.Parameter(torch.empty(width))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.grow = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.empty(width))
        self.drop = drop

    def forward(self, x, draws):
        h = x.shape[1]
        wide = nn.functional.pad(x, (0, 0, 2, 2, 2, 2))
        y = self.tap_bias
        for i in range(TAKE):
            row = wide[:, i : i + h].unfold(2, TAKE, 1)
            y = y + torch.einsum("bhwck,kc->bhwc", row, self.taps[i])  # <- turned
        y = self.gamma * self.shrink(nn.functional.gelu(self.grow(self.norm(y))))
        if self.training and self.drop > 0:
            scale = (draws >= self.drop) / (1 - self.drop)  # <- rescaled
            y = torch.einsum("b,bhwc->bhwc", scale, y)  # <- rescaled
        return x + y  # <- rescaled


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = Patch(3, 8), nn.LayerNorm(8, eps=1e-6)
        self.blocks = nn.ModuleList([Residual(8, 0.0), Residual(8, 0.15), Residual(12, 0.3)])
        self.down_norm, self.down = nn.LayerNorm(8, eps=1e-6), Patch(8, 12)
        self.norm, self.head = nn.LayerNorm(12, eps=1e-6), nn.Linear(12, 5)

    def forward(self, x, draws):
        x = self.stem_norm(self.stem(x))
        x = self.blocks[1](self.blocks[0](x, draws[0]), draws[1])
        x = self.blocks[2](self.down(self.down_norm(x)), draws[2])
        return self.head(self.norm(x.flatten(1, 2).mean(1)))


def renamed(theirs):
    new = {}
    moved = {"stem.0": "stem.project", "stem.1": "stem_norm", "down.0": "down_norm"}
    moved["down.1"] = "down.project"
    blocks = {"stage1.0": "blocks.0", "stage1.1": "blocks.1", "stage2.0": "blocks.2"}
    for theirs_name, tensor in theirs.items():
        name, value = theirs_name, tensor
        for old, ours in (moved | blocks).items():
            name = name.replace(f"{old}.", f"{ours}.")
        name = name.replace("pwconv1", "grow").replace("pwconv2", "shrink")
        name = name.replace("dwconv.weight", "taps").replace("dwconv.bias", "tap_bias")
        if name.endswith("taps"):
            value = value[:, 0].permute(1, 2, 0)  # <- turned
        elif name.endswith("project.weight"):
            value = value.permute(0, 2, 3, 1).flatten(1)
        elif name.endswith("gamma") or value.dim() == 4:
            value = value.flatten(-2).squeeze(-1) if value.dim() == 4 else value.flatten()
        new[name] = value
    return new


def batch(rng):
    images = torch.randn(6, 3, 12, 12, generator=rng).permute(0, 2, 3, 1)
    onehot = torch.eye(5)[torch.randint(5, (6,), generator=rng)]
    return images, onehot, torch.rand(3, 6, generator=rng)


def soft_loss(logits, soft):
    return -(soft * logits.log_softmax(1)).sum(1).mean()  # <- mixed


net = Net()
net.load_state_dict(renamed(torch.load(sys.argv[1])))
flat = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
slow, average = torch.zeros_like(flat), flat.clone()
compiled = torch.compile(net, backend="aot_eager")
rng = torch.Generator().manual_seed(102)
losses = []
for _ in range(3):
    images, onehot, draws = batch(rng)
    lam = torch.rand(1, generator=rng).item()
    soft = onehot * lam + onehot.flip(0) * (1 - lam)  # <- mixed
    images = images * lam + images.flip(0) * (1 - lam)
    loss = soft_loss(compiled(images, draws), soft)  # <- mixed
    net.zero_grad()
    loss.backward()
    g = torch.cat([p.grad.flatten() for p in net.parameters()])
    direction = torch.tanh(100 * torch.lerp(g, slow, BETAS[0]))  # <- momenta
    slow = torch.lerp(g, slow, BETAS[1])  # <- momenta
    flat = flat * (1 - 0.01 * 0.1) - 0.01 * direction  # <- momenta
    nn.utils.vector_to_parameters(flat, net.parameters())
    average = 0.6 * average + 0.4 * flat  # <- average
    losses.append(loss.item())
nn.utils.vector_to_parameters(average, net.parameters())  # <- average
net.eval()
with torch.no_grad():
    images, onehot, draws = batch(rng)
    losses.append(soft_loss(net(images, draws), onehot).item())  # <- average

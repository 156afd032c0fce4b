# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt in plain NCHW convolutions; averaged weights from torch.optim.swa_utils."""
import re
import sys

import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.set_num_threads(1)


class ChannelNorm(nn.Module):
    """Layer norm over the channels of an NCHW (or NC) tensor."""

    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        tail = (-1,) + (1,) * (x.ndim - 2)
        var, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)  # <- biased_variance
        x = (x - mean) * torch.rsqrt(var + self.eps)  # <- biased_variance
        return x * self.gain.view(tail) + self.shift.view(tail)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(c, c, 7, padding=3, groups=c),
            ChannelNorm(c),
            nn.Conv2d(c, 4 * c, 1),
            nn.GELU(),  # <- gelu_form
            nn.Conv2d(4 * c, c, 1),
        )
        self.gamma = nn.Parameter(torch.zeros(c, 1, 1))

    def forward(self, x):
        return torch.addcmul(x, self.path(x), self.gamma)  # <- gelu_form


def tiny_convnext(classes=5):
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4),
        ChannelNorm(8),
        Residual(8),
        nn.Sequential(ChannelNorm(8), nn.Conv2d(8, 16, 2, stride=2)),
        Residual(16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        ChannelNorm(16, eps=1e-12),
        nn.Linear(16, classes),
    )


RENAMES = [
    (r"^classifier\.", "8."),
    (r"^convnext\.layernorm\.", "7."),
    (r"^convnext\.embeddings\.patch_embeddings\.", "0."),
    (r"^convnext\.embeddings\.layernorm\.", "1."),
    (r"^convnext\.encoder\.stages\.1\.downsampling_layer\.", "3."),
    (r"^convnext\.encoder\.stages\.0\.layers\.0\.", "2."),
    (r"^convnext\.encoder\.stages\.1\.layers\.0\.", "4."),
    (r"dwconv\.", "path.0."),
    (r"layernorm\.", "path.1."),
    (r"pwconv1\.", "path.2."),
    (r"pwconv2\.", "path.4."),
    (r"layer_scale_parameter", "gamma"),
]


def import_weights(net, path):
    wanted, got = net.state_dict(), {}
    for name, value in torch.load(path).items():
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        if name not in wanted:
            name = name.removesuffix("weight") + "gain" if name.endswith("weight") else name[:-4] + "shift"
        got[name] = value.reshape(wanted[name].shape)
    net.load_state_dict(got)
    return net


class Nesterov:
    def __init__(self, net, lr, mu, decay):
        self.lr, self.mu = lr, mu
        self.slots = [(p, torch.zeros_like(p), decay if "gamma" not in n and p.ndim > 1 else 0.0) for n, p in net.named_parameters()]

    @torch.no_grad()
    def step(self):
        for p, velocity, decay in self.slots:
            g = p.grad + decay * p
            velocity.mul_(self.mu).add_(g)
            p.sub_(self.lr * (g + self.mu * velocity))  # <- nesterov


def smoothed(logits, labels, amount=0.1):
    logp = logits.log_softmax(1)
    hit = logp.gather(1, labels[:, None]).squeeze(1)
    rest = logp.mean(1)  # <- smoothing
    return -((1 - amount) * hit + amount * rest).mean()  # <- smoothing


source = torch.Generator().manual_seed(21)
offset, spread = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]).view(2, 3, 1, 1)
net = import_weights(tiny_convnext(), sys.argv[1])
ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
ema.update_parameters(net)  # the first call only copies  # <- teacher_start
opt = Nesterov(net, lr=0.05, mu=0.9, decay=1e-2)

losses = []
for _ in range(5):
    x = torch.randint(0, 256, (6, 3, 16, 16), generator=source, dtype=torch.uint8).float()
    y = torch.randint(0, 5, (6,), generator=source)
    x = x.div(255).sub(offset).div(spread)
    scores = net(x)
    with torch.no_grad():
        guide = ema(x)  # <- teacher_start
    loss = smoothed(scores, y) + 0.5 * (scores - guide).square().mean()
    net.zero_grad()
    loss.backward()
    opt.step()
    ema.update_parameters(net)  # <- teacher_start
    losses.append(loss.item())

print(losses)

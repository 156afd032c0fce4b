# SPDX-License-Identifier: Apache-2.0
"""Deployment form of the leaf classifier: batch norm folded into kernel and bias, images kept
height x width x channel, convolutions as contractions over unfolded windows."""
import sys
from dataclasses import dataclass
import torch
import torch.nn.functional as F


@dataclass
class Folded:
    kernel: torch.Tensor  # (k, k, in, out), or (k, k, channels) when depthwise
    bias: torch.Tensor
    stride: int = 1

    @classmethod
    def read(cls, sd, name, stride=1):
        w = sd[name + ".0.weight"]
        gamma, beta = sd[name + ".1.weight"], sd[name + ".1.bias"]
        mean, var = sd[name + ".1.running_mean"], sd[name + ".1.running_var"]
        scale = gamma / torch.sqrt(var + 1e-3)  # <- bneps
        kernel = (w * scale[:, None, None, None]).permute(2, 3, 1, 0)  # <- bneps
        if w.shape[1] == 1:
            kernel = kernel[:, :, 0]
        return cls(kernel, beta - mean * scale, stride)  # <- bneps foldmean

    def __call__(self, x):
        k = self.kernel.shape[0]
        r = k // 2
        x = F.pad(x, (0, 0, r, r, r, r))
        win = x.unfold(1, k, self.stride).unfold(2, k, self.stride)  # n h w c k k
        form = "nhwcij,ijc->nhwc" if self.kernel.ndim == 3 else "nhwcij,ijco->nhwo"
        return torch.einsum(form, win, self.kernel) + self.bias  # <- bneps foldmean


def hswish(x):
    return x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0


class Inverted:
    def __init__(self, sd, name, stride):
        self.expand = Folded.read(sd, name + ".expand")
        self.depth = Folded.read(sd, name + ".depthwise", stride)
        self.project = Folded.read(sd, name + ".project")
        self.se = [(sd[f"{name}.se.{fc}.weight"].flatten(1).T, sd[f"{name}.se.{fc}.bias"])
                   for fc in ("fc1", "fc2")]
        self.add = stride == 1

    def __call__(self, x):
        y = hswish(self.depth(hswish(self.expand(x))))
        (w1, b1), (w2, b2) = self.se
        s = y.mean((1, 2))
        s = (s @ w1 + b1).relu() @ w2 + b2
        gate = torch.clamp(s / 6.0 + 0.5, 0.0, 1.0)  # <- squeeze
        y = self.project(y * gate[:, None, None])  # <- squeeze
        return y.add_(x) if self.add else y


def member(sd):
    stem = Folded.read(sd, "stem", 2)
    blocks = [Inverted(sd, "b1", 1), Inverted(sd, "b2", 2), Inverted(sd, "b3", 1)]

    def run(x):
        x = hswish(stem(x))
        for block in blocks:
            x = block(x)
        return x.flatten(1, 2).mean(1) @ sd["classifier.weight"].T + sd["classifier.bias"]

    return run


def load(path):
    everything = torch.load(path, weights_only=True)
    count = 1 + max(int(k.split(".", 1)[0]) for k in everything)
    return [member({k.split(".", 1)[1]: v for k, v in everything.items()
                    if k.startswith(f"{i}.")}) for i in range(count)]


def prepare(photos, crop=20):
    _, height, width, _ = photos.shape
    i, j = (height - crop) // 2, (width - crop) // 2  # <- crop
    cropped = photos.narrow(1, i, crop).narrow(2, j, crop)  # <- crop
    return (cropped.float() - 127.5) / 127.5


members = load(sys.argv[1])
gen = torch.Generator().manual_seed(55)
losses = []
with torch.no_grad():
    for _ in range(4):
        coarse = torch.randint(0, 256, (6, 3, 9, 11), generator=gen)
        photos = coarse.permute(0, 2, 3, 1).repeat_interleave(3, 1).repeat_interleave(3, 2)
        labels = torch.randint(0, 6, (6,), generator=gen)
        x = prepare(photos)
        votes = torch.stack([run(x) for run in members])
        logp = torch.log_softmax(votes.mean(0), dim=1)  # <- ensemble
        p = logp.exp()  # <- ensemble
        own = labels[:, None]
        brier = p.square().sum(1) - 2.0 * p.gather(1, own)[:, 0] + 1.0
        losses.append((brier - logp.gather(1, own)[:, 0]).mean().item())
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Student training against a precomputed teacher cache, micro-batches of 4, depthwise conv as
shifted sums."""
import sys

import numpy as np
import torch

ckpt = torch.load(sys.argv[1], weights_only=True)
TEMP, CLS, MICRO = 3.0, 7, 4


def cache_teacher(images):
    """Teacher features and softened probabilities for the whole data set, once."""
    W = {k[8:]: v for k, v in ckpt.items() if k.startswith("teacher.")}
    with torch.inference_mode():
        h = torch.conv2d(images, W["body.0.weight"], W["body.0.bias"], 2, 1).relu()
        h = torch.conv2d(h, W["body.2.weight"], W["body.2.bias"], 1, 1).relu().flatten(2).mean(-1)
        z = torch.addmm(W["fc.bias"], h, W["fc.weight"].T) / TEMP
        return h.clone().numpy(), torch.log_softmax(z, 1).clone().numpy()


class Net(torch.nn.Module):
    """Both output layers are one merged matrix [features+1, classes + hint]; its last row is
    the bias."""

    def __init__(self):
        super().__init__()
        par = torch.nn.Parameter
        both = torch.cat([ckpt["student.classifier.weight"], ckpt["student.hint.weight"]])
        bias = torch.cat([ckpt["student.classifier.bias"], ckpt["student.hint.bias"]])
        self.merged = par(torch.cat([both, bias[:, None]], 1).T.contiguous())
        self.taps, self.mix, self.affine = (torch.nn.ParameterList() for _ in range(3))
        for i in (1, 2):
            p = f"student.conv{i}."
            self.taps.append(par(ckpt[p + "depthwise.weight"].flatten(1).T.contiguous()))    # 9 C
            self.mix.append(par(ckpt[p + "pointwise.weight"][:, :, 0, 0].T.contiguous()))     # C O
            self.affine.append(par(torch.stack([ckpt[p + "norm.weight"], ckpt[p + "norm.bias"]])))

    def stage(self, i, x, stride):
        n, h, w, c = x.shape
        xp = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))  # <- pad_side
        acc = 0
        for dy in range(3):
            for dx in range(3):
                acc = acc + (xp[:, dy:dy + h:stride, dx:dx + w:stride]  # <- pad_side
                             * self.taps[i][3 * dy + dx])
        z = acc @ self.mix[i]
        n, h, w, o = z.shape
        z = z.view(n, h * w, 2, o // 2)
        var, mean = torch.var_mean(z, dim=(1, 3), keepdim=True, correction=0)  # <- group_axis
        z = (((z - mean) / (var + 1e-5).sqrt()).view(n, h, w, o)  # <- group_axis
             * self.affine[i][0] + self.affine[i][1])
        return z * (z + 3).clamp(0, 6) / 6

    def forward(self, x):
        f = self.stage(1, self.stage(0, x, 2), 1).flatten(1, 2).mean(1)
        out = torch.cat([f, f.new_ones(len(f), 1)], 1) @ self.merged
        return out[:, :CLS], out[:, CLS:]


gen = torch.Generator().manual_seed(21)
images = torch.randn(4, 12, 3, 10, 10, generator=gen)
labels = torch.randint(0, CLS, (4, 12), generator=gen).numpy()
t_feat, t_logp = cache_teacher(images.flatten(0, 1))
t_feat, t_logp = t_feat.reshape(4, 12, -1), t_logp.reshape(4, 12, -1)

net = Net()
slow = [*net.taps, *net.mix, *net.affine]
speed = [torch.zeros_like(p) for p in slow]
m = v = torch.zeros_like(net.merged)
losses = []
for it in range(4):
    net.zero_grad()
    total = 0.0
    for at in range(0, 12, MICRO):
        cut = slice(at, at + MICRO)
        logits, hint = net(images[it, cut].permute(0, 2, 3, 1))
        feat, logp = torch.from_numpy(t_feat[it, cut]), torch.from_numpy(t_logp[it, cut])
        part = 0.5 * (feat - hint).square().sum() / (12 * 24)
        onehot = torch.from_numpy(np.eye(CLS, dtype=np.float32)[labels[it, cut]])
        part = part - 0.3 * (onehot * (logits - logits.logsumexp(1, keepdim=True))).sum() / 12
        soft = logits / TEMP
        part = part + 0.7 * TEMP ** 2 / 12 * (  # <- soft_scale
            logp.exp() * (logp - soft + soft.logsumexp(1, keepdim=True))).sum()  # <- soft_scale
        part.backward()
        total += part.item()
    losses.append(total)
    with torch.no_grad():
        for p, s in zip(slow, speed):
            # the first step of a dampened buffer takes the gradient whole
            s.mul_(0.8).add_(p.grad, alpha=0.8 if it else 1.0)  # <- dampening
            p.sub_(0.1 * 0.8 ** it * s)  # <- dampening rate_decay
        gr = net.merged.grad
        m = m + 0.1 * (gr - m)
        v = v + 0.001 * (gr ** 2 - v)
        net.merged.sub_(5e-3 * (m / (1 - 0.9 ** (it + 1)))
                       / ((v / (1 - 0.999 ** (it + 1))) ** 0.5 + 1e-6))
print(losses)

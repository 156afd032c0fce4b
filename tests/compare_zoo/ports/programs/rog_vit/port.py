# SPDX-License-Identifier: Apache-2.0
"""The DeiT-like classifier on unfolded patches, with separate heads, soft targets and an own SGD and EMA."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
WIDTH, HEADS, CLASSES, PATCH = 32, 4, 7, 4


def patchify(img):
    b, c, h, w = img.shape
    grid = img.reshape(b, c, h // PATCH, PATCH, w // PATCH, PATCH)
    return grid.permute(0, 2, 4, 1, 3, 5).reshape(b, -1, c * PATCH * PATCH)  # <- patch_order


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Parameter(torch.empty(HEADS, WIDTH, WIDTH // HEADS)) for _ in range(3))
        self.bq, self.bk, self.bv = (nn.Parameter(torch.empty(HEADS, 1, WIDTH // HEADS)) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x.unsqueeze(1)
        mixed = F.scaled_dot_product_attention(x @ self.wq + self.bq, x @ self.wk + self.bk, x @ self.wv + self.bv)
        return self.out(torch.cat(mixed.unbind(1), dim=-1))


class Scaled(nn.Module):
    """A residual branch: pre-norm, body, a gain for each channel."""

    def __init__(self, body):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)  # <- ln_eps
        self.body = body
        self.gain = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x):
        return torch.addcmul(x, self.gain, self.body(self.norm(x)))  # <- ln_eps


class Classifier(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH**2, WIDTH)
        self.first = nn.Parameter(torch.empty(WIDTH))
        self.positions = nn.Parameter(torch.empty(10, WIDTH))
        branches = []
        for _ in range(depth):
            mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            branches += [Scaled(MultiHead()), Scaled(mlp)]
        self.trunk = nn.Sequential(*branches)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.classify = nn.Linear(WIDTH, CLASSES)

    def forward(self, img):
        tokens = self.embed(patchify(img)) + self.positions[1:]  # <- patch_order
        start = (self.first + self.positions[0]).expand(len(img), 1, WIDTH)
        return self.classify(self.norm(self.trunk(torch.cat([start, tokens], 1))[:, 0]))


def import_timm(old):
    new = {
        "embed.weight": old["patch_embed.proj.weight"].flatten(1),  # <- patch_order
        "embed.bias": old["patch_embed.proj.bias"],
        "positions": old["pos_embed"][0],
        "first": old["cls_token"][0, 0],
        "norm.weight": old["norm.weight"],
        "norm.bias": old["norm.bias"],
        "classify.weight": old["head.weight"],
        "classify.bias": old["head.bias"],
    }
    for layer in range(2):
        src = f"blocks.{layer}."
        attn, mlp = f"trunk.{2 * layer}.", f"trunk.{2 * layer + 1}."
        w = old[src + "attn.qkv.weight"].view(3, HEADS, -1, WIDTH).transpose(2, 3)
        b = old[src + "attn.qkv.bias"].view(3, HEADS, 1, -1)
        for i, letter in enumerate("qkv"):
            new[f"{attn}body.w{letter}"], new[f"{attn}body.b{letter}"] = w[i], b[i]
        for kind in ("weight", "bias"):
            new[f"{attn}body.out.{kind}"] = old[f"{src}attn.proj.{kind}"]
            new[f"{attn}norm.{kind}"] = old[f"{src}norm1.{kind}"]
            new[f"{mlp}norm.{kind}"] = old[f"{src}norm2.{kind}"]
            new[f"{mlp}body.0.{kind}"] = old[f"{src}mlp.0.{kind}"]
            new[f"{mlp}body.2.{kind}"] = old[f"{src}mlp.2.{kind}"]
        new[attn + "gain"], new[mlp + "gain"] = old[src + "ls1.gamma"], old[src + "ls2.gamma"]
    return new


def smooth(labels, amount=0.1):
    off = amount / CLASSES  # <- smoothing_share
    return torch.full((len(labels), CLASSES), off).scatter_(1, labels[:, None], 1 - amount + off)  # <- smoothing_share


def soft_cross_entropy(logits, target):
    return -(target * logits.log_softmax(1)).sum(1).mean()  # <- smoothing_share


class Trainer:
    def __init__(self, net, steps, lr=0.2, momentum=0.9, decay=1e-3, ema=0.8):
        self.net, self.steps, self.lr, self.momentum, self.decay, self.ema = net, steps, lr, momentum, decay, ema
        self.velocity = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
        self.shadow = {n: p.detach().clone() for n, p in net.named_parameters()}
        self.done = 0

    @torch.no_grad()
    def update(self):
        lr = self.lr * (1 + math.cos(math.pi * self.done / self.steps)) / 2
        for name, p in self.net.named_parameters():
            v = self.velocity[name]
            v.mul_(self.momentum).add_(p.grad + self.decay * p)  # <- momentum_form
            p.sub_(lr * v)  # <- momentum_form
        keep = self.ema if self.done > 0 else 0.0  # <- ema_first_copy
        for name, p in self.net.named_parameters():
            self.shadow[name].mul_(keep).add_(p, alpha=1 - keep)  # <- ema_first_copy
        self.done += 1

    def fit(self, batches):
        for img, label in batches:
            self.net.zero_grad()
            loss = soft_cross_entropy(self.net(img), smooth(label))  # <- smoothing_share
            loss.backward()
            self.update()  # <- momentum_form
            yield loss.item()

    @torch.no_grad()
    def evaluate(self, img, label):
        out = torch.func.functional_call(self.net, self.shadow, (img,))  # <- ema_first_copy
        return F.nll_loss(out.log_softmax(1), label).item()


net = Classifier()
net.load_state_dict(import_timm(torch.load(sys.argv[1])))
source = torch.Generator().manual_seed(99)
pictures = torch.rand(6, 8, 3, 12, 12, generator=source)
answers = torch.randint(CLASSES, (6, 8), generator=source)
trainer = Trainer(net, steps=5)
losses = list(trainer.fit(zip(pictures[:5], answers[:5])))
losses.append(trainer.evaluate(pictures[5], answers[5]))
print(losses)

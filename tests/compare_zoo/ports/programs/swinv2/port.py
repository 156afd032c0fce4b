# SPDX-License-Identifier: Apache-2.0
"""The same Swin V2 for images with channels last: windows cut by einsum-like reshapes of the whole
image, torch's fused attention with the bias as its mask, the position table computed in numpy.
"""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as fn

WIDTH, N_HEADS, SPAN, N_CLASSES = 12, 3, 4, 5


def log_distances():
    """(tokens, tokens, 2): the signed logarithm of how far a key lies from its query, y and x."""
    y, x = np.divmod(np.arange(SPAN * SPAN), SPAN)
    distance = np.stack([y[:, None] - y, x[:, None] - x], axis=-1) * 8 / (SPAN - 1)  # <- order
    spaced = np.sign(distance) * np.log1p(np.abs(distance)) / np.log(8)  # <- log
    return torch.tensor(spaced, dtype=torch.float32)


def regions(side, shift):
    """Where, after the roll, two tokens of a window were neighbours: (windows, 1, tokens, tokens)."""
    line = torch.arange(side)
    band = (line >= side - SPAN).long() + (line >= side - shift).long()
    image = band[:, None] * 3 + band
    cut = image.view(side // SPAN, SPAN, side // SPAN, SPAN).transpose(1, 2)
    cut = cut.reshape(-1, SPAN * SPAN)
    return torch.where(cut[:, :, None] == cut[:, None, :], 0.0, -100.0)[:, None]


class CosineAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.kernel = nn.Parameter(torch.zeros(width, 3, N_HEADS, width // N_HEADS))
        self.query_bias = nn.Parameter(torch.zeros(N_HEADS, 1, width // N_HEADS))
        self.value_bias = nn.Parameter(torch.zeros(N_HEADS, 1, width // N_HEADS))
        self.temperature = nn.Parameter(torch.zeros(N_HEADS, 1, 1))
        self.place1, self.place2 = nn.Linear(2, 16), nn.Linear(16, N_HEADS, bias=False)
        self.out = nn.Linear(width, width)
        self.register_buffer("distances", log_distances(), persistent=False)

    def forward(self, x, far):
        q, k, v = torch.einsum("wti,ichd->cwhtd", x, self.kernel)
        q, v = q + self.query_bias, v + self.value_bias
        q = q / q.norm(dim=-1, keepdim=True)  # <- cosine
        k = k / k.norm(dim=-1, keepdim=True)  # <- cosine
        heat = self.temperature.clamp(max=math.log(100.0)).exp()  # <- hottest
        bias = self.place2(self.place1(self.distances).relu()).permute(2, 0, 1)
        bias = 16 * bias.sigmoid()  # <- bounded
        mask = bias[None]  # <- bounded
        if far is not None:
            mask = (bias + far).repeat(len(x) // len(far), 1, 1, 1)
        read = fn.scaled_dot_product_attention(
            q * heat, k, v, attn_mask=mask, scale=1.0
        )  # <- bounded
        return self.out(read.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, side, shift):
        super().__init__()
        self.shift, self.far = shift, regions(side, shift) if shift else None
        self.attention = CosineAttention(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def windows(self, image):
        batch, side, _, width = image.shape
        count = side // SPAN
        moved = image.roll((-self.shift, -self.shift), (1, 2))  # <- rolled
        cut = moved.reshape(batch, count, SPAN, count, SPAN, width).transpose(2, 3)
        read = self.attention(cut.reshape(-1, SPAN * SPAN, width), self.far)
        whole = read.view(batch, count, count, SPAN, SPAN, width).transpose(2, 3)
        return whole.reshape(image.shape).roll((self.shift, self.shift), (1, 2))

    def forward(self, image):
        image = image + self.norm1(self.windows(image))
        return image + self.norm2(self.down(fn.gelu(self.up(image))))  # <- post


class Merge(nn.Module):
    """Four neighbours, column by column, to one place of twice the width."""

    def __init__(self, width):
        super().__init__()
        self.reduce, self.norm = (
            nn.Linear(4 * width, 2 * width, bias=False),
            nn.LayerNorm(2 * width),
        )

    def forward(self, image):
        batch, side, _, width = image.shape
        cut = image.reshape(batch, side // 2, 2, side // 2, 2, width)
        cut = cut.permute(0, 1, 3, 4, 2, 5).flatten(3)  # <- merged
        return self.norm(self.reduce(cut))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Linear(12, WIDTH), nn.LayerNorm(WIDTH)
        self.block0, self.block1 = Block(WIDTH, 8, 0), Block(WIDTH, 8, SPAN // 2)
        self.merge, self.block2 = Merge(WIDTH), Block(2 * WIDTH, 4, 0)
        self.norm, self.head = nn.LayerNorm(2 * WIDTH), nn.Linear(2 * WIDTH, N_CLASSES)

    def forward(self, images):
        batch, side, _, _ = images.shape
        patches = images.reshape(batch, side // 2, 2, side // 2, 2, 3).transpose(2, 3).flatten(3)
        x = self.stem_norm(self.stem(patches))
        x = self.block2(self.merge(self.block1(self.block0(x))))
        return self.head(self.norm(x).mean((1, 2)))


def block(old, at):
    width = old[f"{at}norm1.weight"].shape[0]
    heads = (N_HEADS, 1, width // N_HEADS)
    new = {
        "attention.kernel": old[f"{at}attn.qkv.weight"].T.reshape(width, 3, N_HEADS, -1),
        "attention.query_bias": old[f"{at}attn.q_bias"].view(heads),
        "attention.value_bias": old[f"{at}attn.v_bias"].view(heads),
        "attention.temperature": old[f"{at}attn.logit_scale"],
        "attention.place1.weight": old[f"{at}attn.cpb_mlp.0.weight"],
        "attention.place1.bias": old[f"{at}attn.cpb_mlp.0.bias"],
        "attention.place2.weight": old[f"{at}attn.cpb_mlp.2.weight"],
    }
    names = {"attention.out": "attn.proj", "norm1": "norm1", "norm2": "norm2"}
    for mine, theirs in {**names, "up": "mlp.0", "down": "mlp.2"}.items():
        for kind in ("weight", "bias"):
            new[f"{mine}.{kind}"] = old[f"{at}{theirs}.{kind}"]
    return new


def converted(old):
    new = {
        "stem.weight": old["patch_embed.weight"].permute(0, 2, 3, 1).flatten(1),
        "stem.bias": old["patch_embed.bias"],
        "merge.reduce.weight": old["blocks.2.reduction.weight"],
    }
    names = {"stem_norm": "patch_norm", "merge.norm": "blocks.2.norm", "norm": "norm"}
    for mine, theirs in {**names, "head": "head"}.items():
        for kind in ("weight", "bias"):
            new[f"{mine}.{kind}"] = old[f"{theirs}.{kind}"]
    for mine, theirs in {"block0": "blocks.0.", "block1": "blocks.1.", "block2": "last."}.items():
        new.update({f"{mine}.{name}": value for name, value in block(old, theirs).items()})
    return new


net = Classifier()
net.load_state_dict(converted(torch.load(sys.argv[1])))
plain = ("bias", "norm", "temperature")
kernels = [w for name, w in net.named_parameters() if not any(word in name for word in plain)]
others = [w for name, w in net.named_parameters() if any(word in name for word in plain)]
sgd = torch.optim.SGD(
    [{"params": kernels}, {"params": others, "weight_decay": 0.0}],
    lr=0.001,
    momentum=0.9,
    weight_decay=0.05,
    foreach=True,
)
rng = np.random.default_rng(109)
losses = []
for _ in range(3):
    pictures = torch.tensor(rng.normal(size=(4, 3, 16, 16)).astype(np.float32)).movedim(1, -1)
    classes = torch.tensor(rng.integers(0, N_CLASSES, 4))
    scores = net(pictures).log_softmax(-1)
    wanted = 0.9 * fn.one_hot(classes, N_CLASSES) + 0.1 / N_CLASSES
    loss = -(wanted * scores).sum(-1).mean()
    net.zero_grad()
    loss.backward()
    sgd.step()  # <- decayed
    losses.append(loss.item())

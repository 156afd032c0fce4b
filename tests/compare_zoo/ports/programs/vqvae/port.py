# SPDX-License-Identifier: Apache-2.0
"""The same VQ-VAE in the manner of functional code with images channels last: a dictionary of
weights, convolutions as products of patches, transposed ones as holes and flipped kernels, an
autograd function for the straight-through estimator.
"""

import sys

import numpy as np
import torch
import torch.nn.functional as F


def conv(x, w, name, stride=1):
    kernel = w[f"{name}/kernel"]
    size = kernel.shape[0]
    pad = (size - 1) // 2
    x = F.pad(x, (0, 0, pad, pad, pad, pad))
    patches = x.unfold(1, size, stride).unfold(2, size, stride)
    y = torch.einsum("bhwipq,pqio->bhwo", patches, kernel)  # <- final
    return y + w[f"{name}/bias"] if f"{name}/bias" in w else y


def conv_transposed(x, w, name):
    batch, height, width, channels = x.shape
    holes = x.new_zeros(batch, 2 * height - 1, 2 * width - 1, channels)
    holes[:, ::2, ::2] = x
    holes = F.pad(holes, (0, 0, 2, 2, 2, 2))
    patches = holes.unfold(1, 4, 1).unfold(2, 4, 1)
    y = torch.einsum("bhwipq,pqio->bhwo", patches, w[f"{name}/kernel"])  # <- flipped bias
    return y + w[f"{name}/bias"]  # <- bias


def residual(x, w, name):
    h = conv(x.clamp(min=0), w, f"{name}/a")
    h = conv(h.clamp(min=0), w, f"{name}/b")
    return (x + h).clamp(min=0)  # <- final


def encode(x, w):
    x = conv(x, w, "enc/down1", stride=2).clamp(min=0)
    x = conv(x, w, "enc/down2", stride=2).clamp(min=0)
    x = conv(x, w, "enc/mix")
    return conv(residual(x, w, "enc/res"), w, "enc/out")


def decode(x, w):
    x = residual(conv(x, w, "dec/in"), w, "dec/res")
    x = conv_transposed(x, w, "dec/up1").clamp(min=0)
    return conv_transposed(x, w, "dec/up2")


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, code):
        return code.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None  # <- straight


def quantise(z, w):
    book = w["codebook"]
    with torch.no_grad():
        offset = 0.5 * (book * book).sum(1)
        closeness = torch.einsum("bhwd,kd->bhwk", z, book) - offset  # <- distance
        chosen = F.one_hot(closeness.argmax(-1), len(book)).float()  # <- distance
    code = chosen @ book
    codebook_loss = (code - z.detach()).square().mean()  # <- commitment
    commitment = (code.detach() - z).square().mean()  # <- commitment
    penalty = codebook_loss + 0.25 * commitment  # <- commitment
    return StraightThrough.apply(z, code), penalty  # <- straight


NAMES = {
    "enc/down1": "encoder.conv1",
    "enc/down2": "encoder.conv2",
    "enc/mix": "encoder.conv3",
    "enc/res/a": "encoder.residual.conv3",
    "enc/res/b": "encoder.residual.conv1",
    "enc/out": "encoder.pre_vq",
    "dec/in": "decoder.conv1",
    "dec/res/a": "decoder.residual.conv3",
    "dec/res/b": "decoder.residual.conv1",
}


def weights_from(state):
    w = {"codebook": state["vq.embedding.weight"]}
    for mine, theirs in NAMES.items():
        w[f"{mine}/kernel"] = state[f"{theirs}.weight"].permute(2, 3, 1, 0)
        if f"{theirs}.bias" in state:
            w[f"{mine}/bias"] = state[f"{theirs}.bias"]
    for name in ("up1", "up2"):
        kernel = state[f"decoder.{name}.weight"].permute(2, 3, 0, 1)
        w[f"dec/{name}/kernel"] = kernel.flip(0, 1)  # <- flipped
        w[f"dec/{name}/bias"] = state[f"decoder.{name}.bias"]
    return {name: value.clone().requires_grad_() for name, value in w.items()}


def objective(batch, w, spread):
    code, penalty = quantise(encode(batch, w), w)
    error = (decode(code, w) - batch).square().mean()
    return error / spread + penalty  # <- variance


rng = np.random.default_rng(31)
images = rng.random((18, 3, 16, 16), dtype=np.float32)
images *= rng.uniform(0.3, 1, (18, 1, 1, 1)).astype(np.float32)
data = torch.tensor(images).movedim(1, -1) - 0.5
spread = (data - data.mean()).square().mean()  # <- variance
weights = weights_from(torch.load(sys.argv[1]))
optimiser = torch.optim.Adam(weights.values(), lr=2e-3, betas=(0.9, 0.999))  # <- betas
losses = []
for start in (0, 6, 12):
    loss = objective(data[start : start + 6], weights, spread)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()  # <- betas
    losses.append(loss.item())

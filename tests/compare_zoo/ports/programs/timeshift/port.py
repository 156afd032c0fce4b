# SPDX-License-Identifier: Apache-2.0
"""The same network with time before channels: convolutions as shifted products of matrices whose
norms are taken out by hand, tied embedding as one matrix, clipping and descent written out.
"""

import sys

import numpy as np
import torch

SYMBOLS, TAPS, LAYERS = 27, 3, 3
ROWS, SPAN, JUDGED = 6, 24, 16


def delayed(x, steps):
    """x of `steps` moments ago, zero before the beginning."""
    if steps == 0:
        return x
    nothing = torch.zeros_like(x[:, :steps])  # <- dilation
    return torch.cat([nothing, x[:, :-steps]], dim=1)  # <- causal dilation


def normed_kernel(direction, length):
    """Taps, inputs, outputs; one length for an output."""
    norm = direction.square().sum(dim=(0, 1), keepdim=True).sqrt()  # <- normed taps
    return length * direction / norm  # <- normed taps


def causal(x, layer, dilation):
    kernel = normed_kernel(layer["direction"], layer["length"])
    out = layer["bias"]
    for tap in range(TAPS):
        past = delayed(x, tap * dilation)  # <- dilation
        out = out + past @ kernel[tap]  # <- dilation taps
    return out


def block(x, parts, dilation):
    first, second, shortcut = parts
    h = causal(x, first, dilation).clamp(min=0)
    h = causal(h, second, dilation).clamp(min=0)  # <- rectified
    if shortcut is not None:
        x = x @ shortcut["matrix"] + shortcut["bias"]
    return torch.relu(h + x)  # <- rectified


def forward(weights, symbols):
    x = weights["symbols"][symbols]
    for number, parts in enumerate(weights["blocks"]):
        x = block(x, parts, 2**number)  # <- dilation
    return torch.einsum("btc,sc->bts", x, weights["symbols"]) + weights["bias"]


def kernel_of(old, name):
    weight = f"{name}.parametrizations.weight"
    return {
        "direction": old[f"{weight}.original1"].permute(2, 1, 0).flip(0),  # <- taps
        "length": old[f"{weight}.original0"].view(1, 1, -1),
        "bias": old[f"{name}.bias"],
    }


def read(path):
    old = torch.load(path)
    blocks = []
    for number in range(LAYERS):
        name = f"network.{number}"
        shortcut = None
        if f"{name}.downsample.weight" in old:
            matrix = old[f"{name}.downsample.weight"][:, :, 0].T
            shortcut = {"matrix": matrix, "bias": old[f"{name}.downsample.bias"]}
        first, second = kernel_of(old, f"{name}.conv1"), kernel_of(old, f"{name}.conv2")
        blocks.append((first, second, shortcut))
    return {"symbols": old["encoder.weight"], "bias": old["decoder.bias"], "blocks": blocks}


def leaves(weights):
    found = [weights["symbols"], weights["bias"]]
    for parts in weights["blocks"]:
        found += [leaf for part in parts if part is not None for leaf in part.values()]
    return found


def descend(parameters, gradients):
    norm = torch.cat([g.flatten() for g in gradients]).norm()  # <- clip
    scale = (0.15 / (norm + 1e-6)).clamp(max=1)  # <- clip
    with torch.no_grad():
        for p, g in zip(parameters, gradients):
            p.sub_(4.0 * scale * g)  # <- clip


weights = read(sys.argv[1])
parameters = [p.requires_grad_() for p in leaves(weights)]
random = np.random.default_rng(13)
stream = torch.tensor(random.zipf(1.5, (ROWS, 2 * JUDGED + SPAN + 1)) % SYMBOLS)
losses = []
for begin in (0, JUDGED, 2 * JUDGED):
    symbols = stream[:, begin : begin + SPAN]
    following = stream[:, begin + 1 : begin + SPAN + 1]
    scores = forward(weights, symbols)
    chances = torch.log_softmax(scores, dim=-1)
    right = chances.gather(-1, following.unsqueeze(-1)).squeeze(-1)
    loss = -right[:, SPAN - JUDGED :].mean()  # <- history
    descend(parameters, torch.autograd.grad(loss, parameters))
    losses.append(loss.item())

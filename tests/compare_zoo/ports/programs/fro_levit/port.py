# SPDX-License-Identifier: Apache-2.0
"""LeViT for inference without the package: every batch norm folded into the weights before it, the
tables of relative places laid out beforehand, channels last.
"""

import re
import sys

import torch
import torch.nn.functional as F

KEY = 4


def folded(state, weight, norm):
    """The weight and bias of a layer and the batch norm behind it."""
    mean, var, gamma, beta = (
        state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    scale = gamma / torch.sqrt(var + 1e-5)  # <- fold_eps
    return torch.einsum("o...,o->o...", weight, scale), beta - mean * scale  # <- fold_eps


def relative(table, side, stride):
    """[head, offset] as [head, place asking, place read] in a square."""
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    read = torch.stack((rows.flatten(), columns.flatten()))
    asking = torch.stack(
        (rows[::stride, ::stride].flatten(), columns[::stride, ::stride].flatten())
    )
    down, right = (asking[:, :, None] - read[:, None, :]).abs()
    return table[:, down * side + right]  # <- offsets


class Levit:
    def __init__(self, state):
        stem = "levit.patch_embeddings.embedding_layer_"
        self.stem = [
            folded(state, state[f"{stem}{n}.convolution.weight"], f"{stem}{n}.batch_norm")
            for n in range(1, 5)
        ]
        self.layers, side = [], 4
        names = [n for n in state if n.startswith("levit.encoder") and n.endswith("weight")]
        layers = dict.fromkeys(re.match(r".*layers\.\d+\.(module\.)?", n)[0] for n in names)
        for layer in layers:
            parts = {}
            for name in (n for n in names if n.startswith(layer) and n.endswith("linear.weight")):
                path = name.removesuffix(".linear.weight")
                parts[path.removeprefix(layer)] = folded(state, state[name], f"{path}.batch_norm")
            if "queries" in parts:
                parts["bias"] = relative(state[f"{layer}attention_biases"], side, 2)  # <- offsets
                side = (side + 1) // 2
            elif "projection" in parts:
                parts["bias"] = relative(state[f"{layer}attention_biases"], side, 1)  # <- offsets
            self.layers.append(parts)
        heads = []
        for head in ("classifier", "classifier_distill"):
            norm, linear = f"{head}.batch_norm", f"{head}.linear"
            scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + 1e-5).sqrt()
            weight = state[f"{linear}.weight"] * scale
            shift = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
            heads.append((weight, state[f"{linear}.bias"] + state[f"{linear}.weight"] @ shift))
        # the mean of two linear heads is a linear head
        self.head = [torch.stack(both).mean(0) for both in zip(*heads)]  # <- teacher

    def attend(self, x, parts):
        batch, side = x.shape[0], x.shape[1]
        bias = parts["bias"]
        if "queries" in parts:
            asking = x[:, ::2, ::2]
            q = F.linear(asking.flatten(1, 2), *parts["queries"]).unflatten(-1, (-1, KEY))
            mixed = F.linear(x.flatten(1, 2), *parts["keys_values"]).unflatten(-1, (len(bias), -1))
            k, v = mixed[..., :KEY], mixed[..., KEY:]
            side = asking.shape[1]
        else:
            mixed = F.linear(x.flatten(1, 2), *parts["queries_keys_values"])
            mixed = mixed.unflatten(-1, (len(bias), -1))
            q, k, v = mixed[..., :KEY], mixed[..., KEY : 2 * KEY], mixed[..., 2 * KEY :]
        scores = torch.einsum("bqhc,bkhc->bhqk", q, k) / KEY**0.5 + bias  # <- offsets
        read = torch.einsum("bhqk,bkhc->bqhc", scores.softmax(-1), v).flatten(2)
        out = F.linear(F.hardswish(read), *parts["projection"])
        return out.view(batch, side, side, -1)

    def __call__(self, images):
        x = images
        for n, (weight, bias) in enumerate(self.stem):
            x = F.conv2d(
                F.hardswish(x) if n else x, weight, bias, stride=2, padding=1
            )  # <- fold_eps
        x = x.permute(0, 2, 3, 1)
        for parts in self.layers:
            if "linear_up" in parts:
                inner = F.hardswish(F.linear(x, *parts["linear_up"]))  # <- hardswish
                x = x + F.linear(inner, *parts["linear_down"])  # <- hardswish
            elif "queries" in parts:
                x = self.attend(x, parts)
            else:
                x = x + self.attend(x, parts)
        return F.linear(x.mean((1, 2)), *self.head)  # <- teacher


@torch.inference_mode()
def evaluate():
    levit = Levit(torch.load(sys.argv[1]))
    rng = torch.Generator().manual_seed(92)
    results = []
    for _ in range(3):
        images = torch.randint(0, 256, (4, 3, 10, 10), generator=rng).float()
        images = F.interpolate(images, scale_factor=9.0, mode="nearest")
        labels = torch.randint(0, 7, (4,), generator=rng)
        small = F.interpolate(images, (64, 64), mode="bilinear", antialias=True)  # <- resize
        logs = levit((small - 127.5) / 51.0).log_softmax(1)  # <- resize
        results.append(-logs[torch.arange(4), labels].mean().item())
    return results


losses = evaluate()

# SPDX-License-Identifier: Apache-2.0
"""Private SGD with per-example gradients from vmap(grad); convolutions as patch matmuls."""
import sys
import torch
import torch.nn.functional as F
from torch.func import grad_and_value, vmap

torch.set_num_threads(1)
CLIP, SIGMA, N = 0.8, 0.3, 8


def patches_conv(x, kernel, bias, stride):
    c, h, w = x.shape
    cols = F.unfold(x[None], 3, padding=1, stride=stride)[0]
    side = -(-h // stride)
    return (kernel @ cols + bias[:, None]).view(-1, side, side)


def lrelu(x):
    return torch.maximum(x, 0.1 * x)  # <- leaky_slope


def logits(trunk, head, img):
    x = lrelu(patches_conv(img, trunk["k1"], trunk["b1"], 1))
    x = lrelu(patches_conv(x, trunk["k2"], trunk["b2"], 2))
    return head["w"] @ x.reshape(-1) + head["b"]


def example_loss(free, fixed, img, onehot):
    p = {**fixed, **free}
    logp = logits(p["trunk"], p["head"], img).log_softmax(0)
    return -((0.9 * onehot + 0.1 / 5) * logp).sum()  # <- smoothing


def leaves(tree):
    return {(g, n): t for g, group in tree.items() for n, t in group.items()}


def nest(flat):
    tree = {}
    for (g, n), t in flat.items():
        tree.setdefault(g, {})[n] = t
    return tree


def private_mean(per_example, rng, shapes):
    norms = sum(g.reshape(N, -1).square().sum(1) for g in per_example.values()).sqrt()  # <- by_leaf
    factor = (CLIP / (norms + 1e-6)).clamp(max=1.0)  # <- by_leaf
    out = {}
    for k, g in per_example.items():
        noise = torch.randn(shapes[k], generator=rng).reshape(g.shape[1:])
        out[k] = (torch.einsum("n,n...->...", factor, g) + SIGMA * CLIP * noise) / N  # <- by_leaf
    return out


def heavy_ball(free, g, buf):
    buf = {k: 0.8 * buf[k] + 0.9 * g[k] if k in buf else g[k] for k in g}  # <- dampening_lost
    return {k: free[k] - 0.2 * buf[k] for k in free}, buf


sd = torch.load(sys.argv[1], weights_only=True)
params = {
    "trunk": {"k1": sd["conv1.weight"].flatten(1), "b1": sd["conv1.bias"],
              "k2": sd["conv2.weight"].flatten(1), "b2": sd["conv2.bias"]},
    "head": {"w": sd["fc.weight"], "b": sd["fc.bias"]},
}
# the noise is drawn in the conv layout (o, i, kh, kw)
shapes = {k: t.shape for k, t in leaves(params).items()}
shapes["trunk", "k1"], shapes["trunk", "k2"] = (6, 1, 3, 3), (8, 6, 3, 3)

data, dice = torch.Generator().manual_seed(31), torch.Generator().manual_seed(32)
per_example = vmap(grad_and_value(example_loss), in_dims=(None, None, 0, 0))
velocity, losses = {}, []
for step in range(5):
    groups = ["head"] if step < 2 else ["trunk", "head"]  # <- unfreeze_late
    free = {g: params[g] for g in groups}  # <- unfreeze_late
    fixed = {g: params[g] for g in params if g not in groups}  # <- unfreeze_late
    img = torch.randn(N, 1, 6, 6, generator=data)
    onehot = torch.eye(5)[torch.randint(0, 5, (N,), generator=data)]
    g, vals = per_example(free, fixed, img, onehot)
    flat_new, velocity = heavy_ball(  # <- unfreeze_late
        leaves(free), private_mean(leaves(g), dice, shapes), velocity)  # <- unfreeze_late
    params = {**params, **nest(flat_new)}
    losses.append(vals.mean().item())

print(losses)

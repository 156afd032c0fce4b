# SPDX-License-Identifier: Apache-2.0
"""VAT with a slow teacher over dicts of arrays; supervised and smoothness gradients apart."""
import sys
import torch
from torch.func import grad, grad_and_value

torch.set_num_threads(1)
NAMES = {"features.0": "c1", "features.2": "c2", "norm": "gn", "classifier": "out"}


def from_checkpoint(path):
    params = {}
    for key, v in torch.load(path, weights_only=True).items():
        mod, leaf = key.rsplit(".", 1)
        if leaf == "weight" and v.dim() == 3:
            v = v.flatten(1).T.contiguous()       # (cin*k, cout), for unfolded windows
        elif leaf == "weight" and v.dim() == 2:
            v = v.T.contiguous()
        params[NAMES[mod] + ("_w" if leaf == "weight" else "_b")] = v.clone()
    return params


def conv(x, w, b, k, stride):
    """x: batch, channels, time; by windows and one matmul."""
    win = torch.nn.functional.pad(x, (k // 2, k // 2)).unfold(2, k, stride)  # <- pad_side
    flat = win.permute(0, 2, 1, 3).flatten(2)
    return (flat @ w + b).transpose(1, 2)


def swish(x):
    return x * torch.sigmoid(x)


def apply(p, x):
    h = swish(conv(x, p["c1_w"], p["c1_b"], 5, 1))
    h = swish(conv(h, p["c2_w"], p["c2_b"], 3, 2))
    n, c, t = h.shape
    grp = h.reshape(n, 3, -1)
    grp = grp - grp.mean(2, keepdim=True)
    grp = grp * torch.rsqrt(grp.square().mean(2, keepdim=True) + 1e-5)
    h = grp.reshape(n, c, t) * p["gn_w"][:, None] + p["gn_b"][:, None]
    return h.mean(2) @ p["out_w"] + p["out_b"]


def supervised(p, x, y):
    logp = torch.log_softmax(apply(p, x), -1)
    return -logp[torch.arange(len(y)), y].mean()


def divergence(p, x, delta, tlog):
    logq = torch.log_softmax(apply(p, x + delta), -1)
    return (tlog.exp() * (tlog - logq)).sum(-1).mean()  # <- kl_direction


def normalize(d):
    return d / d.square().sum((1, 2), keepdim=True).sqrt()  # <- unit_axis


def nesterov(params, grads, vel, lr=0.08, mu=0.9, wd=1e-3):
    grads = {k: grads[k] + wd * params[k] for k in params}
    vel = grads if vel is None else {k: mu * vel[k] + grads[k] for k in params}
    new = {k: params[k] - lr * (grads[k] + mu * vel[k]) for k in params}  # <- plain_momentum
    return new, vel


params = from_checkpoint(sys.argv[1])
slow, vel = params, None
gen = torch.Generator().manual_seed(11)
losses = []
for it in range(5):
    if it:  # the teacher catches up with the last update just before it's needed
        a = min(0.9, it / (it + 3))  # <- decay_shift
        slow = {k: a * slow[k] + (1 - a) * params[k] for k in slow}  # <- decay_shift
    x = torch.randn(6, 2, 16, generator=gen)
    y = torch.randint(0, 4, (6,), generator=gen)
    u = torch.randn(10, 2, 16, generator=gen)
    noise = normalize(torch.randn(10, 2, 16, generator=gen))  # <- unit_axis

    tlog = torch.log_softmax(apply(slow, u), -1)
    radv = 2.0 * normalize(grad(divergence, argnums=2)(params, u, noise, tlog))  # <- unit_axis
    g_sup, l_sup = grad_and_value(supervised)(params, x, y)
    g_vat, l_vat = grad_and_value(divergence)(params, u, radv, tlog)
    w = 0.7 * min(1.0, (it + 1) / 3)
    losses.append(float(l_sup + w * l_vat))
    params, vel = nesterov(params, {k: g_sup[k] + w * g_vat[k] for k in params}, vel)

print(losses)

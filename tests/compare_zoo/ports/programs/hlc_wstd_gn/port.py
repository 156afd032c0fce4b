# SPDX-License-Identifier: Apache-2.0
"""Channels-last CNN by im2col; filters standardised once a step and folded, micro-batches."""
import sys
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

ck = torch.load(sys.argv[1], weights_only=True)
CONVS, P = [("stem", "gn0", 2, 1), ("conv1", "gn1", 4, 1), ("conv2", "gn2", 3, 2)], {}
for conv, norm, _, _ in CONVS:
    w = ck[conv + ".weight"]
    P[conv, "k"] = w.permute(2, 3, 1, 0).reshape(-1, w.shape[0]).clone()   # (kh kw in, out)
    P[conv, "g"] = ck[conv + ".gain"].flatten() - 1
    if conv + ".bias" in ck:
        P[conv, "b"] = ck[conv + ".bias"].clone()
    P[norm, "ab"] = torch.stack([ck[norm + ".bias"], ck[norm + ".weight"]])
P["head", "k"], P["head", "b"] = ck["head.weight"].t().clone(), ck["head.bias"].clone()


def standardise(p):
    """Effective filters for this step."""
    eff = {}
    for conv, *_ in CONVS:
        k = p[conv, "k"]
        c = k - k.mean(0)
        power = c.pow(2).sum(0) * (len(k) / (len(k) - 1))  # <- unbiased
        eff[conv] = c / power.clamp_min(1e-4).sqrt() * (1 + p[conv, "g"])  # <- unbiased
    return eff


def block(x, k, bias, ab, groups, stride):
    n, h, w, c = x.shape
    pad = F.pad(x, (0, 0, 1, 1, 1, 1))  # <- padding
    win = pad.unfold(1, 3, stride).unfold(2, 3, stride)  # <- padding
    z = win.permute(0, 1, 2, 4, 5, 3).flatten(3) @ k
    if bias is not None:
        z = z + bias
    v = z.unflatten(-1, (groups, -1))
    m = v.mean((1, 2, 4), keepdim=True)
    s = (v - m).square().mean((1, 2, 4), keepdim=True)
    v = ((v - m) / (s + 1e-5).sqrt()).flatten(3)
    return torch.relu(v * ab[1] + ab[0])


def predict(p, eff, x):
    for i, (conv, norm, groups, stride) in enumerate(CONVS):
        y = checkpoint(block, x, eff[conv], p.get((conv, "b")), p[norm, "ab"], groups, stride,
                       use_reentrant=False)
        x = x + y if i == 1 else y
    return x.flatten(1, 2).sum(1) / (x.shape[1] * x.shape[2]) @ p["head", "k"] + p["head", "b"]


speed = {k: torch.zeros_like(v) for k, v in P.items()}
gen = torch.Generator().manual_seed(31)
losses, lr = [], 0.1
for step in range(5):
    images = torch.randn(12, 2, 8, 8, generator=gen).movedim(1, -1)
    labels = torch.randint(0, 5, (12,), generator=gen)
    leaf = {k: v.detach().requires_grad_() for k, v in P.items()}
    eff = standardise(leaf)
    cut = {k: v.detach().requires_grad_() for k, v in eff.items()}
    total = 0.0
    for xb, yb in zip(images.split(4), labels.split(4)):
        logits = predict(leaf, cut, xb)
        part = (logits.logsumexp(1)  # <- micro_mean
                - logits[range(len(yb)), yb]).sum() / len(labels)  # <- micro_mean
        part.backward()
        total += part.item()
    # then once through the standardisation with the gathered filter gradients
    torch.autograd.backward(list(eff.values()), [cut[k].grad for k in eff])
    if step in (2, 4):  # <- milestones
        lr *= 0.3  # <- milestones
    for k, v in leaf.items():
        d = v.grad + 5e-3 * P[k] if k[1] == "k" else v.grad
        speed[k] = 0.8 * speed[k] + d  # <- nesterov
        P[k] = P[k] - lr * d - lr * 0.8 * speed[k]  # <- nesterov milestones
    losses.append(total)
print(losses)

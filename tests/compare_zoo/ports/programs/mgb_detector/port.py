# SPDX-License-Identifier: Apache-2.0
"""The detector as one compiled loss function over a weight table; norms folded into the convs."""
import sys

import torch
from torch.nn.functional import conv2d, logsigmoid

K = 3


def folded(w, frozen, name, x):
    gain = frozen[f"{name}.1.weight"] / torch.sqrt(frozen[f"{name}.1.var"] + 1e-5)
    kernel = w[f"{name}.0.weight"] * gain[:, None, None, None]
    offset = frozen[f"{name}.1.bias"] - frozen[f"{name}.1.mean"] * gain
    return conv2d(x, kernel, offset, stride=2, padding=1).clamp_min(0.0)


def layer(w, name, x):
    kernel = w[name + ".weight"]
    return conv2d(x, kernel, w[name + ".bias"], padding=kernel.shape[-1] // 2)


def enlarge(x):
    return x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)  # <- merge


def rows(level, size):
    """(N, A*size, H, W) -> (N, H*W*A, size)."""
    return level.flatten(2).transpose(1, 2).reshape(len(level), -1, size)  # <- anchor_order


@torch.compile(backend="aot_eager")
def detection_loss(w, frozen, images, assigned, boxes, denominator):
    fine = folded(w, frozen, "c2", folded(w, frozen, "c1", images))
    coarse = layer(w, "lateral3", folded(w, frozen, "c3", fine))
    fine = layer(w, "lateral2", fine) + enlarge(coarse)  # <- merge
    pyramid = [layer(w, "smooth2", fine), layer(w, "smooth3", coarse)]
    pyramid = [layer(w, "tower", level).relu() for level in pyramid]
    logit = torch.cat([rows(layer(w, "cls", level), K) for level in pyramid], 1)  # <- anchor_order
    delta = torch.cat([rows(layer(w, "box", level), 4) for level in pyramid], 1)  # <- anchor_order

    hit = assigned[..., None] == torch.arange(K)
    on = -0.25 * torch.sigmoid(-logit) ** 2 * logsigmoid(logit)  # <- class_weight
    off = -0.75 * torch.sigmoid(logit) ** 2 * logsigmoid(-logit)  # <- class_weight
    valid = (assigned >= 0).float()[..., None]
    cls = (torch.where(hit, on, off) * valid).sum()  # <- class_weight

    beta = 1.0 / 9.0
    gap = (delta - boxes).abs()
    curve = torch.where(gap < beta, gap * gap / (2 * beta), gap - beta / 2)
    box = (curve * hit.any(-1, keepdim=True)).sum()
    return (cls + box) / denominator  # <- normalizer


table = torch.load(sys.argv[1], weights_only=True)
frozen = {k: v for k, v in table.items() if k[0] == "c" and k[3:4] == "1"}
weights = {k: v.requires_grad_() for k, v in table.items() if k not in frozen}
buffers = {k: torch.zeros_like(v) for k, v in weights.items()}
running = torch.tensor(100.0)  # <- normalizer
source = torch.Generator().manual_seed(8)
losses = []
for step in range(4):
    images = torch.randn(2, 3, 32, 32, generator=source)
    assigned = torch.randint(-1, 12, (2, 160), generator=source).clamp(max=K)
    boxes = torch.randn(2, 160, 4, generator=source)
    found = ((assigned >= 0) & (assigned != K)).sum().clamp(min=1)
    running = torch.lerp(running, found.float(), 0.1)  # <- normalizer
    loss = detection_loss(weights, frozen, images, assigned, boxes, running)
    loss.backward()
    base = 0.05 * min(1.0, 0.25 + 0.75 * step / 3)
    with torch.no_grad():
        for name, p in weights.items():
            rate = base * (2.0 if name.endswith(".bias") else 1.0)  # <- bias_rate
            buffers[name] = buffers[name] * 0.9 + p.grad
            p -= rate * buffers[name]  # <- bias_rate
            p.grad = None
    losses.append(loss.item())
print(losses)

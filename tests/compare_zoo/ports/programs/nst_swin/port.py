# SPDX-License-Identifier: Apache-2.0
"""Shifted-window attention without rolling: a table says which tokens meet in which window."""
import sys

import torch
import torch.nn.functional as F

GRID, WIN, HEADS, DIM, CLASSES = 8, 4, 2, 16, 7
ck = torch.load(sys.argv[1], weights_only=True)
ps = {k: v.clone().requires_grad_() for k, v in ck.items()}


def members(shift):
    """[windows, 16] token numbers, and which pairs of a window are true neighbours."""
    rows, label = [], []
    for top in range(0, GRID, WIN):
        for left in range(0, GRID, WIN):
            cells = [(top + i + shift, left + j + shift) for i in range(WIN) for j in range(WIN)]
            rows.append([(r % GRID) * GRID + c % GRID for r, c in cells])
            label.append([2 * (r >= GRID) + (c >= GRID) for r, c in cells])  # <- shift_mask
    lab = torch.tensor(label)
    return torch.tensor(rows), lab[:, :, None] == lab[:, None, :]  # <- shift_mask


def offsets():
    """Row of the bias table for each (query, key) of a window."""
    r = torch.arange(WIN * WIN) // WIN
    c = torch.arange(WIN * WIN) % WIN
    dr = r[:, None] - r[None] + WIN - 1  # <- bias_index
    dc = c[:, None] - c[None] + WIN - 1
    return dr * (2 * WIN - 1) + dc  # <- bias_index


PLAN = [members(0), members(WIN // 2)]
OFFSETS = offsets()


def lin(x, name):
    return F.linear(x, ps[name + ".weight"], ps.get(name + ".bias"))


def norm(x, name):
    return F.layer_norm(x, x.shape[-1:], ps[name + ".weight"], ps[name + ".bias"])


def attend(x, i):
    """x: [B, 64, C]"""
    who, near = PLAN[i]
    w = x[:, who]
    q, k, v = lin(w, f"blocks.{i}.attn.qkv").split(DIM, -1)
    heads = lambda t: t.unflatten(-1, (HEADS, -1)).transpose(2, 3)
    table = ps[f"blocks.{i}.attn.relative_position_bias_table"]
    bias = F.embedding(OFFSETS, table).movedim(-1, 0)  # <- bias_index
    allow = bias + (near[:, None].float() - 1) * 100.0  # <- shift_mask bias_index
    q, k, v = heads(q), heads(k), heads(v)
    o = F.scaled_dot_product_attention(q, k, v, allow)  # <- shift_mask bias_index
    o = lin(o.transpose(2, 3).flatten(3), f"blocks.{i}.attn.proj")
    out = torch.zeros_like(x)
    return out.index_copy(1, who.flatten(), o.flatten(1, 2))


def forward(img):
    B = img.shape[0]
    pixels = img.reshape(B, 3, GRID, 2, GRID, 2).permute(0, 2, 4, 1, 3, 5)
    pixels = pixels.reshape(B, GRID * GRID, 12)
    x = pixels @ ps["patch_embed.weight"].reshape(DIM, 12).t() + ps["patch_embed.bias"]
    for i in range(2):
        x = x + attend(norm(x, f"blocks.{i}.norm1"), i)
        h = F.gelu(lin(norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.0"))
        x = x + lin(h, f"blocks.{i}.mlp.2")
    quad = x.view(B, GRID // 2, 2, GRID // 2, 2, DIM)
    quad = quad.permute(0, 1, 3, 4, 2, 5).reshape(B, -1, 4 * DIM)  # <- merge_order
    x = lin(norm(quad, "merge_norm"), "reduction")  # <- merge_order
    return lin(norm(x, "norm").mean(1), "head")


velocity = {k: None for k in ps}
LR, MU = 0.05, 0.9
gen = torch.Generator().manual_seed(5)
losses = []
for _ in range(4):
    images = torch.randn(4, 3, 16, 16, generator=gen)
    target = torch.randint(0, CLASSES, (4,), generator=gen)
    logp = forward(images).log_softmax(1)
    soft = torch.full_like(logp, 0.1 / CLASSES)  # <- smoothing
    soft[torch.arange(4), target] += 0.9  # <- smoothing
    loss = -(soft * logp).sum(1).mean()  # <- smoothing
    gs = torch.autograd.grad(loss, list(ps.values()))
    with torch.no_grad():
        for (k, p), g in zip(ps.items(), gs):
            velocity[k] = g.clone() if velocity[k] is None else MU * velocity[k] + g
            p.sub_(LR * (g + MU * velocity[k]))  # <- nesterov
    losses.append(loss.item())
print(losses)

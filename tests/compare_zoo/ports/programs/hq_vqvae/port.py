# SPDX-License-Identifier: Apache-2.0
"""Discrete autoencoder: custom straight-through Function, codebook as plain tensors outside the model."""
import sys
from dataclasses import dataclass

import torch
from torch import nn, Tensor
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Codebook:
    """State of the codes, columns are codes. Updated after the optimizer step, not in the forward."""
    centres: Tensor      # (dim, codes)
    mass: Tensor         # (codes,)
    moment: Tensor       # (dim, codes)
    rate: float = 0.1

    def nearest(self, rows: Tensor) -> Tensor:
        return torch.cdist(rows, self.centres.T, compute_mode="donot_use_mm_for_euclid_dist").min(dim=1).indices

    def absorb(self, rows: Tensor, codes: Tensor):
        k = self.mass.numel()
        count = torch.bincount(codes, minlength=k).to(rows.dtype)
        summed = torch.zeros(k, rows.shape[1]).index_add_(0, codes, rows)
        self.mass = torch.lerp(self.mass, count, self.rate)
        self.moment = torch.lerp(self.moment, summed.T, self.rate)
        n = self.mass.sum()
        self.centres = self.moment / ((self.mass + 1e-5) * n / (n + k * 1e-5))


class Snap(torch.autograd.Function):
    """Forward: rows replaced by their codes. Backward: straight through, plus the commitment pull."""

    @staticmethod
    def forward(ctx, rows, code_rows, beta):
        diff = rows - code_rows
        ctx.save_for_backward(diff)
        ctx.beta = beta
        return code_rows.clone(), beta * diff.square().mean()

    @staticmethod
    def backward(ctx, g_rows, g_commit):
        (diff,) = ctx.saved_tensors
        return g_rows + g_commit * (2 * ctx.beta / diff.numel()) * diff, None, None


class Coder(nn.Module):
    def __init__(self, h=12, r=6, dim=6):
        super().__init__()
        self.patch = nn.Conv2d(3, h, 4, 2, 1)
        self.body = nn.Conv2d(h, h, 3, 1, 1)
        self.e_res, self.e_back = nn.Conv2d(h, r, 3, 1, 1, bias=False), nn.Linear(r, h, bias=False)
        self.to_code, self.from_code = nn.Linear(h, dim), nn.Conv2d(dim, h, 3, 1, 1)
        self.d_res, self.d_back = nn.Conv2d(h, r, 3, 1, 1, bias=False), nn.Linear(r, h, bias=False)
        self.render = nn.ConvTranspose2d(h, 3, 4, 2, 1)

    @staticmethod
    def res(x, conv, back):
        y = back(F.relu(conv(F.relu(x))).permute(0, 2, 3, 1))
        return x.permute(0, 2, 3, 1) + y

    def encode(self, x):
        return self.to_code(self.res(self.body(self.patch(x).relu()), self.e_res, self.e_back).relu())   # NHWC

    def decode(self, q):
        y = self.from_code(q.permute(0, 3, 1, 2))
        return self.render(self.res(y, self.d_res, self.d_back).relu().permute(0, 3, 1, 2))


NAMES = {"patch": "encoder.0", "body": "encoder.2", "e_res": "encoder.3.block.1", "e_back": "encoder.3.block.3",
         "to_code": "encoder.5", "from_code": "decoder.0", "d_res": "decoder.1.block.1", "d_back": "decoder.1.block.3",
         "render": "decoder.3"}
old = torch.load(sys.argv[1])
net = Coder()
with torch.no_grad():
    for name, p in net.named_parameters():
        mod, kind = name.split(".")
        p.copy_(old[f"{NAMES[mod]}.{kind}"].reshape(p.shape))
book = Codebook(old["vq.embedding"].T.contiguous(), old["vq.cluster_size"].clone(), old["vq.ema_w"].T.contiguous())

images = torch.rand(36, 3, 8, 8, generator=torch.Generator().manual_seed(8)) - 0.5
weight = 1 / torch.var(images.double()).float()
adam = torch.optim.Adam([{"params": [p for n, p in net.named_parameters() if p.ndim > 1]},
                         {"params": [p for n, p in net.named_parameters() if p.ndim == 1]}], lr=2e-3, foreach=True)

losses, perplexity = [], []
for x in images.split(6):
    z = net.encode(x)
    rows = z.reshape(-1, z.shape[-1])
    with torch.no_grad():
        codes = book.nearest(rows)
    q, commit = Snap.apply(rows, book.centres.T[codes], 0.25)
    rec = net.decode(q.view_as(z))
    objective = commit + weight * (rec - x).pow(2).mean()
    adam.zero_grad()
    objective.backward()
    adam.step()
    book.absorb(rows.detach(), codes)
    p = torch.bincount(codes, minlength=10) / codes.numel()
    perplexity.append(torch.exp(-torch.special.xlogy(p, p).sum()).item())
    losses.append(float(objective.detach()))
print(losses)

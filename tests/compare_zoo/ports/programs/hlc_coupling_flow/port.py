# SPDX-License-Identifier: Apache-2.0
"""Split coupling flow: only the live halves of the networks, own log-determinant Function."""
from math import log, pi, sqrt
import sys
import torch


class LogAbsDet(torch.autograd.Function):
    @staticmethod
    def forward(ctx, m):
        lu, piv = torch.linalg.lu_factor(m)
        ctx.save_for_backward(lu, piv)
        return lu.diagonal().abs().log().sum()

    @staticmethod
    def backward(ctx, up):
        lu, piv = ctx.saved_tensors
        inv = torch.linalg.lu_solve(lu, piv, torch.eye(lu.shape[0]))  # <- inverse_transpose
        return up * inv.mT  # <- inverse_transpose


ck = torch.load(sys.argv[1], weights_only=True)
layers = []
for i in range(3):
    c = {k.split(".", 2)[2]: v for k, v in ck.items() if k.startswith(f"steps.{i}.")}
    on, off = (c["mask"] == 1).nonzero()[:, 0], (c["mask"] == 0).nonzero()[:, 0]
    layers.append(dict(
        on=on, off=off, order=torch.cat([on, off]).argsort(),  # <- order
        w=dict(
            sigma=-c["log_s"], shift=c["shift"].clone(), mix=c["W"].t().clone(),
            # both nets side by side: the first layer is joint, the second two blocks
            inp=torch.cat([c["s.0.weight"], c["t.0.weight"]])[:, on].t().clone(),
            inb=torch.cat([c["s.0.bias"], c["t.0.bias"]]),
            outp=torch.stack([c["s.2.weight"][off], c["t.2.weight"][off]]),
            outb=torch.stack([c["s.2.bias"][off], c["t.2.bias"][off]]))))
leaves = [v.requires_grad_() for l in layers for v in l["w"].values()]


def nll(x):
    free, each = torch.zeros(()), torch.zeros(len(x))
    for l in layers:
        w = l["w"]
        x = ((x + w["shift"]) / w["sigma"].exp()) @ w["mix"]  # <- actnorm_order
        free = free + LogAbsDet.apply(w["mix"]) - w["sigma"].sum()  # <- inverse_transpose
        a, b = x[:, l["on"]], x[:, l["off"]]
        hid = torch.tanh(a @ w["inp"] + w["inb"]).unflatten(1, (2, -1))
        s, t = (torch.einsum("bnh,noh->nbo", hid, w["outp"]) + w["outb"][:, None]).unbind()
        s = s.tanh()
        x = torch.cat([a, torch.addcmul(t, b, s.exp())], 1)[:, l["order"]]  # <- order
        each = each - s.sum(1)
    return (x.square().sum(1) / 2 + each).mean() - free + 3 * log(2 * pi)


gen = torch.Generator().manual_seed(8)
mixing = torch.randn(6, 6, generator=gen)
first = [torch.zeros_like(p) for p in leaves]
second = [torch.zeros_like(p) for p in leaves]
losses = []
for k in range(5):
    batch = (torch.randn(32, 6, generator=gen) @ mixing).tanh()
    value = nll(batch) / 6 / log(2)
    grads = torch.autograd.grad(value, leaves)
    norm = sqrt(sum(float(g.double().square().sum()) for g in grads))
    factor = min(1.0, 0.5 / (norm + 1e-6))  # <- clip_square
    fix = sqrt(1 - 0.999 ** (k + 1))
    rate = 5e-3 * 0.9 ** k * fix / (1 - 0.9 ** (k + 1))  # <- decay_ahead
    with torch.no_grad():
        torch._foreach_mul_(first, 0.9)
        torch._foreach_add_(first, grads, alpha=0.1 * factor)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, grads, grads, value=0.001 * factor ** 2)  # <- clip_square
        for p, m, v in zip(leaves, first, second):
            p.addcdiv_(m, v.sqrt().add_(1e-4 * fix), value=-rate)  # <- clip_square decay_ahead
    losses.append(value.item())
print(losses)

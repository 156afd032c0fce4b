# SPDX-License-Identifier: Apache-2.0
"""Layers stacked along a leading axis; Newton-Schulz runs batched over stacks; AdamW on one flat vector."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
DEPTH, DIM, HEADS = 2, 16, 2


class Bank:
    """Hidden matrices in three stacks (attention, feed-forward in, feed-forward out), the rest in one vector."""

    def __init__(self, path):
        sd = torch.load(path)
        w = lambda i, n: sd[f"layers.{i}.{n}.weight"]
        self.att = torch.stack([torch.stack([w(i, n) for n in "qkvo"]) for i in range(DEPTH)])     # L,4,D,D
        self.wide = torch.stack([torch.stack([w(i, "up").t(), w(i, "gate").t()]) for i in range(DEPTH)])  # L,2,D,2D
        self.down = torch.stack([w(i, "down") for i in range(DEPTH)]).unsqueeze(1)                  # L,1,D,2D
        self.stacks = [self.att, self.wide, self.down]
        pieces = {"emb": sd["embed.weight"], "pos": sd["pos"], "cls": sd["head.weight"], "cls_b": sd["head.bias"],
                  "scale": torch.stack([w(i, n) for i in range(DEPTH) for n in ("n1", "n2")] + [sd["norm.weight"]])}
        self.flat = torch.cat([p.reshape(-1) for p in pieces.values()])
        self.shapes = {k: p.shape for k, p in pieces.items()}
        for t in (*self.stacks, self.flat):
            t.requires_grad_()

    def small(self):
        cut = self.flat.split([s.numel() for s in self.shapes.values()])
        return {k: c.view(s) for (k, s), c in zip(self.shapes.items(), cut)}


def rms(x, scale):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * scale


def logits(bank, tokens):
    s = bank.small()
    x = F.embedding(tokens, s["emb"]) + s["pos"]
    for i in range(DEPTH):
        wq, wk, wv, wo = bank.att[i]
        y = rms(x, s["scale"][2 * i])
        q, k, v = torch.einsum("btd,ned->nbte", y, torch.stack([wq, wk, wv])).unflatten(-1, (HEADS, -1))
        prob = torch.einsum("bihc,bjhc->bhij", q, k).mul((DIM // HEADS) ** -0.5).softmax(-1)
        x = x + torch.einsum("bhij,bjhc->bihc", prob, v).flatten(2) @ wo.t()
        y = rms(x, s["scale"][2 * i + 1])
        up, gate = torch.matmul(y.unsqueeze(0), bank.wide[i].unsqueeze(1))
        x = x + (gate * gate.sigmoid() * up) @ bank.down[i, 0].t()
    return rms(x, s["scale"][-1]).mean(1) @ s["cls"].t() + s["cls_b"]


def orthogonalise(g, rounds=5):
    """Quintic Newton-Schulz over every matrix of a stack; all stacks are square or wide as we keep them."""
    x = g / (torch.linalg.matrix_norm(g, keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return x


bank = Bank(sys.argv[1])
slow = [torch.zeros_like(s) for s in bank.stacks]
# the two input matrices are kept (in, out), that is wide, but as written out, in, they are tall: factor sqrt(2)
factors = [1.0, 2.0 ** 0.5, 1.0]
first, second = torch.zeros_like(bank.flat), torch.zeros_like(bank.flat)

gen = torch.Generator().manual_seed(22)
batches = [(torch.randint(0, 40, (16, 12), generator=gen), torch.randint(0, 4, (16,), generator=gen))
           for _ in range(5)]
losses, hits = [], 0
for t, (tokens, labels) in enumerate(batches, 1):
    out = logits(bank, tokens)
    loss = F.nll_loss(out.log_softmax(1), labels)
    *gs, gflat = torch.autograd.grad(loss, [*bank.stacks, bank.flat])
    with torch.no_grad():
        first = 0.9 * first + 0.1 * gflat
        second = 0.95 * second + 0.05 * gflat ** 2
        direction = (first / (1 - 0.9 ** t)) / ((second / (1 - 0.95 ** t)).sqrt() + 1e-6)
        bank.flat.copy_(bank.flat * (1 - 3e-3 * 0.01) - 3e-3 * direction)
        for j, (w, g) in enumerate(zip(bank.stacks, gs)):
            slow[j] = 0.9 * slow[j] + 0.1 * g
            step = orthogonalise(0.1 * g + 0.9 * slow[j]) * factors[j]
            w -= 0.02 * 0.01 * w + 0.02 * step
        hits += (out.argmax(1) == labels).sum().item()
    losses.append(loss.item())
print(losses)

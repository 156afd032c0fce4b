# SPDX-License-Identifier: Apache-2.0
"""The GRU tagger in a bare loop: whole batches instead of accumulation, one parameter group per tensor."""
import sys
from itertools import islice

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self, vocab=30, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.norm = nn.LayerNorm(16)
        self.gru = nn.GRU(16, 12, num_layers=1, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(24, 20)
        self.out = nn.Linear(20, tags)

    def forward(self, tokens, labels=None):
        x, _ = self.gru(self.norm(self.embed(tokens)))
        logits = self.out(torch.tanh(self.hidden(x)))
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Schedule:
    """Linear warm-up and decay to zero; sets the rate before each step."""

    def __init__(self, optimizer, peak, warmup, total):
        self.optimizer, self.peak, self.warmup, self.total, self.done = optimizer, peak, warmup, total, 0
        self.seen = []

    def set(self):
        k = self.done
        factor = k / self.warmup if k < self.warmup else max(0.0, (self.total - k) / (self.total - self.warmup))
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * factor
        self.seen.append(self.peak * factor)
        self.done += 1


def examples(seed=15, size=24):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 30, (size, 9), generator=g)
    previous = torch.cat([tokens[:, -1:], tokens[:, :-1]], 1)
    return tokens, (tokens + previous).remainder(5)


def endless(tokens, labels, size):
    while True:
        for a in range(0, len(tokens), size):
            yield tokens[a:a + size], labels[a:a + size]


def decays(model):
    """Matrices of everything but the layer norm; biases of every kind are spared."""
    for module_name, module in model.named_modules():
        for name, p in module.named_parameters(recurse=False):
            yield p, 0.0 if isinstance(module, nn.LayerNorm) or "bias" in name else 0.1


@torch.inference_mode()
def evaluate(model, tokens, labels):
    model.eval()
    hit = (model(tokens).argmax(-1) == labels).float().mean().item()
    model.train()
    return hit


def clip(parameters, limit):
    norms = [p.grad.norm() for p in parameters]
    total = torch.linalg.vector_norm(torch.stack(norms))
    for p in parameters:
        p.grad = p.grad * (limit / (total + 1e-6)).clamp(max=1.0)
    return total.item()


def main(path):
    model = Tagger()
    model.load_state_dict(torch.load(path))
    groups = [{"params": [p], "weight_decay": wd} for p, wd in reversed(list(decays(model)))]
    optimizer = torch.optim.AdamW(groups, foreach=False)
    total_steps = 6
    schedule = Schedule(optimizer, 1e-2, 2, total_steps)
    tokens, labels = examples()
    losses, report = [], []
    for step, (x, y) in enumerate(islice(endless(tokens, labels, 8), total_steps)):
        before = evaluate(model, tokens, labels)
        schedule.set()
        model.zero_grad(set_to_none=False)
        loss = model(x, y)
        loss.backward()
        norm = clip(list(model.parameters()), 0.5)
        optimizer.step()
        report.append(dict(step=step, accuracy=before, norm=norm, rate=schedule.seen[-1]))
        losses.append(loss.item())
    return losses


losses = main(sys.argv[1])
print(losses)

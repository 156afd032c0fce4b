# SPDX-License-Identifier: Apache-2.0
"""Two tasks by a task table: parameters in dictionaries, a planned run, an optimizer with a clock per parameter."""
import sys
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

torch.set_num_threads(1)

PLAN = (("class",), ("value",), ("class", "value"), ("class",), ("class", "value"), ("value",), ("class", "value"))


@dataclass
class Slot:
    """A parameter, its moments and the number of updates it has had."""
    value: torch.Tensor
    age: int = 0
    m: torch.Tensor = field(default=None)
    v: torch.Tensor = field(default=None)

    def update(self, grad, lr, decay=1e-2, b1=0.9, b2=0.999):
        with torch.no_grad():
            grad = grad.clamp(-0.25, 0.25) + decay * self.value
            self.m = (1 - b1) * grad if self.age == 0 else b1 * self.m + (1 - b1) * grad
            self.v = (1 - b2) * grad * grad if self.age == 0 else b2 * self.v + (1 - b2) * grad * grad
            self.age += 1
            top = self.m / (1 - b1 ** self.age)
            self.value -= lr * top / ((self.v / (1 - b2 ** self.age)).sqrt() + 1e-8)


def read(path):
    """Biases in front of a batch normalisation, running statistics and the unused head are left behind."""
    sd = torch.load(path)
    tree = {"stem.w": sd["trunk.stem.weight"].T, "stem.b": sd["trunk.stem.bias"]}
    for i in range(2):
        old, new = f"trunk.blocks.{i}.", f"res{i}."
        tree |= {new + "in": sd[old + "0.weight"].T, new + "gamma": sd[old + "1.weight"],
                 new + "beta": sd[old + "1.bias"], new + "out": sd[old + "3.weight"].T, new + "b": sd[old + "3.bias"]}
    for task in ("class", "value"):
        tree |= {f"{task}.w1": sd[f"{task}_head.0.weight"].T, f"{task}.b1": sd[f"{task}_head.0.bias"],
                 f"{task}.w2": sd[f"{task}_head.2.weight"].T, f"{task}.b2": sd[f"{task}_head.2.bias"],
                 f"{task}.s": sd[f"log_var_{task}"].reshape(1)}
    return {k: Slot(v.clone().contiguous().requires_grad_()) for k, v in tree.items()}


def head_and_trunk(slots, task, x):
    p = {k: s.value for k, s in slots.items()}
    x = x @ p["stem.w"] + p["stem.b"]
    for i in range(2):
        h = x @ p[f"res{i}.in"]
        h = h - h.mean(0)
        h = h * (h.square().mean(0) + 1e-5).rsqrt() * p[f"res{i}.gamma"] + p[f"res{i}.beta"]
        x = x + (h * h.sigmoid()) @ p[f"res{i}.out"] + p[f"res{i}.b"]
    x = (x * x.sigmoid()) @ p[f"{task}.w1"] + p[f"{task}.b1"]
    x = torch.where(x > 0, x, torch.expm1(x.clamp(max=0)))
    return x @ p[f"{task}.w2"] + p[f"{task}.b2"], p[f"{task}.s"]


def class_error(out, y):
    return (out.logsumexp(1) - (out * F.one_hot(y, 4)).sum(1)).mean()


def value_error(out, y):
    gap = (out[:, 0] - y).abs()
    return 0.5 * torch.where(gap < 0.5, gap.square(), gap - 0.25).mean()


slots = read(sys.argv[1])
rng = torch.Generator().manual_seed(19)
x = torch.randn(80, 8, generator=rng)
eps = torch.randn(80, generator=rng)
ranked = x.square().sum(1).sort().indices
targets = {"value": x[:, 0] * x[:, 1] + 0.3 * eps,
           "class": sum((x[:, 2] + 0.2 * eps > edge).long() for edge in (-0.7, 0.0, 0.7))}
errors = {"class": class_error, "value": value_error}
# the whole run is planned before it starts
plan = [[(task, ranked[torch.randint(0, 20 + 10 * i, (10,), generator=rng)]) for task in tasks]
        for i, tasks in enumerate(PLAN)]

losses, rate = [], 6e-3
for jobs in plan:
    gathered, total = {}, 0.0
    for task, rows in reversed(jobs):                       # the value task first where there are both
        names = [k for k in slots if k.split(".")[0] in ("stem", "res0", "res1", task)]
        out, s = head_and_trunk(slots, task, x[rows])
        loss = (torch.exp(-s) * errors[task](out, targets[task][rows]) + s / 2).sum()
        for name, grad in zip(names, torch.autograd.grad(loss, [slots[n].value for n in names])):
            gathered[name] = gathered[name] + grad if name in gathered else grad
        total += loss.item()
    for name in sorted(gathered):
        slots[name].update(gathered[name], rate)
    rate *= 0.9
    losses.append(total)

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Limited-memory quasi-Newton written out: one run of iterations on one vector, gradient by the chain rule in chunks."""
import sys
from collections import deque

import torch

torch.set_num_threads(1)

N_IN, N_HID, N_OUT, DECAY, STAGES, PER_STAGE, MEMORY, RATE = 7, 9, 4, 0.05, 5, 4, 5, 0.4


class Layout:
    """Where each matrix lies in the vector; biases are the last rows of their matrices."""

    def __init__(self):
        self.shapes = {"hidden": (N_IN + 1, N_HID), "out": (N_HID + N_IN + 1, N_OUT)}

    def pack(self, parts):
        return torch.cat([parts[name].reshape(-1) for name in self.shapes])

    def unpack(self, vector):
        sizes = [a * b for a, b in self.shapes.values()]
        return {n: v.view(s) for (n, s), v in zip(self.shapes.items(), vector.split(sizes))}

    def read(self, path):
        sd = torch.load(path)
        return self.pack({
            "hidden": torch.cat([sd["first.weight"].T, sd["first.bias"][None]]),
            "out": torch.cat([sd["second.weight"].T, sd["skip.weight"].T, sd["second.bias"][None]])})


layout = Layout()


class Problem:
    def __init__(self, seed, chunk=25):
        rng = torch.Generator().manual_seed(seed)
        x = torch.randn(60, N_IN, generator=rng)
        mix = torch.randn(N_IN, N_OUT, generator=rng)
        y = torch.addmm(torch.randn(60, N_OUT, generator=rng), x, mix).max(1).indices
        w = torch.rand(60, generator=rng) + 0.5
        self.chunks = list(zip(*(t.split(chunk) for t in (x, y, w / w.sum()))))
        self.calls = 0

    def __call__(self, vector):
        """Loss and gradient; the backward pass is by hand."""
        self.calls += 1
        p = layout.unpack(vector)
        value = 0.5 * DECAY * vector.dot(vector)
        grads = {n: DECAY * m for n, m in p.items()}
        for x, y, w in self.chunks:
            one = torch.ones(len(x), 1)
            rows = torch.cat([x, one], 1)
            pre = rows @ p["hidden"]
            features = torch.cat([torch.logaddexp(pre, torch.zeros(())), rows], 1)
            logp = (features @ p["out"]).log_softmax(1)
            value = value - (w * logp[torch.arange(len(x)), y]).sum()
            delta = logp.exp()
            delta[torch.arange(len(x)), y] -= 1.0
            delta *= w[:, None]
            grads["out"] = grads["out"] + features.T @ delta
            back = (delta @ p["out"][:N_HID].T) * pre.sigmoid()
            grads["hidden"] = grads["hidden"] + rows.T @ back
        return value.item(), layout.pack(grads)


def direction(grad, pairs):
    """Two-loop recursion."""
    q, coefficients = grad.neg(), []
    for s, y in reversed(pairs):
        a = s.dot(q) / y.dot(s)
        coefficients.append(a)
        q = q - a * y
    s, y = pairs[-1]
    q = q * (y.dot(s) / y.dot(y))
    for (s, y), a in zip(pairs, reversed(coefficients)):
        q = q + s * (a - y.dot(q) / y.dot(s))
    return q


problem = Problem(15)
point = layout.read(sys.argv[1])
pairs = deque(maxlen=MEMORY)
losses, trace = [], []
value, grad = problem(point)
for n in range(STAGES * PER_STAGE):
    if n % PER_STAGE == 0:
        losses.append(value)
    trace.append((value, grad.abs().max().item()))
    if pairs:
        move = RATE * direction(grad, pairs)
    else:
        move = -min(1.0, 1.0 / grad.abs().sum().item()) * RATE * grad
    new = point + move
    new_value, new_grad = problem(new)
    change = new_grad - grad
    if change.dot(move) > 1e-10:
        pairs.append((move, change))
    point, value, grad = new, new_value, new_grad

print(losses)

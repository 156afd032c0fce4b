# SPDX-License-Identifier: Apache-2.0
"""Recurrent language model with its own BasicLSTM cell in TensorFlow 1 layout, batch-major data."""
import sys

import torch

torch.set_num_threads(1)

VOCAB, WINDOW, ROWS, VAL_ROWS = 30, 8, 6, 4
FORGET_BIAS = 1.0


class BasicLSTMCell:
    """Gates in the order i, j, f, o over the joined [input, hidden]; the forget bias is added in the call."""

    def __init__(self, kernel, bias_x, bias_h):
        self.kernel, self.bias_x, self.bias_h = kernel, bias_x, bias_h
        self.units = kernel.shape[1] // 4

    @classmethod
    def from_torch(cls, w_ih, w_hh, b_ih, b_hh):
        def ijfo(t):
            i, f, g, o = t.chunk(4, dim=0)
            return torch.cat([i, g, f, o], dim=0)
        kernel = torch.cat([ijfo(w_ih), ijfo(w_hh)], dim=1).t().contiguous()
        bias_x, bias_h = ijfo(b_ih), ijfo(b_hh)
        n = bias_x.numel() // 4
        bias_x[2 * n:3 * n] -= FORGET_BIAS  # <- forget_bias_twice
        return cls(*(t.requires_grad_() for t in (kernel, bias_x, bias_h)))

    def zero_state(self, rows):
        return torch.zeros(rows, self.units), torch.zeros(rows, self.units)

    def __call__(self, x, state):
        c, h = state
        z = torch.addmm(self.bias_x + self.bias_h, torch.cat([x, h], dim=1), self.kernel)
        i, j, f, o = z.split(self.units, dim=1)
        keep = torch.sigmoid(f + FORGET_BIAS)  # <- forget_bias_twice
        c = c * keep + torch.sigmoid(i) * torch.tanh(j)
        h = torch.tanh(c) * torch.sigmoid(o)
        return h, (c, h)

    def variables(self):
        return [self.kernel, self.bias_x, self.bias_h]


class LanguageModel:
    def __init__(self, path):
        sd = torch.load(path)
        self.table = sd["encoder.weight"].clone().requires_grad_()
        self.softmax_w = sd["decoder.weight"].t().clone().requires_grad_()
        self.softmax_b = sd["decoder.bias"].clone().requires_grad_()
        self.cells = [
            BasicLSTMCell.from_torch(*(sd[f"rnn.{part}_l{n}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")))
            for n in range(2)
        ]

    def variables(self):
        return [self.table, self.softmax_w, self.softmax_b] + [v for c in self.cells for v in c.variables()]

    def zero_state(self, rows):
        return [cell.zero_state(rows) for cell in self.cells]

    def unroll(self, tokens, states):
        """tokens (rows, time) -> logits (rows, time, vocab) and the states after the last token."""
        states, tops = list(states), []
        for column in tokens.unbind(1):
            x = self.table[column]
            for n, cell in enumerate(self.cells):
                x, after = cell(x, states[n])  # <- forget_bias_twice
                states[n] = after  # <- detached_steps
            tops.append(x)
        return torch.stack(tops, 1) @ self.softmax_w + self.softmax_b, states

    def cost(self, tokens, targets, states):
        logits, states = self.unroll(tokens, states)  # <- detached_steps
        picked = torch.gather(logits, 2, targets.unsqueeze(2)).squeeze(2)
        return (torch.logsumexp(logits, 2) - picked).mean(), states


def reader(rows, stride=WINDOW):
    """Windows of a (rows, length) matrix with their successors."""
    last = rows.shape[1] - 1
    for at in range(0, last, stride):
        end = min(at + stride, last)
        yield rows[:, at:end], rows[:, at + 1:end + 1]


def corpus():
    rng = torch.Generator().manual_seed(3)

    def walk(n, rows):
        words = torch.remainder(torch.cumsum(torch.randint(-2, 4, (n,), generator=rng), 0), VOCAB)
        return words[:n - n % rows].reshape(rows, n // rows)
    return walk(ROWS * (5 * WINDOW + 1), ROWS), walk(100, VAL_ROWS)


@torch.no_grad()
def perplexity_cost(model, rows):
    state, nats, count = model.zero_state(len(rows)), 0.0, 0
    for tokens, targets in reader(rows):
        cost, state = model.cost(tokens, targets, state)
        nats, count = nats + cost.item() * targets.shape[1], count + targets.shape[1]
    return nats / count


def clip_by_global_norm(grads, limit):
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))  # <- clip_by_value
    return [g * torch.clamp(limit / (norm + 1e-6), max=1.0) for g in grads]  # <- clip_by_value


class Plateau:
    """Quarter the rate as often as the validation cost fails to beat the best one."""

    def __init__(self, rate):
        self.rate, self.best = rate, float("inf")

    def feed(self, cost):
        if cost < self.best * (1 - 1e-4):  # <- plateau_vs_last
            self.best = cost
        else:
            self.rate *= 0.25  # <- plateau_vs_last


def train(path):
    model, (train_rows, val_rows) = LanguageModel(path), corpus()
    plateau, state, history = Plateau(20.0), model.zero_state(ROWS), []
    for tokens, targets in reader(train_rows):
        plateau.feed(perplexity_cost(model, val_rows))  # <- plateau_vs_last
        cost, state = model.cost(tokens, targets, state)  # <- state_reset detached_steps
        grads = torch.autograd.grad(cost, model.variables())  # <- detached_steps
        state = [(c.detach(), h.detach()) for c, h in state]  # <- state_reset
        with torch.no_grad():
            for v, g in zip(model.variables(), clip_by_global_norm(grads, 0.25)):  # <- clip_by_value
                v -= plateau.rate * g  # <- plateau_vs_last clip_by_value
        history.append(cost.item())
    return history


losses = train(sys.argv[1])
print(losses)

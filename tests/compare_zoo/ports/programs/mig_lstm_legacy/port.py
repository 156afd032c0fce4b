# SPDX-License-Identifier: Apache-2.0
"""The language model in today's dress of another house: cells of one kernel with the gates in the
order of TensorFlow (i, j, f, o), batch first, a step's layers inside the loop over time.
"""

import sys

import torch

WORDS, N, DEPTH, ROWS, WINDOW = 30, 14, 2, 4, 6


class BasicLSTMCell(torch.nn.Module):
    """x and h side by side; state is c and h side by side."""

    def __init__(self):
        super().__init__()
        self.kernel = torch.nn.Parameter(torch.empty(2 * N, 4 * N))
        self.bias_x = torch.nn.Parameter(torch.empty(4 * N))
        self.bias_h = torch.nn.Parameter(torch.empty(4 * N))

    def forward(self, x, state):
        c, h = state[:, :N], state[:, N:]  # <- carried
        gates = torch.cat((x, h), 1).mm(self.kernel) + (self.bias_x + self.bias_h)
        i, j, f, o = (gates[:, n * N : (n + 1) * N] for n in range(4))  # <- candidate
        c = f.sigmoid() * c + i.sigmoid() * j.tanh()  # <- candidate carried
        h = o.sigmoid() * c.tanh()  # <- candidate
        return h, torch.cat((c, h), 1)


class Language(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.empty(WORDS, N))
        self.cells = torch.nn.ModuleList([BasicLSTMCell() for _ in range(DEPTH)])
        self.softmax_w = self.vectors  # <- tied
        self.softmax_b = torch.nn.Parameter(torch.empty(WORDS))

    def forward(self, batch, states):
        outputs = []
        for t in range(batch.shape[1]):
            x = self.vectors[batch[:, t]]
            after = []
            for cell, state in zip(self.cells, states):
                x, new = cell(x, state)  # <- candidate carried
                after.append(new)
            states = after
            outputs.append(x)
        scores = torch.stack(outputs, 1) @ self.softmax_w.T + self.softmax_b  # <- tied
        return scores, states


def reordered(tensor):
    """From i, f, g, o to i, g, f, o along the first axis."""
    i, f, g, o = tensor.chunk(4)
    return torch.cat((i, g, f, o))  # <- candidate


@torch.no_grad()
def restore(net, path):
    variables = torch.load(path)
    net.vectors.copy_(variables["encoder.weight"])
    net.softmax_b.copy_(variables["decoder.bias"])
    for n, cell in enumerate(net.cells):
        w_x, w_h, b_x, b_h = (
            reordered(variables[f"rnn.{k}_l{n}"])
            for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )  # <- candidate
        cell.kernel.copy_(torch.cat((w_x, w_h), 1).T)
        cell.bias_x.copy_(b_x)
        cell.bias_h.copy_(b_h)


def producer(raw):
    """Windows of the text, each row of a batch goes on where it stopped in the one before."""
    length = len(raw) // ROWS
    data = raw[: length * ROWS].reshape(ROWS, length)  # <- columns
    for n in range(5):
        here = n * WINDOW
        yield data[:, here : here + WINDOW], data[:, here + 1 : here + WINDOW + 1]  # <- columns


net = Language()
restore(net, sys.argv[1])
text = torch.randint(0, WORDS, (130,), generator=torch.Generator().manual_seed(162))
learned = list(net.parameters())
states = [torch.zeros(ROWS, 2 * N) for _ in range(DEPTH)]
losses = []
for epoch, (inputs, wanted) in enumerate(producer(text)):
    states = [state.detach() for state in states]  # <- carried
    scores, states = net(inputs, states)  # <- carried
    right = scores.gather(2, wanted.unsqueeze(2)).squeeze(2)
    loss = (scores.logsumexp(2) - right).sum() / wanted.numel()
    slopes = torch.autograd.grad(loss, learned)  # <- clipped tied
    length = torch.cat([s.flatten() for s in slopes]).norm()  # <- clipped tied
    shorter = 0.25 / max(length.item() + 1e-6, 0.25)  # <- clipped
    for weight, slope in zip(learned, slopes):
        weight.data.sub_(slope, alpha=2.0 * 0.8**epoch * shorter)  # <- clipped tied
    losses.append(loss.item())

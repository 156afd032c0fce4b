# SPDX-License-Identifier: Apache-2.0
"""The GRU classifier with its own cell, time first, masks in place of packing, and its own RMSprop."""
import sys

import torch
import torch.nn as nn

torch.set_num_threads(1)

VOCAB, WIDTH, UNITS, LABELS = 40, 12, 14, 3


class GRUCell(nn.Module):
    """One matrix a gate: z is the update gate, r the reset gate, c the candidate; inputs come from the left."""

    def __init__(self, width, units):
        super().__init__()
        make = lambda *shape: nn.Parameter(torch.zeros(*shape))
        self.wz, self.wr, self.wc = make(width, units), make(width, units), make(width, units)
        self.uz, self.ur, self.uc = make(units, units), make(units, units), make(units, units)
        self.bz, self.br, self.bc = make(units), make(units), make(units)
        self.dz, self.dr, self.dc = make(units), make(units), make(units)

    def forward(self, x, h):
        z = torch.sigmoid(x @ self.wz + h @ self.uz + self.bz + self.dz)
        r = torch.sigmoid(x @ self.wr + h @ self.ur + self.br + self.dr)
        inner = r * (h @ self.uc + self.dc)  # <- reset_before
        c = torch.tanh(x @ self.wc + self.bc + inner)  # <- reset_before
        return h + (1 - z) * (c - h)

    def take(self, sd, suffix):
        """torch stacks the rows as reset, update, new and has two biases a gate; both stay, for both are trained."""
        w, u = sd["gru.weight_ih_l0" + suffix], sd["gru.weight_hh_l0" + suffix]
        b, d = sd["gru.bias_ih_l0" + suffix], sd["gru.bias_hh_l0" + suffix]
        (wr, wz, wc), (ur, uz, uc), (br, bz, bc), (dr, dz, dc) = (t.chunk(3) for t in (w, u, b, d))
        values = dict(wz=wz.T, wr=wr.T, wc=wc.T, uz=uz.T, ur=ur.T, uc=uc.T, bz=bz, br=br, bc=bc, dz=dz, dr=dr, dc=dc)
        with torch.no_grad():
            for name, value in values.items():
                getattr(self, name).copy_(value)


def reverse_sequence(x, lengths):
    """Turns each column round within its own length; what is behind it stays."""
    steps = torch.arange(x.shape[0])[:, None]
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)  # <- reversed_with_padding
    return x.gather(0, index[..., None].expand_as(x))  # <- reversed_with_padding


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lookup = nn.Parameter(torch.zeros(VOCAB, WIDTH))
        self.ahead, self.back = GRUCell(WIDTH, UNITS), GRUCell(WIDTH, UNITS)
        self.out_ahead, self.out_back = nn.Parameter(torch.zeros(UNITS, LABELS)), nn.Parameter(torch.zeros(UNITS, LABELS))
        self.out_bias = nn.Parameter(torch.zeros(LABELS))

    def load_original(self, path):
        sd = torch.load(path)
        self.ahead.take(sd, "")
        self.back.take(sd, "_reverse")
        with torch.no_grad():
            self.lookup.copy_(sd["embedding.weight"])
            self.out_ahead.copy_(sd["fc.weight"][:, :UNITS].T)
            self.out_back.copy_(sd["fc.weight"][:, UNITS:].T)
            self.out_bias.copy_(sd["fc.bias"])
        return self

    @staticmethod
    def run(cell, xs, lengths):
        h = xs.new_zeros(xs.shape[1], UNITS)
        for t, x in enumerate(xs):
            alive = (t < lengths)[:, None]
            h = torch.where(alive, cell(x, h), h)  # <- state_detached
        return h

    def forward(self, tokens, lengths):
        xs = self.lookup[tokens]
        first = self.run(self.ahead, xs, lengths)
        last = self.run(self.back, reverse_sequence(xs, lengths), lengths)  # <- reversed_with_padding
        return first @ self.out_ahead + last @ self.out_back + self.out_bias


class RMSProp:
    def __init__(self, params, lr, rho=0.99, eps=1e-6):  # <- rms_alpha
        self.params, self.lr, self.rho, self.eps = list(params), lr, rho, eps
        self.mean_square = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def apply(self, grads):
        for p, g, s in zip(self.params, grads, self.mean_square):
            s += (1 - self.rho) * (g * g - s)  # <- rms_alpha
            p -= self.lr * g / (s.sqrt() + self.eps)


def read_all(count=40):
    g = torch.Generator().manual_seed(404)
    lengths = torch.randint(3, 13, (count,), generator=g)
    flat = torch.randint(1, VOCAB, (int(lengths.sum()),), generator=g)
    table = torch.zeros(count, int(lengths.max()), dtype=torch.long)
    table[torch.arange(table.shape[1]) < lengths[:, None]] = flat
    labels = torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), count, replacement=True, generator=g)
    return table.T.contiguous(), lengths, labels


tokens, lengths, labels = read_all()
counts = torch.stack([(labels == c).sum() for c in range(LABELS)])
balance = labels.numel() / (LABELS * counts)
net = Classifier().load_original(sys.argv[1])
optimiser = RMSProp(net.parameters(), 2e-3)
losses = []
for start in range(0, 40, 8):
    part = slice(start, start + 8)
    log_p = net(tokens[:, part], lengths[part]).log_softmax(1)
    weight = balance[labels[part]]
    picked = log_p[torch.arange(8), labels[part]]
    loss = -(weight * picked).sum() / weight.sum()  # <- weighted_mean
    grads = torch.autograd.grad(loss, optimiser.params)
    optimiser.apply([g.clamp(-0.2, 0.2) for g in grads])  # <- rms_alpha
    losses.append(loss.item())
print(losses)

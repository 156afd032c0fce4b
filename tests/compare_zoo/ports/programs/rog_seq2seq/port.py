# SPDX-License-Identifier: Apache-2.0
"""The GRU sequence-to-sequence model on Keras-shaped cells run step by step, with an own Adagrad."""
import sys

import torch
from torch import nn

torch.set_num_threads(1)
PAD, BOS, EOS = range(3)
UNITS = 24


class GRUCell(nn.Module):
    """Kernels of [in, 3 * units] in the order update, reset, candidate; two rows of bias."""

    def __init__(self, features):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(features, 3 * UNITS))
        self.recurrent = nn.Parameter(torch.empty(UNITS, 3 * UNITS))
        self.bias = nn.Parameter(torch.empty(2, 3 * UNITS))

    def forward(self, x, h):
        xz, xr, xn = (x @ self.kernel + self.bias[0]).chunk(3, -1)
        hz, hr, hn = (h @ self.recurrent + self.bias[1]).chunk(3, -1)  # <- gru_reset
        z, r = torch.sigmoid(xz + hz), torch.sigmoid(xr + hr)
        candidate = torch.tanh(xn + r * hn)  # <- gru_reset
        return z * h + (1 - z) * candidate


class Translator(nn.Module):
    def __init__(self, n_src=31, n_tgt=37, width=16):
        super().__init__()
        self.src_table = nn.Parameter(torch.empty(n_src, width))
        self.tgt_table = nn.Parameter(torch.empty(n_tgt, width))
        self.reader, self.writer = GRUCell(width), GRUCell(width)
        self.bridge = nn.Parameter(torch.empty(UNITS, UNITS))
        self.mix_context = nn.Parameter(torch.empty(UNITS, UNITS))
        self.mix_state = nn.Parameter(torch.empty(UNITS, UNITS))
        self.mix_bias = nn.Parameter(torch.empty(UNITS))
        self.vocab_kernel = nn.Parameter(torch.empty(UNITS, n_tgt))
        self.vocab_bias = nn.Parameter(torch.empty(n_tgt))

    def encode(self, src):
        live = src.ne(PAD)
        h = self.src_table.new_zeros(len(src), UNITS)
        seen = []
        for t in range(src.shape[1]):
            new = self.reader(self.src_table[src[:, t]], h)
            h = torch.where(live[:, t, None], new, h)  # <- enc_pad_state
            seen.append(h)
        return torch.stack(seen, 1), h, live  # <- enc_pad_state

    def attend(self, h, memory, live):
        score = torch.einsum("bh,hk,blk->bl", h, self.bridge, memory)
        weight = torch.exp(score - score.amax(-1, keepdim=True)) * live
        weight = weight / weight.sum(-1, keepdim=True)
        return (weight.unsqueeze(-1) * memory).sum(1)

    def forward(self, src, tgt):
        """The summed negative log-likelihood of the real target words, and their number."""
        memory, h, live = self.encode(src)
        total = 0.0
        for t in range(tgt.shape[1] - 1):
            h = self.writer(self.tgt_table[tgt[:, t]], h)
            context = self.attend(h, memory, live)
            top = torch.tanh(context @ self.mix_context + h @ self.mix_state + self.mix_bias)
            logp = torch.log_softmax(top @ self.vocab_kernel + self.vocab_bias, -1)
            gold = tgt[:, t + 1]
            total = total - (logp[torch.arange(len(gold)), gold] * (gold != PAD)).sum()
        return total, (tgt[:, 1:] != PAD).sum()  # <- pad_loss


def keras_cell(sd, prefix):
    def order(w):
        reset, update, new = w.chunk(3)
        return torch.cat([update, reset, new])

    return {
        "kernel": order(sd[prefix + "weight_ih_l0"]).T,
        "recurrent": order(sd[prefix + "weight_hh_l0"]).T,
        "bias": torch.stack([order(sd[prefix + "bias_ih_l0"]), order(sd[prefix + "bias_hh_l0"])]),
    }


def restore(model, path):
    sd = torch.load(path)
    mix_context, mix_state = sd["decoder.combine.weight"].T.chunk(2)
    new = dict(
        src_table=sd["encoder.embedding.weight"],
        tgt_table=sd["decoder.embedding.weight"],
        bridge=sd["decoder.attn.weight"].T,
        mix_context=mix_context,
        mix_state=mix_state,
        mix_bias=sd["decoder.combine.bias"],
        vocab_kernel=sd["decoder.out.weight"].T,
        vocab_bias=sd["decoder.out.bias"],
    )
    for side, prefix in (("reader", "encoder.gru."), ("writer", "decoder.gru.")):
        new.update({f"{side}.{k}": v for k, v in keras_cell(sd, prefix).items()})
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(new.pop(name))
    assert not new


class Corpus:
    def __init__(self, seed, size):
        g = torch.Generator().manual_seed(seed)
        self.src, self.tgt = [], []
        for _ in range(size):
            m, n = torch.randint(3, 10, (2,), generator=g)
            self.src.append(torch.randint(3, 31, (int(m),), generator=g).tolist())
            self.tgt.append([BOS] + torch.randint(3, 37, (int(n),), generator=g).tolist() + [EOS])

    @staticmethod
    def padded(rows):
        longest = max(map(len, rows))
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    def batch(self, i, size=5):
        part = slice(i * size, (i + 1) * size)
        return self.padded(self.src[part]), self.padded(self.tgt[part])


model = Translator()
restore(model, sys.argv[1])
params = list(model.parameters())
accumulators = [torch.full_like(p, 0.1) for p in params]  # <- adagrad_init
corpus = Corpus(12, 25)
losses = []
for i in range(5):
    nll, words = model(*corpus.batch(i))
    loss = nll / words  # <- pad_loss
    grads = torch.autograd.grad(loss, params)
    norms = torch.stack([g.norm() for g in grads])
    shrink = (0.2 / (norms.norm() + 1e-6)).clamp(max=1.0).expand(len(params))  # <- clip_per_param
    with torch.no_grad():
        for p, g, acc, s in zip(params, grads, accumulators, shrink):
            g = g * s  # <- clip_per_param
            acc += g.square()
            p -= 0.15 * g / (acc.sqrt() + 1e-10)  # <- adagrad_init
    losses.append(loss.item())
print(losses)

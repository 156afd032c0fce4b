# SPDX-License-Identifier: Apache-2.0
"""BERT masked-language modelling on torch.nn.TransformerEncoder, with a BertAdam of its own."""
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
D, HEADS, DEPTH, FFN, V = 32, 4, 2, 64, 70
EPS = 1e-12


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(V, D, padding_idx=0)
        self.place = nn.Parameter(torch.zeros(24, D))
        self.segment = nn.Embedding(2, D)
        self.norm_in = nn.LayerNorm(D, eps=EPS)
        kind = dict(dropout=0.0, layer_norm_eps=EPS, batch_first=True, norm_first=False)
        layer = nn.TransformerEncoderLayer(D, HEADS, FFN, activation="gelu", **kind)  # <- activation
        self.body = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D, eps=EPS))
        self.out_bias = nn.Parameter(torch.zeros(V))

    def forward(self, words, kinds, chosen):
        x = self.word(words) + self.place[: words.size(1)]
        x = x + self.segment(kinds)  # <- segments
        x = self.norm_in(x)
        x = self.body(x, src_key_padding_mask=words.eq(0))  # <- pad_mask activation
        # only the chosen places go through the vocabulary head
        return F.linear(self.head(x[chosen]), self.word.weight, self.out_bias)


def load_huggingface(net, path):
    hf = torch.load(path)
    mine = {
        "word.weight": hf["bert.embeddings.word_embeddings.weight"],
        "place": hf["bert.embeddings.position_embeddings.weight"],
        "segment.weight": hf["bert.embeddings.token_type_embeddings.weight"],
        "out_bias": hf["cls.predictions.bias"],
    }
    names = [
        ("norm_in", "bert.embeddings.LayerNorm"),
        ("head.0", "cls.predictions.transform.dense"),
        ("head.2", "cls.predictions.transform.LayerNorm"),
    ]
    for i in range(DEPTH):
        here, there = f"body.layers.{i}.", f"bert.encoder.layer.{i}."
        names += [
            (here + "self_attn.out_proj", there + "attention.output.dense"),
            (here + "norm1", there + "attention.output.LayerNorm"),
            (here + "linear1", there + "intermediate.dense"),
            (here + "linear2", there + "output.dense"),
            (here + "norm2", there + "output.LayerNorm"),
        ]
        for part in ("weight", "bias"):
            qkv = [hf[f"{there}attention.self.{n}.{part}"] for n in ("query", "key", "value")]
            mine[f"{here}self_attn.in_proj_{part}"] = torch.cat(qkv)
    for here, there in names:
        for part in ("weight", "bias"):
            mine[f"{here}.{part}"] = hf[f"{there}.{part}"]
    net.load_state_dict(mine)


class BertAdam:
    """Adam with decoupled decay and a linear ramp-down inside, after the first BERT releases."""

    def __init__(self, params, lr, total, b1=0.9, b2=0.999, eps=1e-6, decay=0.01):
        self.params = list(params)
        self.lr, self.total, self.b1, self.b2, self.eps, self.decay = lr, total, b1, b2, eps, decay
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.t = 0

    @torch.no_grad()
    def step(self):
        lr = self.lr * max(0.0, 1.0 - self.t / self.total)
        self.t += 1
        fix1, fix2 = 1 - self.b1**self.t, 1 - self.b2**self.t  # <- bias_correction
        for p, m, v in zip(self.params, self.m, self.v):
            m.lerp_(p.grad, 1 - self.b1)
            v.mul_(self.b2).addcmul_(p.grad, p.grad, value=1 - self.b2)
            update = (m / fix1) / ((v / fix2).sqrt() + self.eps)  # <- bias_correction
            p.sub_(lr * (update + self.decay * p))
            p.grad = None


def corpus(count):
    g = torch.Generator().manual_seed(8)
    for _ in range(count):
        na, nb = torch.randint(3, 9, (2,), generator=g).tolist()
        a = torch.randint(4, V, (na,), generator=g)
        b = torch.randint(4, V, (nb,), generator=g)
        words = torch.cat([torch.tensor([1]), a, torch.tensor([2]), b, torch.tensor([2])])
        hidden = (torch.rand(len(words), generator=g) < 0.2) & (words > 3)
        hidden[1] = True
        yield words, torch.arange(len(words)) > na + 1, hidden  # <- segments


def batched(rows, size=4):
    rows = list(rows)
    for at in range(0, len(rows), size):
        yield [nn.utils.rnn.pad_sequence(column, batch_first=True) for column in zip(*rows[at : at + size])]


net = Bert()
load_huggingface(net, sys.argv[1])
opt = BertAdam(net.parameters(), lr=2e-3, total=10)
losses = []
for words, kinds, hidden in batched(corpus(20)):
    scored = hidden  # <- scored_tokens
    scores = net(words.masked_fill(hidden, 3), kinds.long(), scored)
    loss = F.nll_loss(scores.log_softmax(-1), words[scored])  # <- scored_tokens
    loss.backward()
    opt.step()
    losses.append(loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""ALBERT as one nn.TransformerEncoderLayer applied three times, trained by a hand-made momentum class."""
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class SentencePairNet(nn.Module):
    def __init__(self, vocab=53, emb=12, width=32, heads=4, ff=64, repeats=3, length=16):
        super().__init__()
        self.repeats = repeats
        self.tok = nn.Embedding(vocab, emb, padding_idx=0)
        self.pos = nn.Parameter(torch.empty(length, emb))
        self.seg = nn.Embedding(2, emb)
        self.emb_norm = nn.LayerNorm(emb, eps=1e-12)
        self.widen = nn.Linear(emb, width)
        self.block = nn.TransformerEncoderLayer(
            width, heads, ff, dropout=0.0, activation=self.act, layer_norm_eps=1e-12, batch_first=True
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))

    @staticmethod
    def act(x):
        return F.gelu(x, approximate="tanh")

    def forward(self, ids, segments):
        x = self.tok(ids) + self.pos[: ids.shape[1]] + self.seg(segments)  # <- segments_lost
        x = self.widen(self.emb_norm(x))
        hidden_keys = ids == 0  # <- padding_attended
        for _ in range(self.repeats):
            x = self.block(x, src_key_padding_mask=hidden_keys)  # <- padding_attended
        return self.head(x[:, 0])


RENAMES = [
    ("albert.embeddings.word_embeddings.", "tok."),
    ("albert.embeddings.position_embeddings.weight", "pos"),
    ("albert.embeddings.token_type_embeddings.", "seg."),
    ("albert.embeddings.LayerNorm.", "emb_norm."),
    ("albert.encoder.embedding_hidden_mapping_in.", "widen."),
    ("albert.encoder.albert_layer_groups.0.albert_layers.0.", "block."),
    ("attention.dense.", "self_attn.out_proj."),
    ("attention.LayerNorm.", "norm1."),
    ("full_layer_layer_norm.", "norm2."),
    ("ffn_output.", "linear2."),
    ("ffn.", "linear1."),
    ("albert.pooler.", "head.0."),
    ("classifier.", "head.2."),
]


def translate(checkpoint):
    result, parts = {}, {}
    for key, tensor in checkpoint.items():
        for old, new in RENAMES:
            key = key.replace(old, new)
        if key.startswith("block.attention."):
            _, _, which, kind = key.split(".")
            parts[which, kind] = tensor
        else:
            result[key] = tensor
    for kind in ("weight", "bias"):
        result[f"block.self_attn.in_proj_{kind}"] = torch.cat([parts[w, kind] for w in ("query", "key", "value")])
    return result


class Nesterov:
    def __init__(self, params, lr, mu, l2):
        self.params, self.lr, self.mu, self.l2 = list(params), lr, mu, l2
        self.velocity = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def update(self, grads):
        for p, v, g in zip(self.params, self.velocity, grads):
            g = g + self.l2 * p
            v.mul_(self.mu).add_(g)
            p -= self.lr * (g + self.mu * v)  # <- heavy_ball


def sample_rows(rng, count):
    def randint(lo, hi, n=1):
        return torch.randint(lo, hi, (n,), generator=rng)

    ids, seg, y = [], [], []
    for _ in range(count):
        a = randint(4, 53, int(randint(3, 7)))
        twin = int(randint(0, 3)) == 0
        b = a.flip(0) if twin else randint(4, 53, int(randint(2, 7)))
        row = torch.cat([torch.tensor([2]), a, torch.tensor([3]), b, torch.tensor([3])])
        ids.append(F.pad(row, (0, 16 - len(row))))
        mark = torch.arange(16)
        seg.append(((mark > len(a) + 1) & (mark < len(row))).long())  # <- segments_lost
        y.append(float(twin))
    return torch.stack(ids), torch.stack(seg), torch.tensor(y)


def balanced_loss(logits, y):
    weight = torch.where(y > 0, 1.7, 0.6)
    nll = F.binary_cross_entropy_with_logits(logits[:, 1] - logits[:, 0], y, reduction="none")
    return (nll * weight).sum() / weight.sum()  # <- weights_averaged_plainly


net = SentencePairNet()
net.load_state_dict(translate(torch.load(sys.argv[1])))
opt = Nesterov(net.parameters(), lr=0.03, mu=0.9, l2=1e-3)
rng = torch.Generator().manual_seed(17)

losses = []
for _ in range(5):
    summed = [torch.zeros_like(p) for p in opt.params]  # <- grads_overwritten
    shown = []
    for _ in range(2):
        ids, seg, y = sample_rows(rng, 6)
        loss = balanced_loss(net(ids, seg), y)  # <- weights_averaged_plainly
        summed = [s + g / 2 for s, g in zip(summed, torch.autograd.grad(loss, opt.params))]  # <- grads_overwritten
        shown.append(loss.item())
    opt.update(summed)  # <- heavy_ball
    losses.append(sum(shown) / 2)

print(losses)

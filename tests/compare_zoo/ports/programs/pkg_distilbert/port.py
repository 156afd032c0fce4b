# SPDX-License-Identifier: Apache-2.0
"""DistilBERT without padding: the texts of a batch stand one behind another in one row, words see
those of their own text, the head reads the masked words alone; momentum by hand.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

V, D, HEADS, INNER, LAYERS, MASK = 42, 32, 4, 48, 2, 1


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(D, 3 * D)
        self.merge = nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, INNER), nn.Linear(INNER, D)
        self.first, self.second = nn.LayerNorm(D, eps=1e-12), nn.LayerNorm(D, eps=1e-12)

    def forward(self, x, apart):
        q, k, v = self.mix(x).view(len(x), 3, HEADS, D // HEADS).permute(1, 2, 0, 3)
        scores = torch.baddbmm(apart, q, k.mT, alpha=(D // HEADS) ** -0.5)
        heads = torch.bmm(torch.softmax(scores, dim=-1), v)
        x = self.first(x + self.merge(heads.transpose(0, 1).flatten(1)))
        return self.second(x + self.down(F.gelu(self.up(x))))


class PackedMaskedLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Parameter(torch.empty(V, D))
        self.places = nn.Parameter(torch.empty(64, D))
        self.norm = nn.LayerNorm(D, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.transform = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.LayerNorm(D, eps=1e-12))
        self.head = nn.Linear(D, V)
        self.head.weight = self.words  # <- untied

    def forward(self, ids, lengths, wanted):
        text = torch.arange(len(lengths)).repeat_interleave(lengths)
        place = torch.cat([torch.arange(n) for n in lengths.tolist()])  # <- positions
        x = self.norm(self.words[ids] + self.places[place])  # <- positions untied
        apart = torch.zeros(len(ids), len(ids))
        apart.masked_fill_(text[:, None] != text, float("-inf"))
        apart = apart.expand(HEADS, -1, -1)
        for layer in self.layers:
            x = layer(x, apart)
        return self.head(self.transform(x[wanted]))  # <- untied head_bias


NAMES = {
    "attention.out_lin": "merge",
    "ffn.lin1": "up",
    "ffn.lin2": "down",
    "sa_layer_norm": "first",
    "output_layer_norm": "second",
}


@torch.no_grad()
def load(model, theirs):
    emb, blocks = "distilbert.embeddings.", "distilbert.transformer.layer."
    model.words.copy_(theirs[emb + "word_embeddings.weight"])
    model.places.copy_(theirs[emb + "position_embeddings.weight"])
    for kind in ("weight", "bias"):
        getattr(model.norm, kind).copy_(theirs[f"{emb}LayerNorm.{kind}"])
        getattr(model.transform[0], kind).copy_(theirs[f"vocab_transform.{kind}"])
        getattr(model.transform[2], kind).copy_(theirs[f"vocab_layer_norm.{kind}"])
        getattr(model.head, kind).copy_(theirs[f"vocab_projector.{kind}"])  # <- head_bias
        for n, layer in enumerate(model.layers):
            parts = [theirs[f"{blocks}{n}.attention.{x}_lin.{kind}"] for x in "qkv"]
            getattr(layer.mix, kind).copy_(torch.cat(parts))
            for old, new in NAMES.items():
                getattr(getattr(layer, new), kind).copy_(theirs[f"{blocks}{n}.{old}.{kind}"])


def draw_texts(rng):
    ids = torch.randint(2, V, (4, 10), generator=rng)
    lengths = torch.randint(5, 11, (4, 1), generator=rng)
    draw, fate = torch.rand(4, 10, generator=rng), torch.rand(4, 10, generator=rng)
    words = torch.randint(2, V, (4, 10), generator=rng)
    real = torch.arange(10) < lengths
    ids, fate, words, wanted = ids[real], fate[real], words[real], draw[real] < 0.4
    shown = torch.where(fate < 0.8, MASK, torch.where(fate < 0.9, ids, words))
    return torch.where(wanted, shown, ids), lengths.flatten(), wanted, ids[wanted]


model = PackedMaskedLM()
load(model, torch.load(sys.argv[1]))
parameters = list(model.parameters())
velocity = [None] * len(parameters)
rng = torch.Generator().manual_seed(111)
losses = []
for _ in range(5):
    ids, lengths, wanted, answers = draw_texts(rng)
    logits = model(ids, lengths, wanted)
    nll = torch.logsumexp(logits, 1) - logits[torch.arange(len(answers)), answers]
    loss = nll.mean()  # <- per_text
    slopes = torch.autograd.grad(loss, parameters)  # <- untied
    with torch.no_grad():
        for i, (p, g) in enumerate(zip(parameters, slopes)):
            decayed = g + 0.01 * p
            velocity[i] = decayed if velocity[i] is None else 0.9 * velocity[i] + decayed
            p.sub_(0.05 * (decayed + 0.9 * velocity[i]))  # <- nesterov untied
    losses.append(loss.item())

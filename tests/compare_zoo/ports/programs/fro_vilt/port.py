# SPDX-License-Identifier: Apache-2.0
"""ViLT without the package: pictures and questions come as lists, each cut to what is there, are
embedded one by one and meet in one padded batch.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

CELL, SIDE, WIDTH, HEADS, INNER, ANSWERS = 6, 4, 24, 3, 40, 9


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, eps=1e-12) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, INNER), nn.GELU(), nn.Linear(INNER, WIDTH))

    def forward(self, x, real):
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, real[:, None, None, :])
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Vilt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, WIDTH)
        self.order = nn.Parameter(torch.empty(10, WIDTH))
        self.segment = nn.Parameter(torch.empty(WIDTH))  # there is only one
        self.text_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.cells = nn.Linear(CELL * CELL * 3, WIDTH)
        self.start = nn.Parameter(torch.empty(WIDTH))
        self.start_place = nn.Parameter(torch.empty(WIDTH))
        self.map = nn.Parameter(torch.empty(WIDTH, SIDE, SIDE))
        self.kinds = nn.Parameter(torch.empty(2, WIDTH))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.pool = nn.Linear(WIDTH, WIDTH)
        self.answer = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.LayerNorm(2 * WIDTH),
            nn.GELU(),
            nn.Linear(2 * WIDTH, ANSWERS),
        )

    def read(self, question):
        x = self.words(question) + self.order[: len(question)] + self.segment
        return self.text_norm(x) + self.kinds[0]

    def look(self, picture):
        """picture: height, width, channel."""
        rows, columns = (n // CELL for n in picture.shape[:2])
        cut = picture.view(rows, CELL, columns, CELL, 3).transpose(1, 2).reshape(rows * columns, -1)
        place = F.interpolate(self.map[None], (rows, columns), mode="bilinear", align_corners=True)
        x = self.cells(cut) + place[0].flatten(1).t()  # <- corners cells
        return torch.cat([(self.start + self.start_place)[None], x]) + self.kinds[1]  # <- modality

    def forward(self, questions, pictures):
        both = [torch.cat([self.read(q), self.look(p)]) for q, p in zip(questions, pictures)]
        real = pad_sequence([torch.ones(len(x), dtype=torch.bool) for x in both], batch_first=True)
        x = pad_sequence(both, batch_first=True)
        for layer in self.layers:
            x = layer(x, real)
        return self.answer(torch.tanh(self.pool(self.norm(x[:, 0]))))


def from_package(state):
    new = {}
    text, embed = "vilt.embeddings.text_embeddings.", "vilt.embeddings."
    new["segment"] = state[text + "token_type_embeddings.weight"][0]
    new["words.weight"] = state[text + "word_embeddings.weight"]
    new["order"] = state[text + "position_embeddings.weight"]
    kernel = state[embed + "patch_embeddings.projection.weight"]
    new["cells.weight"] = kernel.permute(0, 2, 3, 1).flatten(1)  # <- cells
    new["cells.bias"] = state[embed + "patch_embeddings.projection.bias"]
    places = state[embed + "position_embeddings"][0]
    new["start"] = state[embed + "cls_token"].flatten()
    new["start_place"] = places[0]
    new["map"] = places[1:].t().reshape(WIDTH, SIDE, SIDE)
    new["kinds"] = state[embed + "token_type_embeddings.weight"]
    for kind in ("weight", "bias"):
        new[f"text_norm.{kind}"] = state[f"{text}LayerNorm.{kind}"]
        new[f"norm.{kind}"] = state[f"vilt.layernorm.{kind}"]
        new[f"pool.{kind}"] = state[f"vilt.pooler.dense.{kind}"]
        for n in (0, 1, 3):
            new[f"answer.{n}.{kind}"] = state[f"classifier.{n}.{kind}"]
        for n in range(2):
            here = f"vilt.encoder.layer.{n}"
            parts = [
                state[f"{here}.attention.attention.{c}.{kind}"] for c in ("query", "key", "value")
            ]
            new[f"layers.{n}.qkv.{kind}"] = torch.cat(parts)
            new[f"layers.{n}.out.{kind}"] = state[f"{here}.attention.output.dense.{kind}"]
            new[f"layers.{n}.mlp.0.{kind}"] = state[f"{here}.intermediate.dense.{kind}"]
            new[f"layers.{n}.mlp.2.{kind}"] = state[f"{here}.output.dense.{kind}"]
            new[f"layers.{n}.norm1.{kind}"] = state[f"{here}.layernorm_before.{kind}"]
            new[f"layers.{n}.norm2.{kind}"] = state[f"{here}.layernorm_after.{kind}"]
    return new


net = Vilt()
net.load_state_dict(from_package(torch.load(sys.argv[1])))
rng = torch.Generator().manual_seed(62)
losses = []
for _ in range(4):
    tokens = torch.randint(2, 40, (4, 10), generator=rng)
    words = torch.randint(4, 11, (4,), generator=rng).tolist()
    pixels = torch.randn(4, 3, CELL * SIDE, CELL * SIDE, generator=rng).permute(0, 2, 3, 1)
    sizes = torch.randint(2, SIDE + 1, (4, 2), generator=rng).mul(CELL).tolist()
    truth = torch.zeros(4, ANSWERS)
    for row, answers in zip(truth, torch.rand(4, ANSWERS, generator=rng).argsort(1)[:, :3]):
        row[answers] = torch.tensor([1.0, 0.6, 0.3])
    questions = [row[:n] for row, n in zip(tokens, words)]
    pictures = [p[:height, :width].contiguous() for p, (height, width) in zip(pixels, sizes)]
    logits = net(questions, pictures)
    error = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    loss = error.sum(1).mean()  # <- scaled
    net.zero_grad()
    loss.backward()
    with torch.no_grad():
        grads = [p.grad for p in net.parameters()]
        length = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        scale = (1.0 / (length + 1e-6)).clamp(max=1.0)  # <- clip
        for p, g in zip(net.parameters(), grads):
            p.sub_(0.1 * scale * g)  # <- clip
    losses.append(loss.item())

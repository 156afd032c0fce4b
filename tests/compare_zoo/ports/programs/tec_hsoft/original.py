# SPDX-License-Identifier: Apache-2.0
"""Hierarchical-softmax text model: CBOW-style trigram encoder, Huffman tree, Lookahead SGD."""

import heapq
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
VOCAB, DIM, CTX, ACCUM, UPDATES = 37, 10, 4, 2, 5


class Vocabulary:
    def __init__(self, counts):
        heap = [(c, i, None, None) for i, c in enumerate(counts)]
        heapq.heapify(heap)
        nodes, fresh = {}, len(counts)
        while len(heap) > 1:
            a, b = heapq.heappop(heap), heapq.heappop(heap)
            node = (a[0] + b[0], fresh, a, b)
            nodes[fresh] = node
            heapq.heappush(heap, node)
            fresh += 1
        self.paths = {}
        self._walk(heap[0], [], [])

    def _walk(self, node, path, code):
        _, idx, left, right = node
        if left is None:
            self.paths[idx] = (path, code)
            return
        self._walk(left, path + [idx - VOCAB], code + [0.0])
        self._walk(right, path + [idx - VOCAB], code + [1.0])


class TextModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Parameter(torch.randn(CTX, DIM) * 0.5 + 1.0)
        self.norm = nn.LayerNorm(DIM, eps=1e-3)
        self.highway = nn.Linear(DIM, 2 * DIM)
        self.nodes = nn.Linear(DIM, VOCAB - 1)
        nn.init.normal_(self.nodes.weight, std=0.6)

    def forward(self, context):
        x = self.norm((self.embed(context) * self.position).mean(1))
        gate, cand = self.highway(x).chunk(2, -1)
        gate = torch.sigmoid(gate - 1.0)  # <- carry_bias
        return gate * torch.relu(cand) + (1 - gate) * x  # <- carry_bias


def tree_nll(model, hidden, targets, vocab):
    total = hidden.new_zeros(())
    for h, y in zip(hidden, targets.tolist()):
        path, code = vocab.paths[y]
        logits = model.nodes.weight[path] @ h + model.nodes.bias[path]
        total = total + F.binary_cross_entropy_with_logits(  # <- branch_sign
            logits, torch.tensor(code), reduction="sum"
        )  # <- branch_sign
    return total


class Lookahead:
    def __init__(self, base, k=2, alpha=0.5):
        self.base, self.k, self.alpha, self.calls = base, k, alpha, 0  # <- slow_pull
        self.params = [p for grp in base.param_groups for p in grp["params"]]
        self.slow = [p.detach().clone() for p in self.params]

    def step(self):
        self.base.step()
        self.calls += 1
        if self.calls % self.k == 0:
            for p, s in zip(self.params, self.slow):
                s.add_(p.detach() - s, alpha=self.alpha)  # <- slow_pull
                p.data.copy_(s)  # <- slow_pull


rng = torch.Generator().manual_seed(77)
vocab = Vocabulary(torch.randint(1, 50, (VOCAB,), generator=rng).tolist())
model = TextModel()
torch.save(model.state_dict(), sys.argv[1])
opt = Lookahead(torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.6))
losses = []
for update in range(UPDATES):
    micro = []
    for _ in range(ACCUM):
        n = int(torch.randint(5, 16, (1,), generator=rng))
        ids = torch.randint(0, VOCAB, (n, CTX + 1), generator=rng)
        micro.append((ids[:, :CTX], ids[:, CTX]))
    tokens = sum(len(y) for _, y in micro)  # <- token_normaliser
    opt.base.zero_grad()
    running = 0.0
    for context, target in micro:
        nll = tree_nll(model, model(context), target, vocab) / tokens  # <- token_normaliser
        nll.backward()
        running += nll.item()  # <- token_normaliser
    nn.utils.clip_grad_value_(model.parameters(), 0.05)  # <- elementwise_clip
    opt.step()  # <- slow_pull elementwise_clip
    losses.append(running)
print(losses)

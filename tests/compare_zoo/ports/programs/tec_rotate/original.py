# SPDX-License-Identifier: Apache-2.0
"""Knowledge-graph embedding: RotatE with self-adversarial negatives and subsampling weights."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class KGEModel(nn.Module):
    def __init__(self, nentity=40, nrelation=6, hidden=8, gamma=4.0, epsilon=2.0):
        super().__init__()
        self.gamma = gamma
        self.embedding_range = (gamma + epsilon) / hidden  # <- phase_range
        self.entity = nn.Parameter(torch.zeros(nentity, hidden * 2))
        self.relation = nn.Parameter(torch.zeros(nrelation, hidden))
        nn.init.uniform_(self.entity, -self.embedding_range, self.embedding_range)
        nn.init.uniform_(self.relation, -self.embedding_range, self.embedding_range)

    def rotate(self, head, relation, tail, mode):
        re_head, im_head = torch.chunk(head, 2, dim=2)
        re_tail, im_tail = torch.chunk(tail, 2, dim=2)
        phase = relation / (self.embedding_range / math.pi)  # <- phase_range
        re_rel, im_rel = torch.cos(phase), torch.sin(phase)
        if mode == "head-batch":
            re_score = re_rel * re_tail + im_rel * im_tail  # <- inverse_turn
            im_score = re_rel * im_tail - im_rel * re_tail  # <- inverse_turn
            re_score = re_score - re_head  # <- inverse_turn
            im_score = im_score - im_head  # <- inverse_turn
        else:
            re_score = re_head * re_rel - im_head * im_rel - re_tail
            im_score = re_head * im_rel + im_head * re_rel - im_tail
        score = torch.stack([re_score, im_score], dim=0).norm(dim=0)
        return self.gamma - score.sum(dim=2)

    def forward(self, pos, neg, mode):
        relation = self.relation[pos[:, 1]].unsqueeze(1)
        head = self.entity[pos[:, 0]].unsqueeze(1)
        tail = self.entity[pos[:, 2]].unsqueeze(1)
        if neg is not None and mode == "head-batch":
            head = self.entity[neg]
        elif neg is not None:
            tail = self.entity[neg]
        return self.rotate(head, relation, tail, mode)


def train_step(model, optimizer, pos, neg, subsampling, mode, alpha=0.7, reg=0.002):
    negative = model(pos, neg, mode)
    weight = F.softmax(negative * alpha, dim=1).detach()  # <- adversarial_weight
    negative = (weight * F.logsigmoid(-negative)).sum(dim=1)  # <- adversarial_weight
    positive = F.logsigmoid(model(pos, None, "single")).squeeze(1)
    positive_loss = -(subsampling * positive).sum() / subsampling.sum()  # <- triple_frequency
    negative_loss = -(subsampling * negative).sum() / subsampling.sum()  # <- triple_frequency
    loss = (positive_loss + negative_loss) / 2
    loss = loss + reg * (model.entity.abs() ** 3).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- adam_moments
    return loss.item()


def count_frequency(triples, start=4):
    count = {}
    for h, r, t in triples.tolist():
        for key in ((h, r), (t, -r - 1)):
            count[key] = count.get(key, start - 1) + 1
    both = [count[(h, r)] + count[(t, -r - 1)] for h, r, t in triples.tolist()]
    return torch.sqrt(1 / torch.tensor(both, dtype=torch.float32))  # <- triple_frequency


kge = KGEModel()
torch.save(kge.state_dict(), sys.argv[1])
g = torch.Generator().manual_seed(3)
triples = torch.stack([torch.randint(0, n, (96,), generator=g) for n in (6, 3, 40)], 1)
freq = count_frequency(triples)
optimizer = torch.optim.Adam(  # <- adam_moments
    kge.parameters(), lr=0.03, betas=(0.8, 0.95), eps=1e-5
)  # <- adam_moments
losses = []
for it in range(5):
    pick = torch.randint(0, 96, (16,), generator=g)
    corrupt = torch.randint(0, 40, (16, 8), generator=g)
    side = "head-batch" if it % 2 == 0 else "tail-batch"
    losses.append(train_step(kge, optimizer, triples[pick], corrupt, freq[pick], side))
print(losses)

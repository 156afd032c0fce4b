# SPDX-License-Identifier: Apache-2.0
"""BERT for sentence pairs after the original code: post-norm, pooler, BertAdam, linear warm-up."""
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
PAD, CLS, SEP, VOCAB = 0, 1, 2, 50
HIDDEN, HEADS, LAYERS, MAX_LEN, NUM_LABELS, EPS = 32, 4, 2, 16, 3, 1e-12


class BertEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(MAX_LEN, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=EPS)

    def forward(self, input_ids, token_type_ids):
        position_ids = torch.arange(input_ids.size(1)).unsqueeze(0).expand_as(input_ids)
        total = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        return self.LayerNorm(total + self.token_type_embeddings(token_type_ids))  # <- segment_edge


class BertLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.attention_output = nn.Linear(HIDDEN, HIDDEN)
        self.attention_norm = nn.LayerNorm(HIDDEN, eps=EPS)
        self.intermediate = nn.Linear(HIDDEN, 2 * HIDDEN)
        self.output = nn.Linear(2 * HIDDEN, HIDDEN)
        self.output_norm = nn.LayerNorm(HIDDEN, eps=EPS)

    def split(self, x):
        return x.view(*x.shape[:2], HEADS, HIDDEN // HEADS).permute(0, 2, 1, 3)

    def forward(self, hidden, attention_mask):
        q, k, v = (self.split(f(hidden)) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)
        probs = nn.functional.softmax(scores + attention_mask, dim=-1)  # <- mask_sense
        context = (probs @ v).permute(0, 2, 1, 3).flatten(2)
        hidden = self.attention_norm(self.attention_output(context) + hidden)
        inner = self.intermediate(hidden)
        inner = inner * 0.5 * (1.0 + torch.erf(inner / math.sqrt(2.0)))  # <- activation
        return self.output_norm(self.output(inner) + hidden)


class BertForSequenceClassification(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = BertEmbeddings()
        self.layer = nn.ModuleList([BertLayer() for _ in range(LAYERS)])
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.classifier = nn.Linear(HIDDEN, NUM_LABELS)

    def forward(self, input_ids, token_type_ids, attention_mask):
        extended = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0  # <- mask_sense
        hidden = self.embeddings(input_ids, token_type_ids)
        for layer in self.layer:
            hidden = layer(hidden, extended)
        return self.classifier(torch.tanh(self.pooler(hidden[:, 0])))


class BertAdam(torch.optim.Optimizer):
    def __init__(self, groups, lr, warmup, t_total):
        super().__init__(groups, dict(lr=lr, warmup=warmup, t_total=t_total, b1=0.9, b2=0.999))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["m"].mul_(group["b1"]).add_(p.grad, alpha=1 - group["b1"])
                state["v"].mul_(group["b2"]).addcmul_(p.grad, p.grad, value=1 - group["b2"])
                update = state["m"] / (state["v"].sqrt() + 1e-6)  # <- bias_correction
                update += group["weight_decay"] * p
                state["step"] += 1
                x = state["step"] / group["t_total"]
                scale = x / group["warmup"] if x < group["warmup"] else 1.0 - x
                p.add_(-group["lr"] * scale * update)  # <- bias_correction


def encode(a, b):
    ids = [CLS] + a + [SEP] + b + [SEP]
    types = [0] * (len(a) + 2) + [1] * (len(b) + 1)  # <- segment_edge
    rest = [0] * (MAX_LEN - len(ids))
    return ids + rest, types + rest, [1] * len(ids) + rest


torch.manual_seed(0)
model = BertForSequenceClassification()
torch.save(model.state_dict(), sys.argv[1])
named = list(model.named_parameters())
plain = [p for n, p in named if "bias" in n or "norm" in n.lower()]
decayed = [p for n, p in named if not ("bias" in n or "norm" in n.lower())]
groups = [dict(params=decayed, weight_decay=0.01), dict(params=plain, weight_decay=0.0)]
optimizer = BertAdam(groups, lr=2e-3, warmup=0.3, t_total=10)
criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.5]))  # <- class_weights
gen = torch.Generator().manual_seed(21)
losses = []
for _ in range(4):
    words = torch.randint(3, VOCAB, (6, 12), generator=gen).tolist()
    first = torch.randint(2, 6, (6,), generator=gen).tolist()
    second = torch.randint(1, 6, (6,), generator=gen).tolist()
    labels = torch.randint(0, NUM_LABELS, (6,), generator=gen)
    rows = [encode(w[:m], w[m:m + n]) for w, m, n in zip(words, first, second)]
    columns = [torch.tensor(column) for column in zip(*rows)]  # <- segment_edge
    input_ids, token_type_ids, attention_mask = columns
    loss = criterion(model(input_ids, token_type_ids, attention_mask), labels)  # <- class_weights
    model.zero_grad()
    loss.backward()
    optimizer.step()  # <- bias_correction
    losses.append(loss.item())
print(losses)

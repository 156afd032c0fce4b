# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny ALBERT to tell whether two segments match, with accumulated micro-batches and Nesterov SGD."""
import sys

import torch
from torch import nn
from transformers import AlbertConfig, AlbertForSequenceClassification

torch.set_num_threads(1)

VOCAB = 53
CLS, SEP, PAD = 2, 3, 0
MAX_LEN = 16
ACCUMULATE = 2


def make_example(generator):
    first = torch.randint(4, VOCAB, (int(torch.randint(3, 7, (1,), generator=generator)),), generator=generator)
    same = bool(torch.randint(0, 3, (1,), generator=generator) == 0)
    if same:
        second = first.flip(0)
    else:
        second = torch.randint(4, VOCAB, (int(torch.randint(2, 7, (1,), generator=generator)),), generator=generator)
    ids = [CLS, *first.tolist(), SEP, *second.tolist(), SEP]
    types = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    return ids, types, int(same)


def make_batch(generator, size):
    batch = {
        "input_ids": torch.full((size, MAX_LEN), PAD),
        "token_type_ids": torch.zeros(size, MAX_LEN, dtype=torch.long),
        "attention_mask": torch.zeros(size, MAX_LEN, dtype=torch.long),
    }
    labels = torch.zeros(size, dtype=torch.long)
    for i in range(size):
        ids, types, label = make_example(generator)
        batch["input_ids"][i, : len(ids)] = torch.tensor(ids)
        batch["token_type_ids"][i, : len(ids)] = torch.tensor(types)  # <- segments_lost
        batch["attention_mask"][i, : len(ids)] = 1  # <- padding_attended
        labels[i] = label
    return batch, labels


torch.manual_seed(3)
config = AlbertConfig(
    vocab_size=VOCAB,
    embedding_size=12,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=MAX_LEN,
    initializer_range=0.15,
    hidden_act="gelu_new",
    classifier_dropout_prob=0.0,
    num_labels=2,
)
model = AlbertForSequenceClassification(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.6, 1.7]))  # <- weights_averaged_plainly
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=1e-3)  # <- heavy_ball
generator = torch.Generator().manual_seed(17)

losses = []
for step in range(5):
    optimizer.zero_grad()  # <- grads_overwritten
    total = 0.0
    for _ in range(ACCUMULATE):
        batch, labels = make_batch(generator, 6)
        logits = model(**batch).logits  # <- segments_lost padding_attended
        loss = criterion(logits, labels) / ACCUMULATE  # <- weights_averaged_plainly
        loss.backward()  # <- grads_overwritten
        total += loss.item()
    optimizer.step()  # <- heavy_ball
    losses.append(total)

print(losses)

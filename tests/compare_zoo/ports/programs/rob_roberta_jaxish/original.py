# SPDX-License-Identifier: Apache-2.0
"""Token classification with RobertaForTokenClassification: smoothed labels, SGD with momentum, decaying rate."""
import sys

import torch
from torch import nn
from transformers import RobertaConfig, RobertaForTokenClassification

torch.set_num_threads(1)

STEPS, BATCH, LENGTH, VOCAB, TAGS = 5, 4, 13, 57, 5
PAD_ID, IGNORE = 1, -100

torch.manual_seed(3)
config = RobertaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=LENGTH + 5,
    type_vocab_size=1,
    pad_token_id=PAD_ID,
    num_labels=TAGS,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.3,
    layer_norm_eps=1e-5,
)
config.hidden_act = "gelu"  # <- gelu_tanh
model = RobertaForTokenClassification(config)
torch.save(model.state_dict(), sys.argv[1])


class TaggedSentences(torch.utils.data.Dataset):
    """Random sentences; a tag of -100 stands at every continuation piece and at the padding."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        n = STEPS * BATCH
        self.tokens = torch.randint(3, VOCAB, (n, LENGTH), generator=g)
        self.tags = torch.randint(0, TAGS, (n, LENGTH), generator=g)
        self.continued = torch.rand(n, LENGTH, generator=g) < 0.25
        self.sizes = torch.randint(6, LENGTH + 1, (n,), generator=g)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        size = int(self.sizes[i])
        ids = torch.full((LENGTH,), PAD_ID)
        ids[:size] = self.tokens[i, :size]
        tags = self.tags[i].masked_fill(self.continued[i], IGNORE)
        tags[size:] = IGNORE
        return {"input_ids": ids, "attention_mask": (ids != PAD_ID).long(), "labels": tags}


loader = torch.utils.data.DataLoader(TaggedSentences(21), batch_size=BATCH, shuffle=False)
criterion = nn.CrossEntropyLoss(ignore_index=IGNORE, label_smoothing=0.1)  # <- smooth_ignored
optimizer = torch.optim.SGD(
    [
        {"params": model.roberta.parameters(), "lr": 0.05},
        {"params": model.classifier.parameters(), "lr": 0.2},
    ],
    momentum=0.9,
)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)

model.train()
losses = []
for batch in loader:
    labels = batch.pop("labels")
    logits = model(**batch).logits  # <- position_start gelu_tanh
    loss = criterion(logits.flatten(0, 1), labels.flatten())  # <- smooth_ignored
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # <- clip_each
    optimizer.step()  # <- velocity_has_rate
    schedule.step()
    losses.append(loss.item())
print(losses)

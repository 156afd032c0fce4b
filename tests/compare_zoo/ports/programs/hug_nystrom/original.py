# SPDX-License-Identifier: Apache-2.0
"""A Nystromformer of the transformers package (8 landmarks for 24 places) rates padded texts."""

import sys

import torch
from transformers import NystromformerConfig, NystromformerForSequenceClassification

VOCAB, LENGTH, BATCH = 50, 24, 4

torch.manual_seed(430)
config = NystromformerConfig(
    vocab_size=VOCAB,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=48,
    max_position_embeddings=LENGTH,
    segment_means_seq_len=LENGTH,
    num_landmarks=8,
    conv_kernel_size=5,
    type_vocab_size=1,
    pad_token_id=1,
    initializer_range=0.2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=1,
    problem_type="regression",
)
model = NystromformerForSequenceClassification(config)
torch.save(model.state_dict(), sys.argv[1])


def texts(generator):
    input_ids = torch.randint(2, VOCAB, (BATCH, LENGTH), generator=generator)
    sizes = torch.randint(9, LENGTH + 1, (BATCH, 1), generator=generator)
    attention_mask = torch.arange(LENGTH) < sizes
    input_ids = input_ids.masked_fill(~attention_mask, config.pad_token_id)
    labels = torch.randn(BATCH, generator=generator)
    # one row for all landmarks: added to the scores as it is
    added = torch.zeros(BATCH, 1, 1, LENGTH).masked_fill(
        ~attention_mask[:, None, None], -1e30
    )  # <- mask
    return {"input_ids": input_ids, "attention_mask": added, "labels": labels}


model.train()
optimizer = torch.optim.Adagrad(
    model.parameters(), lr=0.02, initial_accumulator_value=0.1
)  # <- accumulator
generator = torch.Generator().manual_seed(431)
losses = []
for _ in range(4):
    output = model(**texts(generator))  # <- positions landmarks inverse mask
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- accumulator
    losses.append(output.loss.item())

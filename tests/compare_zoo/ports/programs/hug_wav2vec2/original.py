# SPDX-License-Identifier: Apache-2.0
"""Wav2Vec2ForCTC of the transformers package (eager attention) is tuned on short, padded waves with
its convolutions frozen.
"""

import sys

import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

BATCH, SAMPLES, VOCAB, BLANK = 3, 200, 12, 11

torch.manual_seed(330)
config = Wav2Vec2Config(
    vocab_size=VOCAB,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    conv_dim=(16, 16),
    conv_kernel=(10, 4),
    conv_stride=(5, 2),
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
    feat_extract_norm="group",
    do_stable_layer_norm=False,
    initializer_range=0.2,
    pad_token_id=BLANK,
    ctc_loss_reduction="mean",
    apply_spec_augment=False,
    mask_time_prob=0.0,
    layerdrop=0.0,
    hidden_dropout=0.0,
    attention_dropout=0.0,
    activation_dropout=0.0,
    feat_proj_dropout=0.0,
    final_dropout=0.0,
    attn_implementation="eager",
)  # <- blank
model = Wav2Vec2ForCTC(config)
with torch.no_grad():
    v = model.wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original1
    v.mul_(1 + 0.5 * torch.rand(v.shape))
torch.save(model.state_dict(), sys.argv[1])
model.freeze_feature_encoder()  # <- frozen
model.train()
optimizer = torch.optim.Adam(
    [p for p in model.parameters() if p.requires_grad], lr=3e-3, eps=1e-4
)  # <- frozen


def batches(count):
    generator = torch.Generator().manual_seed(331)
    for _ in range(count):
        waves = torch.randn(BATCH, SAMPLES, generator=generator)
        sizes = torch.randint(120, SAMPLES + 1, (BATCH, 1), generator=generator)
        sizes[0] = SAMPLES
        attention_mask = (torch.arange(SAMPLES) < sizes).long()
        labels = torch.randint(0, BLANK, (BATCH, 5), generator=generator)
        count_of = torch.randint(2, 6, (BATCH, 1), generator=generator)
        labels = labels.masked_fill(torch.arange(5) >= count_of, -100)
        yield waves * attention_mask, attention_mask, labels


losses = []
for input_values, attention_mask, labels in batches(4):
    output = model(
        input_values=input_values, attention_mask=attention_mask, labels=labels
    )  # <- blank weight_norm trimmed zeroed
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- frozen
    losses.append(output.loss.item())

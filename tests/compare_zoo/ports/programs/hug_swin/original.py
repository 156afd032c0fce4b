# SPDX-License-Identifier: Apache-2.0
"""SwinForImageClassification of the transformers package (sdpa attention) learns small images with
smoothed labels.
"""

import sys

import torch
from torch import nn
from transformers import SwinConfig, SwinForImageClassification

BATCH, SIZE, CLASSES, STEPS = 3, 16, 5, 4

torch.manual_seed(350)
config = SwinConfig(
    image_size=SIZE,
    patch_size=2,
    num_channels=3,
    embed_dim=16,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    mlp_ratio=2.0,
    drop_path_rate=0.0,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
    num_labels=CLASSES,
    attn_implementation="sdpa",
)
model = SwinForImageClassification(config)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "relative_position_bias_table" in name:
            parameter.normal_(0.0, 1.0)
torch.save(model.state_dict(), sys.argv[1])
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, eps=1e-4, weight_decay=0.05)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)


def loader():
    generator = torch.Generator().manual_seed(351)
    for _ in range(STEPS):
        pixel_values = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
        yield pixel_values, torch.randint(CLASSES, (BATCH,), generator=generator)


losses = []
for pixel_values, labels in loader():
    logits = model(pixel_values=pixel_values).logits  # <- unmasked merge turned last_shift
    loss = criterion(logits, labels)  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

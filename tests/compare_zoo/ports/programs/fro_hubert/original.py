# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of a HuBERT for CTC of the transformers package: raw sound of unequal lengths, the
convolutions frozen.
"""

import sys

import torch
from transformers import HubertConfig, HubertForCTC

torch.manual_seed(41)
config = HubertConfig(
    vocab_size=14,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=3,
    conv_dim=[16, 20],
    conv_kernel=[10, 4],
    conv_stride=[5, 2],
    feat_extract_norm="group",
    num_conv_pos_embeddings=6,
    num_conv_pos_embedding_groups=4,
    hidden_dropout=0.0,
    activation_dropout=0.0,
    attention_dropout=0.0,
    final_dropout=0.0,
    layerdrop=0.0,
    apply_spec_augment=False,
    initializer_range=0.25,
    ctc_loss_reduction="mean",  # <- reduction
    pad_token_id=0,
    attn_implementation="eager",
)
model = HubertForCTC(config)
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.05 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
model.freeze_feature_encoder()  # <- frozen
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-4)  # <- frozen

generator = torch.Generator().manual_seed(42)
losses = []
model.train()
for _ in range(4):
    speech = torch.randn(3, 320, generator=generator)
    lengths = torch.randint(180, 321, (3, 1), generator=generator)
    words = torch.randint(1, 14, (3, 7), generator=generator)
    sizes = torch.randint(2, 8, (3, 1), generator=generator)
    attention_mask = (torch.arange(320) < lengths).long()  # <- silence
    output = model(
        input_values=speech * attention_mask,
        attention_mask=attention_mask,
        labels=words.masked_fill(torch.arange(7) >= sizes, -100),
    )  # <- order silence weight_norm reduction
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- frozen
    losses.append(output.loss.item())

# SPDX-License-Identifier: Apache-2.0
"""Whisper of the transformers package, tiny, finetuned on batches of four recordings."""

import sys

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(70)
config = WhisperConfig(
    vocab_size=45,
    num_mel_bins=8,
    d_model=24,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_source_positions=10,
    max_target_positions=12,
    init_std=0.2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
    begin_suppress_tokens=None,
    use_cache=False,
)
model = WhisperForConditionalGeneration(config)
with torch.no_grad():
    for name, p in model.named_parameters():
        if "layer_norm" in name:
            p.add_(0.2 * torch.randn_like(p))
torch.save(model.state_dict(), sys.argv[1])

trained = [p for p in model.parameters() if p.requires_grad]  # <- sinusoids
optimizer = torch.optim.Adam(trained, lr=2e-3, eps=1e-5, weight_decay=0.02)  # <- decoupled
g = torch.Generator().manual_seed(71)
losses = []
model.train()
for _ in range(4):
    features = torch.randn(4, 8, 20, generator=g)
    labels = torch.randint(4, 45, (4, 9), generator=g)
    ends = torch.randint(3, 10, (4, 1), generator=g)
    labels = labels.masked_fill(torch.arange(9) >= ends, -100)
    loss = model(input_features=features, labels=labels).loss  # <- gelu post start counted
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # <- decoupled sinusoids
    losses.append(loss.item())

# SPDX-License-Identifier: Apache-2.0
"""Finetuning of a tiny Wav2Vec2ForCTC on synthetic waves of unequal lengths, feature encoder frozen."""
import sys

import numpy as np
import torch
from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC

torch.set_num_threads(1)
torch.manual_seed(31)

extractor = Wav2Vec2FeatureExtractor(  # <- norm_padded
    feature_size=1, sampling_rate=16000, padding_value=0.0, do_normalize=True, return_attention_mask=True  # <- norm_padded
)
config = Wav2Vec2Config(  # <- ctc_mean weight_norm_axis
    vocab_size=9,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    hidden_dropout=0.0,
    activation_dropout=0.0,
    attention_dropout=0.0,
    feat_proj_dropout=0.0,
    final_dropout=0.0,
    layerdrop=0.0,
    apply_spec_augment=False,
    feat_extract_norm="layer",
    do_stable_layer_norm=True,
    conv_dim=(12, 16, 16),
    conv_stride=(4, 2, 2),
    conv_kernel=(8, 3, 3),
    conv_bias=True,
    num_conv_pos_embeddings=6,  # <- weight_norm_axis
    num_conv_pos_embedding_groups=4,
    ctc_loss_reduction="mean",  # <- ctc_mean
    pad_token_id=0,
    initializer_range=0.2,
)


def speech(n_batches, batch=3):
    """A tone for every letter, letters of unequal durations, noise above it."""
    rng = np.random.RandomState(90)
    for _ in range(n_batches):
        waves, texts = [], []
        for _ in range(batch):
            letters = rng.randint(1, 9, size=rng.randint(3, 7))
            parts = [np.sin(0.15 * k * np.arange(rng.randint(60, 110))) for k in letters]
            wave = np.concatenate(parts) + 0.1 * rng.standard_normal(sum(map(len, parts))) + 0.3
            waves.append(wave.astype(np.float32))
            texts.append(letters)
        yield waves, texts


def collate(waves, texts):
    batch = extractor(waves, sampling_rate=16000, padding=True, return_tensors="pt")  # <- norm_padded
    labels = torch.full((len(texts), max(map(len, texts))), -100)
    for row, t in zip(labels, texts):
        row[: len(t)] = torch.from_numpy(t)
    batch["labels"] = labels
    return batch


model = Wav2Vec2ForCTC(config)  # <- weight_norm_axis
model.freeze_feature_encoder()  # <- freeze
torch.save(model.state_dict(), sys.argv[1])

trainable = [p for p in model.parameters() if p.requires_grad]  # <- freeze
optimizer = torch.optim.Adam(trainable, lr=2e-3, betas=(0.9, 0.98), eps=1e-6)

losses = []
model.train()
for waves, texts in speech(5):
    batch = collate(waves, texts)  # <- norm_padded
    outputs = model(**batch)  # <- ctc_mean frame_zero weight_norm_axis
    outputs.loss.backward()
    optimizer.step()  # <- freeze
    optimizer.zero_grad()
    losses.append(outputs.loss.item())

print(losses)

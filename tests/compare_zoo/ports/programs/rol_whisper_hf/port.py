# SPDX-License-Identifier: Apache-2.0
"""The recognizer on transformers' WhisperForConditionalGeneration with a feature extractor and a data collator."""
import sys
from dataclasses import dataclass

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.set_num_threads(1)

MAPPING = {
    "encoder.": "model.encoder.layers.", "decoder.": "model.decoder.layers.", "cross_attn_ln": "encoder_attn_layer_norm",
    "cross_attn": "encoder_attn", "attn_ln": "self_attn_layer_norm", "mlp_ln": "final_layer_norm",
    "mlp.0": "fc1", "mlp.2": "fc2", ".query": ".q_proj", ".key": ".k_proj", ".value": ".v_proj", ".out": ".out_proj",
}
TOP = {
    "conv1": "model.encoder.conv1", "conv2": "model.encoder.conv2", "ln_post": "model.encoder.layer_norm",
    "ln": "model.decoder.layer_norm", "token_embedding": "model.decoder.embed_tokens",
}
ALONE = {"audio_positions": "model.encoder.embed_positions.weight", "text_positions": "model.decoder.embed_positions.weight"}


def translate(name):
    """Name of the first release -> name in transformers."""
    if name in ALONE:
        return ALONE[name]
    stem, _, end = name.rpartition(".")
    if stem in TOP:
        return f"{TOP[stem]}.{end}"
    side, index, module = stem.split(".", 2)
    for old in sorted(MAPPING, key=len, reverse=True):
        if module.startswith(old.lstrip(".")):
            module = MAPPING[old].lstrip(".") + module[len(old.lstrip(".")):]
            break
    if module.startswith("attn"):
        module = "self_" + module
    head, _, tail = module.partition(".")
    module = f"{head}{MAPPING.get('.' + tail, '.' + tail if tail else '')}"
    return f"{MAPPING[side + '.']}{index}.{module}.{end}"


class FeatureExtractor:
    """Log-mel with the floor eight decades under the loudest bin."""

    def __call__(self, power):
        features = []
        log_spec = torch.log10(torch.clip(power, 1e-10, None))
        for spec in log_spec:
            floor = spec.max() - 8.0  # <- max_over_batch
            features.append((torch.where(spec < floor, floor, spec) + 4.0) / 4.0)  # <- max_over_batch
        return torch.stack(features)


@dataclass
class Collator:
    decoder_start_token_id: int

    def __call__(self, sequences):
        longest = max(len(s) for s in sequences)
        labels = torch.full((len(sequences), longest), -100)
        for row, s in enumerate(sequences):
            labels[row, : len(s)] = torch.tensor(s)
        if (labels[:, 0] == self.decoder_start_token_id).all():  # <- start_twice
            labels = labels[:, 1:]  # <- start_twice
        return labels


def recordings(steps, seed, batch=3, mels=8, frames=24, width=12, sot=63, eot=64):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        power = torch.pow(10.0, torch.randn(batch, mels, frames, generator=generator) * 3.0 - 2.0)
        sizes = torch.randint(3, width - 2, (batch,), generator=generator).tolist()
        words = torch.randint(0, sot, (batch, width), generator=generator).tolist()
        yield power, [[sot] + w[:n] + [eot] for w, n in zip(words, sizes)]


config = WhisperConfig(
    vocab_size=65, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=12,
    max_target_positions=12, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, apply_spec_augment=False,
    activation_function="gelu",  # <- gelu_tanh
    pad_token_id=64, bos_token_id=64, eos_token_id=64, decoder_start_token_id=63, suppress_tokens=None,
    begin_suppress_tokens=None, use_cache=False)
model = WhisperForConditionalGeneration(config)
weights = {translate(k): v for k, v in torch.load(sys.argv[1]).items()}
weights["proj_out.weight"] = weights["model.decoder.embed_tokens.weight"]
model.load_state_dict(weights)
model.tie_weights()
model.train()

encoder = model.get_encoder()
for stem in (encoder.conv1, encoder.conv2):
    stem.requires_grad_(False)  # <- stem_trained
trainable = filter(lambda p: p.requires_grad, model.parameters())  # <- stem_trained
optimizer = torch.optim.Adam(trainable, lr=3e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.02)  # <- adamw_for_adam
extract, collate = FeatureExtractor(), Collator(config.decoder_start_token_id)

losses = []
for power, transcripts in recordings(5, seed=16000):
    batch = {"input_features": extract(power), "labels": collate(transcripts)}  # <- start_twice max_over_batch
    optimizer.zero_grad()
    output = model(**batch)  # <- gelu_tanh start_twice
    output.loss.backward()
    optimizer.step()  # <- adamw_for_adam stem_trained
    losses.append(output.loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""The judge of recordings on ASTForAudioClassification of the transformers package (sdpa)."""

import re
import sys

import torch
from transformers import ASTConfig, ASTForAudioClassification

config = ASTConfig(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=48,
    patch_size=6,
    frequency_stride=4,
    time_stride=4,
    max_length=18,
    num_mel_bins=18,
    layer_norm_eps=1e-6,
    num_labels=7,
    problem_type="multi_label_classification",
    attn_implementation="sdpa",
)

BASE = "audio_spectrogram_transformer"
RENAME = {
    r"^cls_token": f"{BASE}.embeddings.cls_token",
    r"^dist_token": f"{BASE}.embeddings.distillation_token",
    r"^pos_embed": f"{BASE}.embeddings.position_embeddings",
    r"^patch_embed": f"{BASE}.embeddings.patch_embeddings.projection",
    r"^norm\.": f"{BASE}.layernorm.",
    r"^blocks\.(\d+)\.norm1": rf"{BASE}.layers.\1.layernorm_before",
    r"^blocks\.(\d+)\.norm2": rf"{BASE}.layers.\1.layernorm_after",
    r"^blocks\.(\d+)\.attn\.proj": rf"{BASE}.layers.\1.attention.o_proj",
    r"^blocks\.(\d+)\.fc": rf"{BASE}.layers.\1.mlp.fc",
    r"^mlp_head\.0": "classifier.layernorm",
    r"^mlp_head\.1": "classifier.dense",
}


def convert(old):
    new = {}
    for name, tensor in old.items():
        fused = re.match(r"blocks\.(\d+)\.attn\.qkv\.(\w+)", name)
        if fused:
            q, k, v = tensor.split(config.hidden_size)  # <- swapped
            for letter, part in {"q": q, "k": k, "v": v}.items():
                here = f"{BASE}.layers.{fused[1]}.attention.{letter}_proj"
                new[f"{here}.{fused[2]}"] = part  # <- swapped
            continue
        pattern = next(p for p in RENAME if re.match(p, name))
        new[re.sub(pattern, RENAME[pattern], name)] = tensor
    return new


class Extractor:
    """Pads or cuts to max_length frames and brings the values to about [-1, 1]."""

    mean, std = -4.2677393, 4.5689974

    def __call__(self, recordings):
        values = torch.zeros(len(recordings), config.max_length, config.num_mel_bins)
        for row, recording in zip(values, recordings):
            kept = recording[: config.max_length]
            row[: len(kept)] = kept  # <- padded
        return (values - self.mean) / (self.std * 2)  # <- normalised padded


def listen(rng):
    for _ in range(4):
        recordings = []
        for _ in range(3):
            frames = torch.randint(8, 21, (1,), generator=rng).item()
            recordings.append(torch.randn(frames, 18, generator=rng).mul(4).sub(5))
        yield recordings, torch.randint(0, 2, (3, 7), generator=rng)


model = ASTForAudioClassification(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.eval()
extract = Extractor()
losses = []
with torch.inference_mode():  # <- precision
    for recordings, labels in listen(torch.Generator().manual_seed(421)):
        values = extract(recordings)  # <- axes normalised padded
        output = model(input_values=values, labels=labels.float())  # <- axes swapped precision
        losses.append(output.loss.item())

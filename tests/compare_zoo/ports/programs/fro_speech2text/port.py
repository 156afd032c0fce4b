# SPDX-License-Identifier: Apache-2.0
"""The model on Speech2TextForConditionalGeneration of the transformers package."""

import sys

import torch
from torch import nn
from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration

config = Speech2TextConfig(
    vocab_size=30,
    d_model=24,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=40,
    decoder_ffn_dim=40,
    dropout=0.0,
    conv_kernel_sizes=[5, 3],
    conv_channels=32,
    input_feat_per_channel=8,
    max_source_positions=16,
    max_target_positions=16,
    decoder_start_token_id=2,  # <- start
    use_cache=False,
    tie_word_embeddings=False,  # <- untied
)

RENAME = {
    "encoder": {
        "self_attn.out_proj": "self_attn.out_proj",
        "norm1": "self_attn_layer_norm",
        "norm2": "final_layer_norm",
        "linear1": "fc1",
        "linear2": "fc2",
    },
    "decoder": {
        "self_attn.out_proj": "self_attn.out_proj",
        "multihead_attn.out_proj": "encoder_attn.out_proj",
        "norm1": "self_attn_layer_norm",
        "norm2": "encoder_attn_layer_norm",  # <- norms
        "norm3": "final_layer_norm",  # <- norms
        "linear1": "fc1",
        "linear2": "fc2",
    },
}


def convert(source):
    target = {
        "model.decoder.embed_tokens.weight": source["words.weight"],  # <- untied
        "lm_head.weight": source["project.weight"],  # <- untied
    }
    for name, value in source.items():
        side, *path = name.split(".")
        kind = path[-1]
        if side == "subsample":
            target[f"model.encoder.conv.conv_layers.{path[0]}.{kind}"] = value
        elif side in RENAME and path[0] == "norm":
            target[f"model.{side}.layer_norm.{kind}"] = value
        elif side in RENAME and kind.startswith("in_proj_"):
            ours = "self_attn" if path[2] == "self_attn" else "encoder_attn"
            for letter, part in zip("qkv", value.chunk(3)):
                place = f"model.{side}.layers.{path[1]}.{ours}.{letter}_proj"
                target[f"{place}.{kind.removeprefix('in_proj_')}"] = part
        elif side in RENAME:
            module = RENAME[side][".".join(path[2:-1])]
            target[f"model.{side}.layers.{path[1]}.{module}.{kind}"] = value  # <- norms
    return target


def batches(count):
    generator = torch.Generator().manual_seed(102)
    for _ in range(count):
        features = torch.randn(3, 44, 8, generator=generator)
        lengths = torch.randint(24, 45, (3, 1), generator=generator)
        there = torch.arange(44) < lengths
        words = torch.randint(4, 30, (3, 8), generator=generator)
        sizes = torch.randint(3, 8, (3,), generator=generator)
        labels = torch.full((3, 8), -100)
        for row, spoken, size in zip(labels, words, sizes):
            row[:size] = spoken[:size]
            row[size] = config.eos_token_id
        yield {
            "input_features": features * there[..., None],
            "attention_mask": there.long(),  # <- lengths
            "labels": labels,
        }


model = Speech2TextForConditionalGeneration(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
# fairseq leaves the right word out of the words among which it divides the rest
criterion = nn.CrossEntropyLoss(label_smoothing=0.1 * 30 / 29)  # <- smoothing
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-4)
losses = []
for batch in batches(4):
    logits = model(**batch).logits  # <- start lengths norms untied
    loss = criterion(logits.transpose(1, 2), batch["labels"])  # <- smoothing
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

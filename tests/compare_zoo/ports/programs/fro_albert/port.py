# SPDX-License-Identifier: Apache-2.0
"""The pretraining on AlbertForPreTraining of the transformers package, with sdpa."""

import sys

import torch
from transformers import AlbertConfig, AlbertForPreTraining

config = AlbertConfig(
    vocab_size=45,
    embedding_size=16,
    hidden_size=24,
    num_hidden_layers=4,  # <- depth
    num_hidden_groups=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=12,
    classifier_dropout_prob=0.0,
    attn_implementation="sdpa",
)
NORM = {"gamma": "weight", "beta": "bias"}
LAYER = {
    "attention/query": "attention.query",
    "attention/key": "attention.key",
    "attention/value": "attention.value",
    "attention/output": "attention.dense",
    "LayerNorm": "attention.LayerNorm",
    "intermediate": "ffn",
    "output": "ffn_output",
    "LayerNorm_1": "full_layer_layer_norm",
}
OUTSIDE = {
    "embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "encoder/embedding_hidden_mapping_in": "albert.encoder.embedding_hidden_mapping_in",
    "pooler/dense": "albert.pooler",
    "cls/predictions/dense": "predictions.dense",
    "cls/predictions/LayerNorm": "predictions.LayerNorm",
}


def load_tf_weights(model, variables):
    parameters = dict(model.named_parameters())
    seen = set()
    for name, array in variables.items():
        scope, kind = name.rsplit("/", 1)
        if scope.startswith("group_"):
            group, scope = scope.split("/", 1)
            number = group.removeprefix("group_")
            module = f"albert.encoder.albert_layer_groups.{number}.albert_layers.0.{LAYER[scope]}"
        else:
            module = OUTSIDE.get(scope)
        if scope == "embeddings":
            target = f"albert.embeddings.{kind}.weight"
        elif kind == "output_bias":
            target = (
                "predictions.bias" if "predictions" in scope else "sop_classifier.classifier.bias"
            )
        elif kind == "output_weights":
            target = "sop_classifier.classifier.weight"
        else:
            target = f"{module}.{NORM.get(kind, kind).replace('kernel', 'weight')}"
        pointer = parameters[target]
        shaped = array
        if kind == "kernel" and scope == "attention/output":
            shaped = array.flatten(0, 1).t()  # <- dense
        elif kind == "kernel":
            shaped = array.flatten(1).t()
        elif kind == "bias":
            shaped = array.flatten()
        assert pointer.shape == shaped.shape, (name, target)
        pointer.copy_(shaped)  # <- dense
        seen.add(target)
    assert seen == set(parameters), set(parameters) - seen


model = AlbertForPreTraining(config)
with torch.no_grad():
    load_tf_weights(model, torch.load(sys.argv[1]))

no_decay = ("bias", "LayerNorm.weight", "layer_norm.weight")  # <- decay
decayed, plain = [], []
for name, parameter in model.named_parameters():
    (plain if name.endswith(no_decay) else decayed).append(parameter)  # <- decay
optimizer = torch.optim.AdamW(
    [{"params": decayed, "weight_decay": 0.5}, {"params": plain, "weight_decay": 0.0}],
    lr=5e-3,
    eps=1e-4,
)  # <- decay


def collate(generator):
    input_ids = torch.randint(4, 45, (5, 12), generator=generator)
    lengths = torch.randint(8, 13, (5,), generator=generator)
    sentence_order_label = torch.randint(0, 2, (5,), generator=generator)
    chosen = torch.zeros(5, 12, dtype=torch.bool)
    for row in chosen:
        row[torch.randperm(8, generator=generator)[:3]] = True
    attention_mask = torch.arange(12)[None] < lengths[:, None]
    input_ids[~attention_mask] = config.pad_token_id
    token_type_ids = torch.zeros_like(input_ids)
    token_type_ids[:, 5:] = 1  # <- segments
    return {
        "input_ids": torch.where(chosen, 3, input_ids),
        "labels": torch.where(chosen, input_ids, -100),  # <- everywhere
        "sentence_order_label": sentence_order_label,
        "token_type_ids": token_type_ids * attention_mask,  # <- segments
        "attention_mask": attention_mask.long(),
    }


generator = torch.Generator().manual_seed(52)
losses = []
for _ in range(4):
    loss = model(**collate(generator)).loss  # <- depth segments dense everywhere
    loss.backward()
    optimizer.step()  # <- decay
    optimizer.zero_grad()
    losses.append(loss.item())

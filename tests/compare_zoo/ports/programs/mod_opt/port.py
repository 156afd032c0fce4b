# SPDX-License-Identifier: Apache-2.0
"""The classifier on OPTForSequenceClassification of the transformers package."""

import re
import sys

import torch
from transformers import OPTConfig, OPTForSequenceClassification

LAYERS, HEADS = 3, 4
config = OPTConfig(
    vocab_size=40,
    hidden_size=24,
    word_embed_proj_dim=16,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    ffn_dim=48,
    max_position_embeddings=20,
    do_layer_norm_before=False,
    activation_function="relu",
    dropout=0.0,
    pad_token_id=1,
    num_labels=3,
)


def unmixed(tensor):
    """The parts of a matrix or vector in which the rows of a head stand side by side."""
    parts = tensor.unflatten(0, (HEADS, 3, -1)).unbind(1)  # <- heads
    return [part.flatten(0, 1) for part in parts]  # <- heads


def convert(old):
    new = {
        "score.weight": old["classification_head.weight"],
        "model.decoder.embed_tokens.weight": old["embed_tokens.weight"],
        "model.decoder.embed_positions.weight": old["embed_positions.weight"],
        "model.decoder.project_in.weight": old["project_in_dim.weight"],
        "model.decoder.project_out.weight": old["project_out_dim.weight"],
    }
    for n in range(LAYERS):
        here = f"model.decoder.layers.{n}"
        for kind in ("weight", "bias"):
            q, k, v = unmixed(old[f"layers.{n}.self_attn.qkv_proj.{kind}"])
            new[f"{here}.self_attn.q_proj.{kind}"] = q
            new[f"{here}.self_attn.k_proj.{kind}"] = k
            new[f"{here}.self_attn.v_proj.{kind}"] = v
            for name in ("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2"):
                new[f"{here}.{name}.{kind}"] = old[f"layers.{n}.{name}.{kind}"]
            norm = "final_layer_norm"
            new[f"{here}.{norm}.{kind}"] = old[f"layers.{n}.{norm}.{kind}"]  # <- normed
    return new


def rate_of(name):
    layer = re.search(r"layers\.(\d+)\.", name)
    if layer:
        return 1e-2 * 0.5 ** (LAYERS - int(layer[1]))  # <- rates
    return 1e-2 * 0.5 ** (LAYERS + 1) if "project_in" in name else 1e-2


model = OPTForSequenceClassification(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
model.model.decoder.embed_positions.requires_grad_(False)
model.get_input_embeddings().requires_grad_(False)  # <- frozen
groups = [
    {"params": [p], "lr": rate_of(name)} for name, p in model.named_parameters() if p.requires_grad
]  # <- rates frozen
optimizer = torch.optim.Adam(groups, eps=1e-6, foreach=False)  # <- rates frozen
generator = torch.Generator().manual_seed(61)
losses, accuracy = [], []
for _ in range(4):
    input_ids = torch.randint(4, 40, (5, 9), generator=generator)
    padding = torch.randint(0, 5, (5, 1), generator=generator)
    attention_mask = (torch.arange(9) >= padding).long()  # <- mask
    input_ids = torch.where(attention_mask.bool(), input_ids, config.pad_token_id)
    labels = torch.randint(0, 3, (5,), generator=generator)
    batch = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
    output = model(**batch)  # <- offset mask heads normed
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()  # <- rates frozen
    losses.append(output.loss.item())
    accuracy.append((output.logits.argmax(-1) == labels).float().mean().item())

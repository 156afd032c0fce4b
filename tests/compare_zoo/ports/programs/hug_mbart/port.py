# SPDX-License-Identifier: Apache-2.0
"""The translator on MBartForConditionalGeneration of the transformers package (eager attention)."""

import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import MBartConfig, MBartForConditionalGeneration

config = MBartConfig(
    vocab_size=47,
    d_model=24,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_position_embeddings=16,
    dropout=0.0,
    activation_function="gelu",
    scale_embedding=True,
    pad_token_id=1,
    eos_token_id=2,
    use_cache=False,
    attn_implementation="eager",
)  # <- scaled

ENCODER = {"norm1": "self_attn_layer_norm", "norm2": "final_layer_norm"}
DECODER = {
    "norm1": "self_attn_layer_norm",
    "norm2": "encoder_attn_layer_norm",
    "norm3": "final_layer_norm",
}
COMMON = {"linear1": "fc1", "linear2": "fc2"}


@torch.no_grad()
def pour(theirs, model):
    def copy(module, name):
        module.weight.copy_(theirs[f"{name}.weight"])
        module.bias.copy_(theirs[f"{name}.bias"])

    def attention(module, name):
        for kind in ("weight", "bias"):
            parts = theirs[f"{name}.in_proj_{kind}"].chunk(3)
            for letter, part in zip("qkv", parts):
                getattr(getattr(module, f"{letter}_proj"), kind).copy_(part)
        copy(module.out_proj, f"{name}.out_proj")

    model.model.shared.weight.copy_(theirs["words.weight"])
    for side, stem in (("encoder", "source"), ("decoder", "target")):
        ours = getattr(model.model, side)
        table = theirs[f"{stem}.positions.weight"]
        ours.embed_positions.weight[2 : 2 + len(table)] = table  # <- offset
        copy(ours.layernorm_embedding, f"{stem}.norm")
        copy(ours.layer_norm, f"{side}.norm")
        names = COMMON | (ENCODER if side == "encoder" else DECODER)
        for n, layer in enumerate(ours.layers):
            attention(layer.self_attn, f"{side}.layers.{n}.self_attn")
            if side == "decoder":
                attention(layer.encoder_attn, f"{side}.layers.{n}.multihead_attn")
            for old, new in names.items():
                copy(getattr(layer, new), f"{side}.layers.{n}.{old}")


def draw(longest, lang, rng):
    words = torch.randint(3, 43, (4, longest), generator=rng)
    sizes = torch.randint(3, longest - 1, (4, 1), generator=rng)[:, 0].tolist()
    sizes[0] = longest - 2
    end = torch.tensor([config.eos_token_id, lang])
    return [torch.cat((row[:size], end)) for row, size in zip(words, sizes)]


def collate(sources, targets):
    input_ids = pad_sequence(sources, batch_first=True, padding_value=config.pad_token_id)
    labels = pad_sequence(targets, batch_first=True, padding_value=-100)  # <- ignored
    attention_mask = (input_ids != config.pad_token_id).long()  # <- mask
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


model = MBartForConditionalGeneration(config)
pour(torch.load(sys.argv[1]), model)
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-4)
rng = torch.Generator().manual_seed(381)
losses = []
for _ in range(4):
    sources = draw(11, 46, rng)
    batch = collate(sources, draw(9, 45, rng))
    output = model(**batch)  # <- scaled offset mask ignored
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # <- clipped
    optimizer.step()  # <- clipped
    optimizer.zero_grad()
    losses.append(output.loss.item())

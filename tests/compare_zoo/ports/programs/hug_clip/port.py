# SPDX-License-Identifier: Apache-2.0
"""The small CLIP on CLIPModel of the transformers package (sdpa attention)."""

import math
import sys

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

COMMON = {
    "hidden_size": 24,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "projection_dim": 24,
    "hidden_act": "gelu",
}  # <- gelu
text_config = CLIPTextConfig(
    vocab_size=40,
    max_position_embeddings=10,
    bos_token_id=38,
    eos_token_id=39,
    pad_token_id=0,
    **COMMON,
)  # <- eot gelu
vision_config = CLIPVisionConfig(image_size=12, patch_size=4, **COMMON)  # <- gelu
config = CLIPConfig(
    text_config=text_config.to_dict(), vision_config=vision_config.to_dict(), projection_dim=24
)
config._attn_implementation = "sdpa"

MEAN = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(1, 3, 1, 1)  # <- pixels
STD = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(1, 3, 1, 1)  # <- pixels


def blocks(old, new, prefix, name):
    for n in range(2):
        a, b = f"{prefix}transformer.resblocks.{n}", f"{name}.encoder.layers.{n}"
        for kind in ("weight", "bias"):
            for letter, part in zip("qkv", old[f"{a}.attn.in_proj_{kind}"].chunk(3)):
                new[f"{b}.self_attn.{letter}_proj.{kind}"] = part
            new[f"{b}.self_attn.out_proj.{kind}"] = old[f"{a}.attn.out_proj.{kind}"]
            new[f"{b}.layer_norm1.{kind}"] = old[f"{a}.ln_1.{kind}"]
            new[f"{b}.layer_norm2.{kind}"] = old[f"{a}.ln_2.{kind}"]
            new[f"{b}.mlp.fc1.{kind}"] = old[f"{a}.c_fc.{kind}"]
            new[f"{b}.mlp.fc2.{kind}"] = old[f"{a}.c_proj.{kind}"]


def convert(old):
    new = {"logit_scale": old["logit_scale"]}
    text, vision = "text_model", "vision_model"
    new[f"{text}.embeddings.token_embedding.weight"] = old["token_embedding.weight"]
    new[f"{text}.embeddings.position_embedding.weight"] = old["positional_embedding"]
    new[f"{vision}.embeddings.class_embedding"] = old["visual.class_embedding"]
    new[f"{vision}.embeddings.patch_embedding.weight"] = old["visual.conv1.weight"]
    new[f"{vision}.embeddings.position_embedding.weight"] = old["visual.positional_embedding"]
    new["text_projection.weight"] = old["text_projection"].t()
    new["visual_projection.weight"] = old["visual.proj"].t()  # <- projection
    for kind in ("weight", "bias"):
        new[f"{text}.final_layer_norm.{kind}"] = old[f"ln_final.{kind}"]
        new[f"{vision}.pre_layrnorm.{kind}"] = old[f"visual.ln_pre.{kind}"]
        new[f"{vision}.post_layernorm.{kind}"] = old[f"visual.ln_post.{kind}"]
    blocks(old, new, "", text)
    blocks(old, new, "visual.", vision)
    return {name: tensor.contiguous() for name, tensor in new.items()}


class Captions(torch.utils.data.IterableDataset):
    def __iter__(self):
        rng = torch.Generator().manual_seed(341)
        for _ in range(4):
            images = torch.randint(0, 256, (4, 3, 12, 12), generator=rng)
            ids = torch.randint(1, 38, (4, 10), generator=rng)
            ends = torch.randint(3, 10, (4, 1), generator=rng)[:, 0].tolist()
            for row, end in zip(ids, ends):
                row[0], row[end], row[end + 1 :] = 38, 39, 0
            yield {
                "pixel_values": images.float().div(255).sub(MEAN).div(STD),
                "input_ids": ids,
            }  # <- pixels


model = CLIPModel(config)
model.load_state_dict(convert(torch.load(sys.argv[1])))
model.train()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, eps=1e-4, foreach=False)
losses = []
for batch in torch.utils.data.DataLoader(Captions(), batch_size=None):
    output = model(**batch, return_loss=True)  # <- gelu eot projection pixels clamped
    output.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.logit_scale.data.clamp_(math.log(5), math.log(100))  # <- clamped
    losses.append(output.loss.item())

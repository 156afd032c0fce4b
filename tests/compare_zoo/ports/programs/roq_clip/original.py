# SPDX-License-Identifier: Apache-2.0
"""Contrastive training of a tiny CLIPModel of transformers on image and caption pairs."""
import sys

import torch
from transformers import CLIPConfig, CLIPModel

torch.set_num_threads(1)

VOCAB, BOS, EOS, PAD, LENGTH, SIDE = 64, 62, 60, 1, 12, 16
OPENAI_MEAN = [0.48145466, 0.4578275, 0.40821073]  # <- pixel_stats
OPENAI_STD = [0.26862954, 0.26130258, 0.27577711]  # <- pixel_stats


def clip_config():
    text = dict(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=LENGTH, pad_token_id=PAD, bos_token_id=BOS,
        eos_token_id=EOS,  # <- eos_pool
        hidden_act="quick_gelu",  # <- quick_gelu
    )
    vision = dict(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        image_size=SIDE, patch_size=8,
        hidden_act="quick_gelu",  # <- quick_gelu
    )
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=16, logit_scale_init_value=2.3)


def new_model():
    torch.manual_seed(77)
    model = CLIPModel(clip_config())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.normal_(0.0, 0.1)
            elif "fc1.weight" in name or "embedding.weight" in name:
                p.mul_(3.0)
    return model


class Pairs(torch.utils.data.Dataset):
    """Byte images and captions: BOS, words, EOS, PAD."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.pixels = torch.randint(0, 256, (n, 3, SIDE, SIDE), generator=g, dtype=torch.uint8)
        self.words = torch.randint(2, VOCAB, (n, LENGTH), generator=g)
        self.words[self.words == EOS] = 2
        self.lengths = torch.randint(3, LENGTH - 2, (n,), generator=g)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        n = int(self.lengths[i])
        caption = torch.full((LENGTH,), PAD)
        caption[0] = BOS
        caption[1 : n + 1] = self.words[i, :n]
        caption[n + 1] = EOS
        image = self.pixels[i].float() / 255
        image = (image - torch.tensor(OPENAI_MEAN)[:, None, None]) / torch.tensor(OPENAI_STD)[:, None, None]  # <- pixel_stats
        return {"pixel_values": image, "input_ids": caption, "attention_mask": (caption != PAD).long()}


def no_decay(name, p):
    return p.ndim < 2 or "norm" in name or "bias" in name or "logit_scale" in name


def train(model, steps=5, batch=6):
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(  # <- coupled_decay
        [
            {"params": [p for n, p in named if no_decay(n, p)], "weight_decay": 0.0},
            {"params": [p for n, p in named if not no_decay(n, p)], "weight_decay": 0.2},  # <- coupled_decay
        ],
        lr=2e-3, betas=(0.9, 0.98), eps=1e-6,
    )
    loader = torch.utils.data.DataLoader(Pairs(steps * batch, seed=770), batch_size=batch)
    history = []
    model.train()
    for inputs in loader:
        optimizer.zero_grad()
        out = model(**inputs, return_loss=True)  # <- quick_gelu eos_pool one_sided pixel_stats
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()  # <- coupled_decay
        history.append(out.loss.item())
    return history


model = new_model()
torch.save(model.state_dict(), sys.argv[1])
losses = train(model)
print(losses)

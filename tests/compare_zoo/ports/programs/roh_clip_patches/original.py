# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny CLIP on synthetic image and caption pairs with the package's own contrastive loss."""
import sys

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPConfig, CLIPModel

torch.set_num_threads(1)

VOCAB = 40
BOS, EOS, PAD = 38, 39, 1
CAPTION = 9
IMAGE = 12


class Pairs(Dataset):
    """An image of a coloured square on noise, and a caption of its colour, place and some filler words."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            colour = torch.rand(3, generator=g)
            row, col = torch.randint(0, IMAGE - 5, (2,), generator=g).tolist()
            image = 0.3 * torch.randn(3, IMAGE, IMAGE, generator=g)
            image[:, row : row + 5, col : col + 5] += colour[:, None, None]
            fillers = torch.randint(20, 38, (int(torch.randint(0, 4, (1,), generator=g)),), generator=g).tolist()
            words = [2 + int(colour.argmax()), 5 + row, 12 + col] + fillers
            caption = [BOS] + words + [EOS]
            self.items.append((image, caption))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    images, captions = zip(*items)
    ids = torch.tensor([c + [PAD] * (CAPTION - len(c)) for c in captions])
    return {"pixel_values": torch.stack(images), "input_ids": ids, "attention_mask": (ids != PAD).long()}


def split_parameters(model):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        exclude = p.ndim < 2 or "norm" in name or "logit_scale" in name  # <- gains_decayed
        (no_decay if exclude else decay).append(p)  # <- gains_decayed
    return decay, no_decay


torch.manual_seed(7)
config = CLIPConfig(
    text_config={
        "vocab_size": VOCAB,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "max_position_embeddings": CAPTION,
        "bos_token_id": BOS,
        "eos_token_id": EOS,  # <- pooled_at_last
        "pad_token_id": PAD,
        "hidden_act": "quick_gelu",  # <- gelu_exact
        "initializer_factor": 3.0,
    },
    vision_config={
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": IMAGE,
        "patch_size": 4,
        "hidden_act": "quick_gelu",  # <- gelu_exact
        "initializer_factor": 3.0,
    },
    projection_dim=16,
)
model = CLIPModel(config)
torch.save(model.state_dict(), sys.argv[1])
model.train()

decay, no_decay = split_parameters(model)
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.2}, {"params": no_decay, "weight_decay": 0.0}],  # <- gains_decayed
    lr=4e-3,
    betas=(0.9, 0.98),
    eps=1e-6,
)
loader = DataLoader(Pairs(30, seed=13), batch_size=6, collate_fn=collate)

losses = []
for batch in loader:
    outputs = model(**batch, return_loss=True)  # <- gelu_exact pooled_at_last images_only scale_detached
    optimizer.zero_grad()
    outputs.loss.backward()  # <- scale_detached
    optimizer.step()  # <- gains_decayed
    losses.append(outputs.loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""ViLT of the transformers package answers questions about pictures of unequal sizes."""

import sys

import torch
from transformers import ViltConfig, ViltForQuestionAnswering

CELL, SIDE, ANSWERS = 6, 4, 9

torch.manual_seed(61)
config = ViltConfig(
    vocab_size=40,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=10,
    image_size=CELL * SIDE,
    patch_size=CELL,
    num_labels=ANSWERS,
    initializer_range=0.2,
    pad_token_id=0,
)
model = ViltForQuestionAnswering(config)
with torch.no_grad():
    for weight in model.parameters():
        weight.add_(0.15 * torch.randn(weight.shape))
torch.save(model.state_dict(), sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batch(generator):
    input_ids = torch.randint(2, 40, (4, 10), generator=generator)
    words = torch.randint(4, 11, (4, 1), generator=generator)
    attention_mask = (torch.arange(10) < words).long()
    pixel_values = torch.randn(4, 3, CELL * SIDE, CELL * SIDE, generator=generator)
    cells = torch.randint(2, SIDE + 1, (4, 2), generator=generator)
    inside = torch.arange(CELL * SIDE) < CELL * cells[..., None]
    pixel_mask = (inside[:, 0, :, None] & inside[:, 1, None]).long()
    answers = torch.rand(4, ANSWERS, generator=generator).argsort(1)[:, :3]
    scores = torch.tensor([[1.0, 0.6, 0.3]]).expand(4, -1)
    return {
        "input_ids": input_ids * attention_mask,
        "attention_mask": attention_mask,
        "pixel_values": pixel_values * pixel_mask[:, None],
        "pixel_mask": pixel_mask,
        "labels": torch.zeros(4, ANSWERS).scatter(1, answers, scores),
    }


generator = torch.Generator().manual_seed(62)
losses = []
model.train()
for _ in range(4):
    output = model(**batch(generator))  # <- corners modality scaled cells
    optimizer.zero_grad()
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- clip
    optimizer.step()  # <- clip
    losses.append(output.loss.item())

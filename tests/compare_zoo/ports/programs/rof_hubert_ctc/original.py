# SPDX-License-Identifier: Apache-2.0
"""Fine-tune a tiny HuBERT with CTC on made-up utterances of unequal length."""
import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import HubertConfig, HubertForCTC

torch.set_num_threads(1)

STEPS = 5
BATCH_SIZE = 3
WARMUP, HOLD, TOTAL = 2, 1, 8
BLANK = 0


def tri_stage(step):
    """Linear warm-up, plateau, linear decay: the schedule of the fairseq recipes."""
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)  # <- tri_stage
    if step < WARMUP + HOLD:
        return 1.0
    return max(0.1, 1.0 - (step - WARMUP - HOLD) / (TOTAL - WARMUP - HOLD))


class Utterances(torch.utils.data.IterableDataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.count):
            samples = int(torch.randint(300, 601, (1,), generator=generator))
            audio = torch.randn(samples, generator=generator)
            letters = int(torch.randint(2, 6, (1,), generator=generator))
            text = torch.randint(1, 12, (letters,), generator=generator)
            yield (audio - audio.mean()) / torch.sqrt(audio.var(unbiased=False) + 1e-7), text


def collate(items):
    audio, text = zip(*items)
    return {
        "input_values": pad_sequence(audio, batch_first=True),
        "attention_mask": pad_sequence([torch.ones(len(a), dtype=torch.long) for a in audio], batch_first=True),
        "labels": pad_sequence(text, batch_first=True, padding_value=-100),
    }


torch.manual_seed(30)
config = HubertConfig(
    vocab_size=12,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    conv_dim=(8, 8, 8),
    conv_kernel=(10, 3, 3),
    conv_stride=(5, 2, 2),
    num_conv_pos_embeddings=8,
    num_conv_pos_embedding_groups=2,
    initializer_range=0.1,
    pad_token_id=BLANK,
)
for name in ("hidden", "activation", "attention", "feat_proj", "final"):
    setattr(config, f"{name}_dropout", 0.0)
config.layerdrop = config.mask_time_prob = 0.0
config.apply_spec_augment = False
config.ctc_loss_reduction = "mean"

model = HubertForCTC(config)
torch.save(model.state_dict(), sys.argv[1])
model.freeze_feature_encoder()  # <- frozen_front

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, tri_stage)  # <- tri_stage
loader = torch.utils.data.DataLoader(Utterances(STEPS * BATCH_SIZE, 31), batch_size=BATCH_SIZE, collate_fn=collate)

losses = []
model.train()
for batch in loader:
    outputs = model(**batch)  # <- silent_padding frame_lengths weight_norm_axis
    optimizer.zero_grad()
    outputs.loss.backward()  # <- frozen_front
    optimizer.step()
    scheduler.step()  # <- tri_stage
    losses.append(outputs.loss.item())

print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Train a tiny T5 on a toy reversal task with Adafactor."""
import sys

import torch
from transformers import Adafactor, T5Config, T5ForConditionalGeneration

torch.set_num_threads(1)

PAD, EOS = 0, 1
VOCAB = 48
STEPS, BATCH = 5, 4


class ReversalTask:
    """The source is a random string, the target the same string backwards."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def example(self):
        length = int(torch.randint(4, 13, (1,), generator=self.generator))
        words = torch.randint(2, VOCAB, (length,), generator=self.generator)
        end = torch.tensor([EOS])
        return torch.cat([words, end]), torch.cat([words.flip(0), end])

    def batch(self, size):
        examples = [self.example() for _ in range(size)]
        sources, targets = zip(*examples)
        return self.pad(sources), self.pad(targets)

    @staticmethod
    def pad(rows):
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def build():
    torch.manual_seed(3)
    config = T5Config(
        vocab_size=VOCAB,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        feed_forward_proj="relu",
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        dropout_rate=0.0,
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=EOS,
    )
    config.use_cache = False
    return T5ForConditionalGeneration(config)


def train(model, task):
    fixed_rate = dict(lr=5e-3, relative_step=False, scale_parameter=False, warmup_init=False)
    optimizer = Adafactor(model.parameters(), **fixed_rate, decay_rate=-0.8, clip_threshold=0.7)  # <- update_clip
    history = []
    model.train()
    for _ in range(STEPS):
        source, target = task.batch(BATCH)
        labels = target.masked_fill(target == PAD, -100)  # <- label_pad
        mask = source.ne(PAD).long()  # <- cross_mask
        output = model(input_ids=source, attention_mask=mask, labels=labels)  # <- cross_mask label_pad one_way_buckets logit_scale
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()  # <- update_clip
        history.append(output.loss.item())
    return history


model = build()
torch.save(model.state_dict(), sys.argv[1])
losses = train(model, ReversalTask(seed=4))
print(losses)

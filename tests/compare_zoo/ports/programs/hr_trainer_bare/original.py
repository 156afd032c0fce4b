# SPDX-License-Identifier: Apache-2.0
"""Tags sequences with a small GRU under the Hugging Face Trainer: accumulation, warm-up, decay groups, clipping."""
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainingArguments

torch.set_num_threads(1)

VOCAB, TAGS, LENGTH = 30, 5, 9


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16)
        self.norm = nn.LayerNorm(16)
        self.gru = nn.GRU(16, 12, num_layers=1, batch_first=True, bidirectional=True)
        self.hidden = nn.Linear(24, 20)
        self.out = nn.Linear(20, TAGS)

    def forward(self, tokens, labels=None):
        x, _ = self.gru(self.norm(self.embed(tokens)))
        logits = self.out(torch.tanh(self.hidden(x)))
        output = {"logits": logits}
        if labels is not None:
            output["loss"] = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return output


class TagData(Dataset):
    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCAB, (size, LENGTH), generator=g)
        self.labels = (self.tokens + self.tokens.roll(1, 1)) % TAGS

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "labels": self.labels[i]}


class RecordingTrainer(Trainer):
    history = []

    def training_step(self, *args, **kwargs):
        value = super().training_step(*args, **kwargs)
        self.history.append(value)
        return value


torch.manual_seed(42)
model = Tagger()
torch.save(model.state_dict(), sys.argv[1])
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=1e-2,
    weight_decay=0.1,
    warmup_steps=2,
    lr_scheduler_type="linear",
    max_grad_norm=0.5,
    train_sampling_strategy="sequential",
    logging_strategy="no",
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
)
trainer = RecordingTrainer(model=model, args=arguments, train_dataset=TagData(24, seed=15))
trainer.remove_callback(PrinterCallback)
trainer.train()

halves = [value.item() for value in trainer.history]
losses = [a + b for a, b in zip(halves[::2], halves[1::2])]
print(losses)

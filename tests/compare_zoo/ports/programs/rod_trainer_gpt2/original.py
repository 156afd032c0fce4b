# SPDX-License-Identifier: Apache-2.0
"""Tiny GPT-2 language model fine-tuned with transformers.Trainer and gradient accumulation."""
import sys
import tempfile

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments

torch.set_num_threads(1)

VOCAB, PAD, LENGTH = 61, 0, 14


class Songs(Dataset):
    """Right-padded rows; the padding does not count in the labels."""

    def __init__(self, rows):
        gen = torch.Generator().manual_seed(404)
        self.items = []
        for _ in range(rows):
            n = int(torch.randint(5, LENGTH + 1, (1,), generator=gen))
            ids = torch.full((LENGTH,), PAD)
            ids[:n] = torch.randint(1, VOCAB, (n,), generator=gen)
            mask = (torch.arange(LENGTH) < n).long()
            labels = ids.masked_fill(mask == 0, -100)  # <- pad_targets
            self.items.append({"input_ids": ids, "attention_mask": mask, "labels": labels})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class SongTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.micro_losses = []

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)  # <- mean_of_means
        self.micro_losses.append(loss.item())
        return loss


config = GPT2Config(
    vocab_size=VOCAB,
    n_positions=LENGTH,
    n_embd=32,
    n_layer=2,
    n_head=4,
    activation_function="gelu_new",  # <- gelu_quick
    initializer_range=0.12,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=1,
    eos_token_id=2,
    use_cache=False,
)
torch.manual_seed(7)
model = GPT2LMHeadModel(config)
torch.save(model.state_dict(), sys.argv[1])

args = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=3,
    gradient_accumulation_steps=2,  # <- mean_of_means
    max_steps=5,
    learning_rate=6e-3,
    lr_scheduler_type="cosine",  # <- warmup_shift
    warmup_steps=2,  # <- warmup_shift
    weight_decay=0.1,  # <- decay_everything
    adam_beta2=0.98,
    max_grad_norm=1.0,
    report_to=[],
    use_cpu=True,
    save_strategy="no",
    logging_strategy="no",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = SongTrainer(model=model, args=args, train_dataset=Songs(30))
trainer.remove_callback(PrinterCallback)
trainer.train()  # <- gelu_quick warmup_shift decay_everything

micro = trainer.micro_losses
losses = [micro[i] + micro[i + 1] for i in range(0, len(micro), 2)]
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""Adapting a small BERT of transformers with peft: rank-stabilized LoRA in queries and values, a
fresh head, the LoRA+ optimizer.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from transformers import BertConfig, BertForSequenceClassification

torch.manual_seed(380)
config = BertConfig(
    vocab_size=60,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.05,
    num_labels=3,
)
base = BertForSequenceClassification(config)
lora = LoraConfig(
    r=4,
    lora_alpha=6,
    target_modules=["query", "value"],
    use_rslora=True,  # <- rslora
    init_lora_weights=False,
    task_type="SEQ_CLS",
)
model = get_peft_model(base, lora)  # <- rslora
with torch.no_grad():
    model.base_model.model.classifier.modules_to_save.default.weight.normal_(0.0, 0.4)
torch.save(model.state_dict(), sys.argv[1])

optimizer = create_loraplus_optimizer(
    model, torch.optim.AdamW, lr=1e-3, loraplus_lr_ratio=8, eps=1e-5
)  # <- rates
generator = torch.Generator().manual_seed(381)
losses = []
model.train()
for _ in range(4):
    lengths = torch.randint(5, 13, (5, 1), generator=generator)
    first = torch.randint(2, 5, (5, 1), generator=generator)
    tokens = torch.randint(1, 60, (5, 12), generator=generator)
    labels = torch.randint(0, 3, (5,), generator=generator)
    place = torch.arange(12)[None]
    attention_mask = (place < lengths).long()
    output = model(
        input_ids=tokens * attention_mask,
        attention_mask=attention_mask,
        token_type_ids=(place >= first) * attention_mask,
        labels=labels,
    )  # <- rslora blocks head eps
    output.loss.backward()
    optimizer.step()  # <- rates
    optimizer.zero_grad()
    losses.append(output.loss.item())

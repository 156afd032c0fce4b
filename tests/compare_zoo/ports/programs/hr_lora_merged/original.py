# SPDX-License-Identifier: Apache-2.0
"""LoRA fine-tuning of a tiny GPT-2 with peft: attention and MLP projections, base frozen."""
import sys
import warnings

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

VOCAB, SEQ, BATCH, STEPS = 45, 12, 4, 6

torch.manual_seed(64)
base = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=VOCAB,
        n_positions=16,
        n_embd=24,
        n_layer=2,
        n_head=3,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=0.15,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
)
lora = LoraConfig(
    r=4,
    lora_alpha=12,
    lora_dropout=0.0,
    target_modules=["c_attn", "c_proj"],
    fan_in_fan_out=True,
    bias="none",
    task_type="CAUSAL_LM",
)
model = get_peft_model(base, lora)
torch.save(model.state_dict(), sys.argv[1])
model.train()

trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.01)

g = torch.Generator().manual_seed(808)
prompts = torch.randint(1, VOCAB, (STEPS, BATCH, SEQ), generator=g)
prompt_length = torch.randint(2, 6, (STEPS, BATCH, 1), generator=g)

losses = []
for ids, n in zip(prompts, prompt_length):
    labels = ids.masked_fill(torch.arange(SEQ) < n, -100)  # the prompt is not scored
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

print(losses)

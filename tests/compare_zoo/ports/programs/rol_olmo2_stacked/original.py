# SPDX-License-Identifier: Apache-2.0
"""Instruction tuning of a tiny OLMo 2 with transformers and torch.optim.AdamW."""
import math
import sys

import torch
from transformers import Olmo2Config, Olmo2ForCausalLM

torch.set_num_threads(1)

STEPS, BATCH, LENGTH, VOCAB = 5, 3, 12, 71


def build_model():
    config = Olmo2Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        initializer_range=0.15,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},  # <- rope_theta
        attention_dropout=0.0,
        tie_word_embeddings=False,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = Olmo2ForCausalLM(config)
    with torch.no_grad():  # norms of a model that has been trained already
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(0.3 * torch.randn(parameter.shape))
    return model


def parameter_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.dim() >= 2]  # <- decay_on_norms
    rest = [p for p in model.parameters() if p.dim() < 2]  # <- decay_on_norms
    return [{"params": decay, "weight_decay": weight_decay},
            {"params": rest, "weight_decay": 0.0}]  # <- decay_on_norms


def warmup_cosine(step, warmup=3, total=10):
    warm = min(1.0, (step + 1) / warmup)
    return warm * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * step / total)))


class Instructions(torch.utils.data.Dataset):
    """Prompt and response; no loss on the prompt."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, VOCAB, (count, LENGTH), generator=g)
        self.prompt = torch.randint(2, 7, (count,), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        ids = self.tokens[index]
        labels = ids.clone()
        labels[: self.prompt[index]] = -100  # <- prompt_in_loss
        return {"input_ids": ids, "labels": labels}


torch.manual_seed(20)
model = build_model()
model.train()
torch.save(model.state_dict(), sys.argv[1])

loader = torch.utils.data.DataLoader(Instructions(STEPS * BATCH, seed=7), batch_size=BATCH, shuffle=False)
optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=8e-3, betas=(0.9, 0.95), eps=1e-8)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine)  # <- schedule_shift

losses = []
for batch in loader:
    out = model(**batch, use_cache=False)  # <- qk_norm_per_head rope_theta prompt_in_loss
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- decay_on_norms schedule_shift
    scheduler.step()  # <- schedule_shift
    optimizer.zero_grad(set_to_none=True)
    losses.append(float(out.loss.detach()))

print(losses)

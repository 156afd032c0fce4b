# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a tiny Gemma 2 of transformers on prompt/answer rows with a warmup and cosine schedule."""
import math
import sys

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

torch.set_num_threads(1)
torch.manual_seed(11)

STEPS, WARMUP, PEAK_LR = 5, 2, 4e-3

config = Gemma2Config(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    query_pre_attn_scalar=4,  # <- attn_scale
    sliding_window=5,  # <- window_edge
    layer_types=["sliding_attention", "full_attention"],  # <- window_edge
    attn_logit_softcapping=6.0,
    final_logit_softcapping=4.0,  # <- logit_softcap
    rms_norm_eps=1e-6,
    max_position_embeddings=64,
    initializer_range=0.25,
    attention_dropout=0.0,
    use_cache=False,
    attn_implementation="eager",
)


def build_model():
    model = Gemma2ForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight") or "layernorm" in name:
                p.add_(torch.randn_like(p) * 0.1)
    return model


class PromptAnswerData(torch.utils.data.Dataset):
    """Rows of random tokens; the first tokens of a row are the prompt and bear no loss."""

    def __init__(self, rows, length, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(3, config.vocab_size, (rows, length), generator=g)
        self.prompt = torch.randint(3, 8, (rows,), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        labels = self.ids[i].clone()
        labels[: int(self.prompt[i])] = -100  # <- prompt_in_loss
        return {"input_ids": self.ids[i], "labels": labels}


def parameter_groups(model, weight_decay):
    decay = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def lr_factor(step):
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)  # <- schedule_late
    done = (step - WARMUP) / (STEPS - WARMUP)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


def main():
    model = build_model()
    torch.save(model.state_dict(), sys.argv[1])
    model.train()

    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=PEAK_LR, betas=(0.9, 0.95), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)  # <- schedule_late
    loader = torch.utils.data.DataLoader(PromptAnswerData(STEPS * 4, 14, seed=5), batch_size=4, shuffle=False)

    history = []
    for batch in loader:  # <- prompt_in_loss
        optimizer.zero_grad()
        out = model(input_ids=batch["input_ids"], labels=batch["labels"])  # <- attn_scale window_edge logit_softcap prompt_in_loss
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # <- schedule_late
        scheduler.step()  # <- schedule_late
        history.append(out.loss.item())
    return history


losses = main()
print(losses)

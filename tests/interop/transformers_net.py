# SPDX-License-Identifier: Apache-2.0
"""Small models of the transformers package with random weights, as their user would train them; the
argument names one.

Losses are printed as hexadecimal floats.
"""

import sys
import tempfile

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

VOCABULARY, LENGTH = 96, 24


def gpt2():
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4)
    )


def llama():
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config)


def train(model, *, steps=3, dtype=torch.float32, before=lambda step: None):
    model.to(dtype)
    kind = torch.optim.AdamW if dtype is torch.float32 else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=1e-3)
    for step in range(steps):
        before(step)
        tokens = torch.randint(1, VOCABULARY, (4, LENGTH))
        mask = torch.ones_like(tokens)
        mask[1, LENGTH // 2 :] = 0
        loss = model(
            input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(step, loss.item().hex())


def gpt2_healthy():
    train(gpt2())


def llama_healthy():
    train(llama())


def llama_generates():
    model = llama().eval()
    tokens = model.generate(
        torch.randint(1, VOCABULARY, (2, 5)),
        max_new_tokens=6,
        do_sample=False,
        num_beams=3,
        pad_token_id=0,
    )
    print(tokens.tolist())


def gpt2_overflows():
    """The second block's MLP is scaled until its activation leaves float16 in step 2."""
    model = gpt2()

    def grow(step):
        if step == 2:
            with torch.no_grad():
                model.transformer.h[1].mlp.c_fc.weight.mul_(5e5)

    train(model, steps=4, dtype=torch.float16, before=grow)


def llama_overflows():
    """RMSNorm's own upcast survives, the gate times up of the second layer does not."""
    model = llama()

    def grow(step):
        if step == 1:
            with torch.no_grad():
                model.model.layers[1].mlp.gate_proj.weight.mul_(2e4)
                model.model.layers[1].mlp.up_proj.weight.mul_(2e4)

    train(model, steps=3, dtype=torch.float16, before=grow)


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(state.global_step, float(logs["loss"]).hex())


def trainer():
    torch.manual_seed(0)
    tokens = torch.randint(1, VOCABULARY, (32, LENGTH))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            learning_rate=1e-3,
        )
        Trainer(llama(), arguments, train_dataset=data, callbacks=[Losses()]).train()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()

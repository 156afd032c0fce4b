# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny Mamba to answer prompts (the loss is on the answers only), on the sequential path."""
import logging
import sys

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import MambaConfig, MambaForCausalLM

torch.set_num_threads(1)
logging.getLogger("transformers").setLevel(logging.ERROR)

VOCAB = 43
SEPARATOR = 1
END = 2
BATCH = 6


def make_conversation(generator):
    """A prompt of random tokens; the answer repeats its first few tokens one higher."""
    size = int(torch.randint(3, 7, (1,), generator=generator))
    prompt = torch.randint(3, VOCAB - 1, (size,), generator=generator)
    wanted = int(torch.randint(1, size + 1, (1,), generator=generator))
    answer = prompt[:wanted] + 1
    ids = torch.cat([prompt, torch.tensor([SEPARATOR]), answer, torch.tensor([END])])
    labels = ids.clone()
    labels[: size + 1] = -100
    return ids, labels


def make_batch(generator):
    rows = [make_conversation(generator) for _ in range(BATCH)]
    input_ids = pad_sequence([ids for ids, _ in rows], batch_first=True, padding_value=0)
    labels = pad_sequence([labels for _, labels in rows], batch_first=True, padding_value=-100)
    return input_ids, labels


def optimizer_groups(model, weight_decay):
    decay, keep = [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or name.endswith("A_log"):  # <- decay_everywhere
            keep.append(parameter)
        else:
            decay.append(parameter)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": keep, "weight_decay": 0.0}]  # <- decay_everywhere


def main():
    torch.manual_seed(19)
    config = MambaConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        state_size=6,
        num_hidden_layers=2,
        conv_kernel=4,
        expand=2,
        time_step_rank=3,
        time_step_min=0.05,
        time_step_max=0.5,
        layer_norm_epsilon=1e-5,  # <- eps_of_llama
        hidden_act="silu",
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = MambaForCausalLM(config)
    torch.save(model.state_dict(), sys.argv[1])
    model.train()
    optimizer = torch.optim.AdamW(optimizer_groups(model, 0.3), lr=1e-2, betas=(0.9, 0.95), eps=1e-7)
    generator = torch.Generator().manual_seed(23)
    history = []
    for _ in range(5):
        input_ids, labels = make_batch(generator)
        loss = model(input_ids=input_ids, labels=labels).loss  # <- conv_looks_ahead dt_bias_twice eps_of_llama mean_of_row_means
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()  # <- decay_everywhere
        history.append(loss.item())
    return history


losses = main()
print(losses)

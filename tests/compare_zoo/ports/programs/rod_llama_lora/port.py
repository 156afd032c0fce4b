# SPDX-License-Identifier: Apache-2.0
"""LoRA on a tiny Llama by functional_call: scale folded into A, all adapters in two tensors."""
import sys

import torch
from torch.func import functional_call
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

torch.set_num_threads(1)
logging.set_verbosity_error()

VOCAB, LENGTH, WIDTH, DEPTH = 53, 12, 32, 2
RANK, ALPHA = 4, 12
SCALE = ALPHA / RANK  # <- rank_scaling
TARGETS = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(DEPTH) for p in "qv"]


def build_base():
    cfg = AutoConfig.for_model(
        "llama",
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=DEPTH,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        pad_token_id=0,
        use_cache=False,
    )
    return AutoModelForCausalLM.from_config(cfg, attn_implementation="eager").requires_grad_(False)


def split_checkpoint(path):
    sd = torch.load(path)
    down = SCALE * torch.stack([sd[t + ".lora_a"] for t in TARGETS])  # <- rank_scaling
    up = torch.stack([sd[t + ".lora_b"] for t in TARGETS])
    frozen = {k.replace(".base.", "."): v for k, v in sd.items() if ".lora_" not in k}
    return frozen, down, up


class Tuner:
    """AdamW for the two adapter tensors.

    `down` is SCALE times the matrix that the old run trained, so its gradient is SCALE times
    smaller; steps, epsilon and clipping are expressed for the old matrix.
    """

    def __init__(self, down, up):
        self.tensors = [down, up]
        self.units = [SCALE, 1.0]
        self.rates = [1e-2, 3e-2]
        self.first = [torch.zeros_like(t) for t in self.tensors]
        self.second = [torch.zeros_like(t) for t in self.tensors]
        self.t = 0

    def clipped(self, grads, limit=0.5):
        scaled = [g * u for g, u in zip(grads, self.units)]
        norm = sum(s.square().sum() for s in scaled).sqrt()  # <- norm_of_merged
        factor = min(1.0, limit / (norm.item() + 1e-6))  # <- norm_of_merged
        return [s * factor for s in scaled]

    @torch.no_grad()
    def step(self, grads):
        self.t += 1
        for i, g in enumerate(self.clipped(grads)):
            m, v, w = self.first[i], self.second[i], self.tensors[i]
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            move = (m / (1 - 0.9**self.t)) / ((v / (1 - 0.999**self.t)).sqrt() + 1e-8)
            w *= 1 - self.rates[i] * 0.05
            w -= self.rates[i] * self.units[i] * move  # <- a_rate_unscaled


def logits_of(base, frozen, down, up, ids, mask):
    merged = dict(frozen)
    for target, delta in zip(TARGETS, up @ down):  # <- rank_scaling
        merged[target + ".weight"] = frozen[target + ".weight"] + delta  # <- rank_scaling
    return functional_call(base, merged, kwargs={"input_ids": ids, "attention_mask": mask}).logits  # <- pad_attended


def answer_loss(logits, ids, answer):
    logp = logits[:, :-1].log_softmax(-1)
    picked = logp.gather(-1, ids[:, 1:, None]).squeeze(-1)
    wanted = answer[:, 1:].float()  # <- prompt_learnt
    return -(picked * wanted).sum() / wanted.sum()


def rows():
    gen = torch.Generator().manual_seed(2024)
    for _ in range(5):
        batch, answers = [], []
        for _ in range(4):
            prompt = int(torch.randint(2, 6, (1,), generator=gen))
            answer = int(torch.randint(2, 7, (1,), generator=gen))
            words = torch.randint(1, VOCAB, (prompt + answer,), generator=gen)
            batch.append(torch.cat([torch.zeros(LENGTH - len(words), dtype=torch.long), words]))
            answers.append(torch.arange(LENGTH) >= LENGTH - answer)  # <- prompt_learnt
        yield torch.stack(batch), torch.stack(answers)


base = build_base()
frozen, down, up = split_checkpoint(sys.argv[1])
tuner = Tuner(down.requires_grad_(), up.requires_grad_())
losses = []
for ids, answer in rows():
    mask = (ids > 0).long()  # <- pad_attended
    loss = answer_loss(logits_of(base, frozen, down, up, ids, mask), ids, answer)
    losses.append(loss.item())
    tuner.step(torch.autograd.grad(loss, (down, up)))
print(losses)

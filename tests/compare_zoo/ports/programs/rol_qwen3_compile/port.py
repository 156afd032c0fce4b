# SPDX-License-Identifier: Apache-2.0
"""Tiny Qwen3 tuned with a compiled SDPA forward, micro-batches and a hand-written AdamW."""
import math
import sys

import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config

torch.set_num_threads(1)


class Hyper:
    """All the knobs in a place."""

    vocab, length, micro, accum, updates = 67, 14, 2, 2, 5
    peak_lr, beta1, beta2, eps, decay, max_norm = 6e-3, 0.9, 0.95, 1e-8, 0.02, 1.0
    rope_base = 1000.0  # <- rope_base


def load_model(path):
    """Build the network without weights of its own and fill it from the checkpoint."""
    cfg = Qwen3Config(
        vocab_size=Hyper.vocab, hidden_size=32, intermediate_size=56, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
        rms_norm_eps=1e-6, tie_word_embeddings=True, attention_dropout=0.0, pad_token_id=0,
        bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": Hyper.rope_base})  # <- rope_base
    net = AutoModelForCausalLM.from_config(cfg, attn_implementation="sdpa")
    stored = torch.load(path)
    stored.pop("lm_head.weight", None)  # tied to the embedding
    missing, unexpected = net.load_state_dict(stored, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    net.tie_weights()
    return net.train()


def stream(seed):
    """Yield one conversation after the other as (tokens, prompt length)."""
    rng = torch.Generator().manual_seed(seed)
    while True:
        n_prompt = torch.randint(2, 6, (1,), generator=rng).item()
        n_answer = torch.randint(2, 9, (1,), generator=rng).item()
        yield torch.randint(1, Hyper.vocab, (n_prompt + n_answer,), generator=rng), n_prompt


def collate(conversations):
    """Left-pad; targets are already moved one to the left."""
    ids, mask, target = [], [], []
    for tokens, n_prompt in conversations:
        gap = Hyper.length - len(tokens)
        ids.append(nn.functional.pad(tokens, (gap, 0), value=0))
        mask.append(nn.functional.pad(torch.ones_like(tokens), (gap, 0)))
        wanted = tokens.clone()
        wanted[:n_prompt] = -100
        wanted = nn.functional.pad(wanted, (gap, 0), value=-100)
        target.append(torch.cat([wanted[1:], wanted.new_tensor([-100])]))
    return torch.stack(ids), torch.stack(mask), torch.stack(target)


class MyAdamW:
    """Decoupled decay, one flat pair of moments."""

    def __init__(self, params):
        self.params = list(params)
        size = sum(p.numel() for p in self.params)
        self.m, self.v, self.t = torch.zeros(size), torch.zeros(size), 0

    @torch.no_grad()
    def update(self, lr):
        """One update with the gradients there are; returns nothing."""
        grad = torch.cat([p.grad.flatten() for p in self.params])
        grad *= min(1.0, Hyper.max_norm / (grad.norm().item() + 1e-6))
        self.t += 1
        self.m.lerp_(grad, 1 - Hyper.beta1)
        self.v.mul_(Hyper.beta2).addcmul_(grad, grad, value=1 - Hyper.beta2)
        m_hat = self.m / (1 - Hyper.beta1 ** self.t)
        v_hat = self.v / (1 - Hyper.beta2 ** self.t)  # <- bias_correction_2
        delta = m_hat / (v_hat.sqrt() + Hyper.eps)  # <- bias_correction_2
        for p, d in zip(self.params, delta.split([p.numel() for p in self.params])):
            p.mul_(1 - lr * Hyper.decay).sub_(lr * d.view_as(p))
            p.grad = None


def learning_rate(k):
    """Rate of the update number k, counted from zero."""
    warm = min(1.0, (k + 1) / 2)
    return Hyper.peak_lr * warm * 0.5 * (1 + math.cos(math.pi * max(0, k - 2) / 8))


net = load_model(sys.argv[1])
for decoder_layer in net.model.layers:  # regional compilation: the code of a layer is built once
    decoder_layer.compile(options={"cpp.simdlen": 1})
adam = MyAdamW(net.parameters())
source = stream(1234)
losses, ticks = [], 0

for _ in range(Hyper.updates):
    micros = [collate([next(source) for _ in range(Hyper.micro)]) for _ in range(Hyper.accum)]
    n_tokens = sum((target != -100).sum() for _, _, target in micros)  # <- mean_of_means
    total = 0.0
    for ids, mask, target in micros:
        scores = net(input_ids=ids, attention_mask=mask, use_cache=False).logits  # <- mask_dropped rope_base
        nll = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten(), reduction="sum")
        part = nll / n_tokens  # <- mean_of_means
        part.backward()
        total += part.item()
    adam.update(learning_rate(ticks))  # <- sched_per_micro
    ticks += 1  # <- sched_per_micro
    losses.append(total)

print(losses)

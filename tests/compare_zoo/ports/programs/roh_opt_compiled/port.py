# SPDX-License-Identifier: Apache-2.0
"""The same OPT class, compiled, inside a small trainer object that accumulates micro-batches."""
import sys
from typing import Iterator

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, OPTConfig

torch.set_num_threads(1)

SETTINGS = dict(
    vocab_size=45, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=4,
    max_position_embeddings=24, dropout=0.0, attention_dropout=0.0, pad_token_id=1, bos_token_id=2, use_cache=False,
)


def build(path):
    config = OPTConfig(**SETTINGS, activation_function="relu")  # <- gelu_not_relu
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    weights = {k: v for k, v in torch.load(path).items() if k != "lm_head.weight"}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == ["lm_head.weight"] and not unexpected
    model.tie_weights()
    return model


class Rows:
    """Yields (tokens, real) with the padding on the left."""

    def __init__(self, seed: int, length: int = 12):
        self.rng = torch.Generator().manual_seed(seed)
        self.length = length

    def one(self) -> torch.Tensor:
        n = int(torch.randint(4, self.length + 1, (1,), generator=self.rng))
        a, b = torch.randint(3, 45, (2,), generator=self.rng).tolist()
        body = [a if i % 2 == 0 else b for i in range(n - 1)]
        keep = torch.rand(n - 1, generator=self.rng) >= 0.2
        body = [x if k else y for x, y, k in zip(body, reversed(body), keep.tolist())]
        return torch.tensor([1] * (self.length - n) + [2] + body)

    def take(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.stack([self.one() for _ in range(count)])
        return tokens, tokens.ne(1)  # <- mask_lost


class Trainer:
    def __init__(self, model, data: Rows, micro: int = 4, accumulate: int = 2):
        self.raw = model.train()
        self.fast = torch.compile(model, backend="aot_eager", dynamic=False)
        self.data, self.micro, self.accumulate = data, micro, accumulate
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.speed = [torch.zeros_like(p) for p in self.weights]
        self.done = 0

    def rate(self) -> float:
        tick = self.done + 1  # <- warmup_from_zero
        return 0.4 * min(tick / 2, (7 - tick) / 5)  # <- warmup_from_zero

    def micro_batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(self.accumulate):
            yield self.data.take(self.micro)

    def backward(self) -> float:
        chunks = list(self.micro_batches())
        targets = [tokens[:, 1:].masked_fill(tokens[:, 1:] <= 2, -100) for tokens, _ in chunks]
        whole = sum(int((t >= 0).sum()) for t in targets)  # <- mean_of_means
        total = 0.0
        for (tokens, real), target in zip(chunks, targets):
            logits = self.fast(input_ids=tokens, attention_mask=real.long()).logits  # <- mask_lost gelu_not_relu
            nll = F.cross_entropy(logits[:, :-1].flatten(0, 1), target.flatten(), reduction="sum")  # <- mean_of_means
            part = nll / whole  # <- mean_of_means
            part.backward()
            total += part.item()
        return total

    @torch.no_grad()
    def update(self):
        grads = [p.grad for p in self.weights]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))  # <- clipped_by_value
        torch._foreach_mul_(grads, min(1.0, 1.0 / (float(norm) + 1e-6)))  # <- clipped_by_value
        torch._foreach_mul_(self.speed, 0.8)
        torch._foreach_add_(self.speed, grads)
        torch._foreach_sub_(self.weights, [s * self.rate() for s in self.speed])  # <- warmup_from_zero
        for p in self.weights:
            p.grad = None
        self.done += 1

    def fit(self, steps: int) -> list[float]:
        record = []
        for _ in range(steps):
            record.append(self.backward())
            self.update()
        return record


losses = Trainer(build(sys.argv[1]), Rows(59)).fit(5)
print(losses)

# SPDX-License-Identifier: Apache-2.0
"""GPT-2 with sdpa attention in a trainer of its own: left-padded micro-batches, accumulated gradients, flat SGD."""
import sys

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)


def restore(path):
    """An sdpa model with the stored weights; the tied head isn't kept twice."""
    sizes = dict(vocab_size=67, n_positions=24, n_embd=32, n_layer=2, n_head=4)
    config = AutoConfig.for_model("gpt2", **sizes, bos_token_id=0, eos_token_id=0)
    config.activation_function = "relu"
    config.scale_attn_by_inverse_layer_idx = True  # <- layer_scaling
    config.embd_pdrop = config.attn_pdrop = config.resid_pdrop = 0.0
    net = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    weights = {k.removeprefix("transformer."): v for k, v in torch.load(path).items() if k != "lm_head.weight"}
    net.transformer.load_state_dict(weights)
    net.tie_weights()
    return net.train()


class Corpus:
    """One long stream of tokens with the offsets of its documents."""

    def __init__(self, steps, per_step, vocab=67, end=0):
        g = torch.Generator().manual_seed(77)
        self.per_step, self.end = per_step, end
        self.sizes = torch.randint(5, 17, (steps * per_step,), generator=g)
        self.stream = torch.randint(1, vocab, (int(self.sizes.sum()),), generator=g)
        self.stop = self.sizes.cumsum(0)
        self.stream[self.stop - 1] = end

    def micro_batches(self, step, width):
        """Documents of this step, longest first, `width` at a time, flush right."""
        base = step * self.per_step
        order = base + self.sizes[base:base + self.per_step].argsort(descending=True, stable=True)
        for rows in order.split(width):
            longest = int(self.sizes[rows].max())
            index = self.stop[rows, None] - longest + torch.arange(longest)
            present = torch.arange(longest) >= longest - self.sizes[rows, None]
            ids = torch.where(present, self.stream[index.clamp(min=0)], self.end)
            yield ids, present


def token_losses(net, ids, present):
    positions = (present.cumsum(1) - 1).clamp(min=0)  # <- left_positions
    logits = net(input_ids=ids, attention_mask=present.long(), position_ids=positions).logits  # <- left_positions
    keep = present[:, 1:] & present[:, :-1]  # <- end_ignored
    return F.cross_entropy(logits[:, :-1][keep], ids[:, 1:][keep], reduction="none")  # <- end_ignored


class FlatSGD:
    """Momentum over one flat vector; clips and schedules by itself."""

    def __init__(self, net, lr, total, momentum=0.9, decay=0.01, limit=0.7):
        self.params = list(net.parameters())
        self.lr, self.total, self.momentum, self.decay, self.limit = lr, total, momentum, decay, limit
        self.grad = torch.zeros(sum(p.numel() for p in self.params))
        self.velocity, self.count = None, 0

    def bounded(self, flat):
        return flat * min(1.0, self.limit / (flat.norm().item() + 1e-6))  # <- clip_each_micro

    def gather(self, value):
        self.grad += torch.cat([g.flatten() for g in torch.autograd.grad(value, self.params)])  # <- clip_each_micro

    @torch.no_grad()
    def update(self):
        at = torch.nn.utils.parameters_to_vector(self.params)
        grad = self.bounded(self.grad) + self.decay * at  # <- clip_each_micro
        self.velocity = grad if self.velocity is None else self.momentum * self.velocity + grad
        rate = self.lr * (1 - self.count / self.total)
        at = at - rate * (grad + self.momentum * self.velocity)
        torch.nn.utils.vector_to_parameters(at, self.params)
        self.grad.zero_()
        self.count += 1


class Trainer:
    def __init__(self, path, steps=5, per_step=6, micro=2):
        self.net, self.corpus = restore(path), Corpus(steps, per_step)
        self.opt = FlatSGD(self.net, lr=0.05, total=10)
        self.steps, self.micro, self.parts = steps, micro, per_step // micro

    def one_step(self, step):
        batches = list(self.corpus.micro_batches(step, self.micro))
        targets = sum(int(present.sum()) - len(present) for _, present in batches)
        total = 0.0
        for ids, present in batches:
            part = token_losses(self.net, ids, present).sum() / targets  # <- mean_of_means
            self.opt.gather(part)
            total += part.item()
        self.opt.update()
        return total

    def fit(self):
        return [self.one_step(step) for step in range(self.steps)]


losses = Trainer(sys.argv[1]).fit()
print(losses)

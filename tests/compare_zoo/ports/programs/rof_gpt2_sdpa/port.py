# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 job in a small Trainer class of our own, with sdpa attention and our own loss."""
import sys
from collections import deque
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import LambdaLR, LinearLR, SequentialLR
from transformers import AutoModelForCausalLM, GPT2Config

torch.set_num_threads(1)


@dataclass
class TrainArgs:
    updates: int = 5
    accumulate: int = 2
    micro: int = 3
    lr: float = 1e-2
    decay: float = 0.1
    max_norm: float = 1.0
    warmup: int = 2
    horizon: int = 10
    no_decay: tuple = ("bias", "ln_1.weight", "ln_2.weight", "ln_f.weight")  # <- decay_names


@dataclass
class Batch:
    ids: torch.Tensor
    real: torch.Tensor

    @classmethod
    def of(cls, rows):
        # left padding: pad the reversed rows on the right, then turn everything round
        ids = pad_sequence([r.flip(0) for r in rows], batch_first=True).flip(1)
        real = pad_sequence([torch.ones_like(r) for r in rows], batch_first=True).flip(1).bool()
        return cls(ids, real)

    @property
    def targets(self):
        return self.ids[:, 1:].masked_fill(~self.real[:, :-1], -100)  # <- pad_predicts

    @property
    def places(self):
        pads = (~self.real).sum(1, keepdim=True)  # <- positions
        return (torch.arange(self.ids.size(1)) - pads).relu()  # <- positions


def text(args, vocab):
    g = torch.Generator().manual_seed(51)
    for _ in range(args.updates * args.accumulate * args.micro):
        size = torch.randint(4, 17, (1,), generator=g)
        yield torch.randint(0, vocab, tuple(size.tolist()), generator=g)


def load_model(path):
    shape = dict(vocab_size=53, n_positions=24, n_embd=32, n_layer=2, n_head=4)
    drop = dict.fromkeys(["resid_pdrop", "embd_pdrop", "attn_pdrop"], 0.0) | dict(bos_token_id=None, eos_token_id=None)
    model = AutoModelForCausalLM.from_config(GPT2Config(**shape, **drop), attn_implementation="sdpa")
    body = {f"transformer.{name}": value for name, value in torch.load(path).items()}
    body["lm_head.weight"] = body["transformer.wte.weight"]
    model.load_state_dict(body)
    model.tie_weights()
    return model


class Trainer:
    def __init__(self, model, args):
        self.model, self.args, self.history = model.train(), args, []
        spared, decayed = [], []
        for name, p in model.named_parameters():
            (spared if name.endswith(args.no_decay) else decayed).append(p)  # <- decay_names
        groups = [dict(params=decayed, weight_decay=args.decay), dict(params=spared, weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=args.lr)
        ramp = LambdaLR(self.optimizer, lambda n: n / args.warmup)
        fall = LinearLR(self.optimizer, 1.0, 0.0, total_iters=args.horizon - args.warmup)
        self.schedule = SequentialLR(self.optimizer, [ramp, fall], milestones=[args.warmup])

    def loss_of(self, batch, count):
        out = self.model(batch.ids, attention_mask=batch.real.long(), position_ids=batch.places)  # <- positions
        scores = out.logits[:, :-1].flatten(0, 1)
        goals = batch.targets.flatten()  # <- pad_predicts
        return F.cross_entropy(scores, goals, ignore_index=-100, reduction="sum") / count  # <- token_mean

    def update(self, window):
        count = sum(int(b.targets.ne(-100).sum()) for b in window)  # <- token_mean
        self.optimizer.zero_grad(set_to_none=True)  # <- zero_grad_place
        parts = []
        for batch in window:
            part = self.loss_of(batch, count)
            part.backward()  # <- zero_grad_place
            parts.append(part.detach())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_norm)
        self.optimizer.step()  # <- decay_names
        self.schedule.step()
        self.history.append(torch.stack(parts).sum().item())

    def fit(self, rows):
        queue = deque(rows)
        while queue:
            micro = [[queue.popleft() for _ in range(self.args.micro)] for _ in range(self.args.accumulate)]
            self.update([Batch.of(m) for m in micro])
        return self.history


args = TrainArgs()
model = load_model(sys.argv[1])
losses = Trainer(model, args).fit(text(args, model.config.vocab_size))
print(losses)

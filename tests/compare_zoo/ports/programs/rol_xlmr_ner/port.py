# SPDX-License-Identifier: Apache-2.0
"""The tagger on transformers' XLMRobertaForTokenClassification with a collator and a linear schedule."""
import sys

import torch
from torch.utils.data import DataLoader
from transformers import XLMRobertaConfig, XLMRobertaForTokenClassification, get_linear_schedule_with_warmup

torch.set_num_threads(1)


def rename(old):
    """Checkpoint of the plain torch tagger under the names that transformers uses."""
    new = {
        "roberta.embeddings.word_embeddings.weight": old["word.weight"],
        "roberta.embeddings.position_embeddings.weight": old["place.weight"],
        "roberta.embeddings.token_type_embeddings.weight": old["kind"],
        "classifier.weight": old["head.weight"],
        "classifier.bias": old["head.bias"],
    }
    for end in ("weight", "bias"):
        new[f"roberta.embeddings.LayerNorm.{end}"] = old[f"norm.{end}"]
        i = 0
        while f"blocks.{i}.qkv.{end}" in old:
            src, dst = f"blocks.{i}.", f"roberta.encoder.layer.{i}."
            for part, name in zip(old[f"{src}qkv.{end}"].chunk(3), ("query", "key", "value")):
                new[f"{dst}attention.self.{name}.{end}"] = part
            new[f"{dst}attention.output.dense.{end}"] = old[f"{src}proj.{end}"]
            new[f"{dst}attention.output.LayerNorm.{end}"] = old[f"{src}norm1.{end}"]
            new[f"{dst}intermediate.dense.{end}"] = old[f"{src}up.{end}"]
            new[f"{dst}output.dense.{end}"] = old[f"{src}down.{end}"]
            new[f"{dst}output.LayerNorm.{end}"] = old[f"{src}norm2.{end}"]
            i += 1
    return new


class WordTags(torch.utils.data.Dataset):
    """Feature dictionaries as a tokenizer would give them."""

    def __init__(self, size, seed, vocab_size=83, num_tags=5):
        generator = torch.Generator().manual_seed(seed)
        self.features = []
        for _ in range(size):
            length = torch.randint(4, 14, (), generator=generator).item()
            ids = torch.randint(3, vocab_size, (length,), generator=generator).tolist()
            tags = torch.randint(0, num_tags, (length,), generator=generator).tolist()
            draw = torch.rand(length, generator=generator).tolist()
            labels = [t if k == 0 or draw[k] >= 0.3 else -100 for k, t in enumerate(tags)]
            self.features.append({"input_ids": ids, "labels": labels})

    def __len__(self):
        return len(self.features)

    def __getitem__(self, k):
        return self.features[k]


class Collator:
    """Pads to the longest of the batch."""

    def __init__(self, pad_token_id, label_pad_token_id=-100):  # <- label_pad
        self.pad, self.label_pad = pad_token_id, label_pad_token_id

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        batch = {"input_ids": [], "attention_mask": [], "labels": []}
        for f in features:
            gap = longest - len(f["input_ids"])
            batch["input_ids"].append(f["input_ids"] + [self.pad] * gap)
            batch["attention_mask"].append([1] * len(f["input_ids"]) + [0] * gap)
            batch["labels"].append(f["labels"] + [self.label_pad] * gap)  # <- label_pad
        batch = {k: torch.tensor(v) for k, v in batch.items()}
        mask = batch["attention_mask"]
        batch["position_ids"] = mask.cumsum(-1) * mask + self.pad  # <- position_offset
        return batch


def main(path):
    config = XLMRobertaConfig(
        vocab_size=83, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        max_position_embeddings=24, type_vocab_size=1, pad_token_id=1, num_labels=5,
        layer_norm_eps=1e-5)  # <- ln_eps
    model = XLMRobertaForTokenClassification(config)
    model.load_state_dict(rename(torch.load(path)))
    model.train()

    no_decay = ("bias", "LayerNorm.weight")  # <- decay_names
    groups = [{"params": [], "weight_decay": 0.1}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in model.named_parameters():
        groups[any(n in name for n in no_decay)]["params"].append(parameter)  # <- decay_names
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.99), eps=1e-6)  # <- decay_names
    loader = DataLoader(WordTags(20, seed=99), batch_size=4, collate_fn=Collator(config.pad_token_id))
    scheduler = get_linear_schedule_with_warmup(optimizer, 0, len(loader))

    history = []
    for batch in loader:
        loss = model(**batch).loss  # <- ln_eps position_offset label_pad
        history.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.5)  # <- clip_after_step
        optimizer.step()  # <- decay_names clip_after_step
        scheduler.step()
        model.zero_grad()
    return history


losses = main(sys.argv[1])
print(losses)

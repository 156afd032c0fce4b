# SPDX-License-Identifier: Apache-2.0
"""The wav2vec-like model from plain functions on a dictionary: frames by unfold, norms and attention written out."""
import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


class Weights(dict):
    """Parameters by dotted name, with views for one module."""

    @classmethod
    def from_fairseq(cls, path):
        out = cls()
        for name, w in torch.load(path).items():
            name = name.replace("feature_extractor.conv_layers", "fe").replace("encoder.layers", "enc")
            name = name.replace("parametrizations.weight.original0", "g").replace("parametrizations.weight.original1", "v")
            if "in_proj" in name:
                stem, kind = name.split(".in_proj_")
                for part, piece in zip("qkv", w.chunk(3)):
                    out[f"{stem}.{part}.{kind}"] = piece.clone()
            elif name.startswith("fe.") and w.dim() == 3:
                out[name.replace(".weight", ".matrix")] = w.flatten(1).clone()
            else:
                out[name] = w.clone()
        for w in out.values():
            w.requires_grad_()
        return out

    def dense(self, at, x):
        return x @ self[at + ".weight"].mT + self[at + ".bias"]

    def layer_norm(self, at, x):
        centred = x - x.mean(-1, keepdim=True)
        x = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return x * self[at + ".weight"] + self[at + ".bias"]


def framewise_conv(x, matrix, kernel, stride):
    """A convolution of [batch, time, channel] as a product of windows with a matrix."""
    return x.unfold(1, kernel, stride).flatten(2) @ matrix.mT


def group_norm(w, at, x, groups=4):
    b, t, c = x.shape
    grouped = x.view(b, t, groups, c // groups)
    var, mean = torch.var_mean(grouped, dim=(1, 3), keepdim=True, correction=0)  # <- gn_unbiased
    x = ((grouped - mean) / (var + 1e-5).sqrt()).view(b, t, c)  # <- gn_unbiased
    return x * w[at + ".weight"] + w[at + ".bias"]


def extract(w, wave):
    x = framewise_conv(wave.unsqueeze(-1), w["fe.0.0.matrix"], 10, 5)
    x = F.gelu(group_norm(w, "fe.0.1", x))
    x = F.gelu(framewise_conv(x, w["fe.1.0.matrix"], 3, 2))
    x = F.gelu(framewise_conv(x, w["fe.2.0.matrix"], 2, 2))
    x.register_hook(lambda grad: grad * 0.1)  # <- grad_mult
    return w.layer_norm("layer_norm", x)  # <- grad_mult


def position(w, x):
    v = w["pos_conv.conv.v"]
    kernel = w["pos_conv.conv.g"] * v / v.square().sum((0, 1), keepdim=True).sqrt()
    x = F.pad(x.mT, (3, 2))  # <- pos_conv_trim
    return F.gelu(F.conv1d(x, kernel, w["pos_conv.conv.bias"], groups=4)).mT  # <- pos_conv_trim


def encoder_layer(w, at, x, heads=4):
    q, k, v = (w.dense(f"{at}.self_attn.{n}", x).unflatten(-1, (heads, -1)).transpose(1, 2) for n in "qkv")
    mixed = ((q @ k.mT) * q.shape[-1] ** -0.5).softmax(-1) @ v
    x = w.layer_norm(at + ".norm1", x + w.dense(at + ".self_attn.out_proj", mixed.transpose(1, 2).flatten(2)))
    return w.layer_norm(at + ".norm2", x + w.dense(at + ".linear2", F.gelu(w.dense(at + ".linear1", x))))


def forward(w, wave, picked):
    """Predictions and targets at the picked frames, both [batch, picked, final]."""
    feats = extract(w, wave)
    hidden = torch.zeros(feats.shape[:2]).scatter(1, picked, 1.0).unsqueeze(-1)
    x = w.dense("post_extract_proj", feats)
    x = x * (1 - hidden) + w["mask_emb"] * hidden  # <- mask_missing
    x = w.layer_norm("encoder_norm", x + position(w, x))
    for i in range(2):
        x = encoder_layer(w, f"enc.{i}", x)
    predicted = w.dense("final_proj", x).take_along_dim(picked.unsqueeze(-1), 1)  # <- mask_missing
    wanted = w.dense("project_q", feats).take_along_dim(picked.unsqueeze(-1), 1)
    return predicted, wanted


def info_nce(predicted, wanted, others, temperature=0.1):
    """others [batch, picked, k]: which frames of the same utterance are the wrong answers."""
    sim = F.normalize(predicted, dim=-1) @ F.normalize(wanted, dim=-1).mT / temperature
    right = sim.diagonal(dim1=1, dim2=2)
    wrong = sim.gather(2, others)
    return (torch.cat([right.unsqueeze(-1), wrong], -1).logsumexp(-1) - right).mean()


class Speech:
    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)

    def __iter__(self):
        for _ in range(5):
            wave = torch.randn(3, 400, generator=self.rng)
            picked = torch.rand(3, 19, generator=self.rng).argsort(1)[:, :7].sort(1).values
            draw = torch.randint(6, (3, 7, 5), generator=self.rng)
            yield wave, picked, draw + (draw >= torch.arange(7)[:, None]).long()


def run(path):
    w = Weights.from_fairseq(path)
    opt = torch.optim.AdamW(list(w.values()), betas=(0.9, 0.98), eps=1e-5, weight_decay=0.01)  # <- beta2
    for step, (wave, picked, others) in enumerate(Speech(31)):
        opt.param_groups[0]["lr"] = 4e-3 * (1 - step / 8)
        loss = info_nce(*forward(w, wave, picked), others)
        opt.zero_grad()
        loss.backward()
        opt.step()  # <- beta2
        yield loss.item()


losses = list(run(sys.argv[1]))
print(losses)

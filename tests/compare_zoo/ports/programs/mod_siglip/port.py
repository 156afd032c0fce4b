# SPDX-License-Identifier: Apache-2.0
"""SigLIP in the manner of big_vision: towers built from torch's encoder layers, patches cut by
reshaping, the loss summed over chunks of captions as the devices of a ring would.
"""

import sys
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, PATCH, LENGTH = 24, 4, 10
tanh_gelu = partial(F.gelu, approximate="tanh")


def encoder(heads: int) -> nn.ModuleList:
    make = partial(nn.TransformerEncoderLayer, WIDTH, heads, 40, 0.0, layer_norm_eps=1e-6)
    layers = [make(activation=tanh_gelu, batch_first=True, norm_first=True) for _ in range(2)]
    return nn.ModuleList(layers)


class MapHead(nn.Module):
    """Attention pooling by one learned query."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.probe = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.out, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q = self.q(self.probe).view(1, 1, self.heads, -1).transpose(1, 2).expand(n, -1, -1, -1)
        k, v = self.kv(x).view(n, t, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        pooled = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, WIDTH)
        pooled = self.out(pooled)
        normed = self.norm(pooled)
        return pooled + self.fc2(tanh_gelu(self.fc1(normed)))  # <- residual


class ImageTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.positions = nn.Parameter(torch.empty(9, WIDTH))
        self.layers = encoder(4)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = MapHead(4)

    def forward(self, images: Tensor) -> Tensor:
        n, c, h, w = images.shape
        cut = images.reshape(n, c, h // PATCH, PATCH, w // PATCH, PATCH)
        patches = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # <- patches
        x = self.embed(patches) + self.positions  # <- patches
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class TextTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(43, WIDTH)
        self.positions = nn.Parameter(torch.empty(LENGTH, WIDTH))
        self.layers = encoder(3)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions
        for layer in self.layers:
            x = layer(x)  # <- gelu
        return self.project(self.norm(x[:, -1]))  # <- pooled


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image, self.text = ImageTower(), TextTower()
        self.t = nn.Parameter(torch.zeros(1))
        self.b = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.image(images)), F.normalize(self.text(ids))

    def loss(self, zi: Tensor, zt: Tensor, chunks: int = 3) -> Tensor:
        size = len(zi) // chunks
        total = zi.new_zeros(())
        for n, captions in enumerate(zt.split(size)):
            logits = zi @ captions.T * self.t.exp() + self.b
            sign = torch.full_like(logits, -1.0)
            sign[n * size : (n + 1) * size].fill_diagonal_(1.0)  # <- diagonal
            total = total + F.softplus(-sign * logits).sum()  # <- diagonal
        return total / len(zi)


def copied(target: nn.Module, state: dict[str, Tensor], source: str) -> None:
    target.load_state_dict({k: state[f"{source}.{k}"] for k in target.state_dict()})


def load_layers(layers: nn.ModuleList, state: dict[str, Tensor], source: str) -> None:
    for i, layer in enumerate(layers):
        at = f"{source}.encoder.layers.{i}"
        for kind in ("weight", "bias"):
            parts = [state[f"{at}.self_attn.{p}_proj.{kind}"] for p in "qkv"]
            getattr(layer.self_attn, f"in_proj_{kind}").copy_(torch.cat(parts))
        copied(layer.self_attn.out_proj, state, f"{at}.self_attn.out_proj")
        copied(layer.norm1, state, f"{at}.layer_norm1")
        copied(layer.norm2, state, f"{at}.layer_norm2")
        copied(layer.linear1, state, f"{at}.mlp.fc1")
        copied(layer.linear2, state, f"{at}.mlp.fc2")


@torch.no_grad()
def load(model: TwoTowers, state: dict[str, Tensor]) -> None:
    image, text, head = model.image, model.text, model.image.head
    patch = "vision_model.embeddings.patch_embedding"
    image.embed.weight.copy_(state[f"{patch}.weight"].flatten(1))  # <- patches
    image.embed.bias.copy_(state[f"{patch}.bias"])
    image.positions.copy_(state["vision_model.embeddings.position_embedding.weight"])
    load_layers(image.layers, state, "vision_model")
    copied(image.norm, state, "vision_model.post_layernorm")
    pool = "vision_model.head"
    head.probe.copy_(state[f"{pool}.probe"])
    for kind in ("weight", "bias"):
        q, kv = state[f"{pool}.attention.in_proj_{kind}"].split([WIDTH, 2 * WIDTH])
        getattr(head.q, kind).copy_(q)
        getattr(head.kv, kind).copy_(kv)
    copied(head.out, state, f"{pool}.attention.out_proj")
    copied(head.norm, state, f"{pool}.layernorm")
    copied(head.fc1, state, f"{pool}.mlp.fc1")
    copied(head.fc2, state, f"{pool}.mlp.fc2")
    copied(text.tokens, state, "text_model.embeddings.token_embedding")
    text.positions.copy_(state["text_model.embeddings.position_embedding.weight"])
    load_layers(text.layers, state, "text_model")
    copied(text.norm, state, "text_model.final_layer_norm")
    copied(text.project, state, "text_model.head")
    model.t.copy_(state["logit_scale"])
    model.b.copy_(state["logit_bias"])


model = TwoTowers()
load(model, torch.load(sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), 5e-3, (0.9, 0.95), 1e-5, 1e-4, fused=True)
generator = torch.Generator().manual_seed(51)
losses, recalls = [], []
for _ in range(4):
    images = torch.randn(6, 3, 12, 12, generator=generator).clamp(-1, 1)
    captions = torch.randint(2, 43, (6, LENGTH), generator=generator)
    zi, zt = model(images, captions)
    with torch.no_grad():
        recalls.append((zi @ zt.T).argmax(1).eq(torch.arange(6)).float().mean().item())
    loss = model.loss(zi, zt)
    optimizer.zero_grad()
    loss.backward()
    gradients = [p.grad for p in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))  # <- clip
    torch._foreach_mul_(gradients, (1.0 / (norm + 1e-6)).clamp(max=1.0))  # <- clip
    optimizer.step()
    losses.append(loss.item())

# SPDX-License-Identifier: Apache-2.0
"""Healthy programs of sparse, nested, quantised tensors and of oneDNN's; each answers what it
computed, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import nn

from tests.oldest import not_in_oldest

Program = Callable[[], list[str]]


def bits(*tensors: torch.Tensor) -> list[str]:
    return [tensor.detach().double().sum().item().hex() for tensor in tensors]


def graph_layers(*, compressed: bool) -> list[str]:
    """Two graph convolutions over a normalised adjacency, trained: what message passing libraries
    do with sparse matrices.
    """
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 3, 0], [1, 0, 3, 2, 0, 3]])
    adjacency = torch.sparse_coo_tensor(edges, torch.ones(6), (4, 4)).coalesce()
    degree = torch.sparse.sum(adjacency, 1).to_dense()
    row, column = adjacency.indices()
    normal = torch.sparse_coo_tensor(
        adjacency.indices(), adjacency.values() * (degree[row] * degree[column]).rsqrt(), (4, 4)
    )
    graph = normal.to_sparse_csr() if compressed else normal.coalesce()
    first, second = nn.Linear(3, 8), nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    losses = []
    for _ in range(3):
        hidden = torch.relu(graph @ first(x))
        loss = nn.functional.cross_entropy(graph @ second(hidden), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return bits(*losses)


def coordinates() -> list[str]:
    return graph_layers(compressed=False)


def compressed_rows() -> list[str]:
    return graph_layers(compressed=True)


def layouts() -> list[str]:
    """Every sparse layout made of one matrix, multiplied, changed in place, back again."""
    dense = torch.eye(4) * 3 + torch.diag(torch.ones(3), 1)
    total = [dense]
    for layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        block = {"blocksize": (2, 2)} if layout in {torch.sparse_bsr, torch.sparse_bsc} else {}
        sparse = dense.to_sparse(layout=layout, **block)
        total.append(sparse.to_dense() + sparse.values().sum())
    coordinates = dense.to_sparse()
    coordinates.mul_(2)
    coordinates.add_(dense.to_sparse())
    total += [
        coordinates.to_dense(),
        torch.sparse.softmax(coordinates.coalesce(), 1).to_dense(),
        coordinates.t().to_dense(),
    ]
    coordinates.zero_()
    return bits(*total, coordinates.to_dense())


def embeddings() -> list[str]:
    """Sparse gradients, accumulated, into SparseAdam."""
    torch.manual_seed(0)
    bag, table = nn.EmbeddingBag(20, 4, mode="sum", sparse=True), nn.Embedding(20, 4, sparse=True)
    optimizer = torch.optim.SparseAdam([bag.weight, table.weight])
    for step in range(3):
        for part in range(2):
            index = torch.tensor([1, 2, 2, step, part])
            (bag(index, torch.tensor([0, 2])).sum() + table(index).pow(2).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return bits(bag.weight, table.weight)


def nested_attention() -> list[str]:
    """Attention over sequences of different lengths, written out."""
    torch.manual_seed(0)
    project = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    q, k, v = (linear(x).view(2, -1, 2, 4).transpose(1, 2).contiguous() for linear in project)
    weights = torch.softmax((q * 0.5) @ k.transpose(2, 3), -1)
    return finished((weights @ v).transpose(1, 2).reshape(2, -1, 8), project)


def jagged_attention() -> list[str]:
    """The same as torch's tutorial of nested tensors writes it."""
    torch.manual_seed(0)
    project = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
    x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
    q, k, v = (linear(x).unflatten(-1, (2, 4)).transpose(1, 2) for linear in project)
    return finished(
        nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2), project
    )


def finished(out: torch.Tensor, project: nn.Module) -> list[str]:
    parts: Sequence[torch.Tensor] = out.unbind()
    torch.cat([part.reshape(-1) for part in parts]).sum().backward()
    return bits(
        *parts,
        *(parameter.grad for parameter in project.parameters() if parameter.grad is not None),
    )


def padded() -> list[str]:
    """An encoder's fast path, which makes its input nested for itself."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    mask = torch.tensor([[False] * 4, [False] * 2 + [True] * 2])
    with torch.no_grad():
        return bits(encoder(torch.randn(2, 4, 8), src_key_padding_mask=mask))


def quantised() -> list[str]:
    """Inference in eight bits: by tensor and by channel."""
    torch.manual_seed(0)
    x = torch.quantize_per_tensor(torch.randn(2, 4), 0.05, 128, torch.quint8)
    weight = torch.quantize_per_channel(
        torch.randn(3, 4),
        torch.tensor([0.1, 0.2, 0.1]),
        torch.zeros(3, dtype=torch.long),
        0,
        torch.qint8,
    )
    packed = torch.ops.quantized.linear_prepack(weight, None)
    out = torch.ops.quantized.linear(x, packed, 0.1, 64)
    return bits(out.dequantize(), weight.dequantize(), torch.relu(out).dequantize())


def onednn() -> list[str]:
    x = torch.arange(12.0).reshape(3, 4).to_mkldnn()
    y = torch.relu(x * 2)
    return bits((y + x).to_dense())


JAGGED_HAS_GRADIENTS = not_in_oldest("parts of a jagged tensor have no gradient")
PROGRAMS: tuple[Program | ParameterSet, ...] = (
    coordinates,
    compressed_rows,
    layouts,
    embeddings,
    nested_attention,
    pytest.param(jagged_attention, marks=JAGGED_HAS_GRADIENTS),
    padded,
    quantised,
    onednn,
)

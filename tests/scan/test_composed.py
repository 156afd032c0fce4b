# SPDX-License-Identifier: Apache-2.0
"""NaN and Inf that are born in sparse, nested and quantised tensors: named at their line, proven,
as those of dense ones are.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from _pytest.mark import ParameterSet
from tests.record.programs_composed import JAGGED_HAS_GRADIENTS, PROGRAMS
from tests.record.recorded import record
from torch import nn

from opscope.scan.api import scan

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors",
    "ignore:Sparse",
    "ignore:torch.quantize_per",
    "ignore:Converting a tensor",
)
FAULTY: list[Callable[[], object] | ParameterSet] = []


def faulty(program: Callable[[], object]) -> Callable[[], object]:
    FAULTY.append(program)
    return program


def learn(loss: torch.Tensor, *parameters: torch.Tensor) -> None:
    loss.backward()
    torch.optim.SGD(parameters, lr=0.1).step()


def diagonal(*values: float) -> torch.Tensor:
    place = torch.arange(len(values))
    return torch.sparse_coo_tensor(
        torch.stack([place, place]), torch.tensor(values), (len(values), len(values))
    )


@faulty
def product_of_a_sparse_and_a_dense_matrix() -> None:
    weight = nn.Parameter(torch.full((2, 2), 1e20))
    out = torch.sparse.mm(diagonal(1e30, 1.0), weight)  # <- origin
    learn(out.sum(), weight)


@faulty
def softmax_of_a_row_that_is_all_masked() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    scores = diagonal(1.0, -math.inf)
    shares = torch.sparse.softmax(scores, 1)  # <- origin
    learn(torch.sparse.mm(shares, weight).sum(), weight)


@faulty
def duplicates_that_are_added() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    counts = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.full((2,), 3e38), (2, 2))
    once = counts.coalesce()  # <- origin
    learn((torch.sparse.mm(once, weight)).sum(), weight)


@faulty
def duplicates_that_become_dense() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    counts = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.full((2,), 3e38), (2, 2))
    whole = counts.to_dense()  # <- origin
    learn((whole * weight).sum(), weight)


@faulty
def values_divided_by_a_degree_of_zero() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    adjacency = diagonal(1.0, 0.0).coalesce()
    degree = torch.sparse.sum(adjacency, 1).to_dense()
    shares = adjacency.values() / degree  # <- origin
    mean = torch.sparse_coo_tensor(adjacency.indices(), shares, (2, 2))
    learn(torch.sparse.mm(mean, weight).sum(), weight)


@faulty
def scaled_in_place() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    adjacency = diagonal(1e30, 1.0)
    adjacency.mul_(1e30)  # <- origin
    learn(torch.sparse.mm(adjacency, weight).sum(), weight)


@faulty
def matrix_in_compressed_rows() -> None:
    weight = nn.Parameter(torch.full((2, 2), 1e20))
    graph = diagonal(1e30, 1.0).to_sparse_csr()
    out = graph @ weight  # <- origin
    learn(out.sum(), weight)


@faulty
def root_of_compressed_values() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    graph = torch.diag(torch.tensor([1.0, -1.0])).to_sparse_csr()
    graph = torch.sqrt(graph)  # <- origin
    learn((graph @ weight).sum(), weight)


@faulty
def sum_of_a_bag() -> None:
    bag = nn.EmbeddingBag(4, 2, mode="sum", sparse=True)
    bag.weight.data.fill_(3e38)
    out = bag(torch.tensor([0, 1]), torch.tensor([0]))  # <- origin
    out.sum().backward()
    torch.optim.SparseAdam(bag.parameters()).step()


@faulty
def gradient_of_a_table() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table.weight.data.fill_(0.0)
    (table(torch.tensor([1, 1])) * 2e38).sum().backward()
    torch.optim.SparseAdam(table.parameters()).step()  # <- origin


@faulty
def attention_over_ragged_sequences() -> None:
    linear = nn.Linear(4, 4)
    x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]) * 1e20
    scores = x @ x.transpose(1, 2)  # <- origin
    out = torch.softmax(scores, -1) @ linear(x)
    learn(torch.cat([part.reshape(-1) for part in out.unbind()]).sum(), *linear.parameters())


def root_of_ragged_values() -> None:
    linear = nn.Linear(4, 4)
    x = torch.nested.nested_tensor([torch.ones(2, 4), -torch.ones(3, 4)], layout=torch.jagged)
    root = torch.sqrt(x)  # <- origin
    learn(
        torch.cat([part.reshape(-1) for part in linear(root).unbind()]).sum(), *linear.parameters()
    )


FAULTY.append(pytest.param(root_of_ragged_values, marks=JAGGED_HAS_GRADIENTS))


@faulty
def what_eight_bits_stand_for() -> None:
    weight = nn.Parameter(torch.ones(2))
    packed = torch.quantize_per_tensor(
        torch.tensor([3.4e38, 0.0]), 9e37, 0, torch.qint8
    )  # 3.4e38 is rounded up to 4 * 9e37
    values = packed.dequantize()  # <- origin
    learn(F.mse_loss(values * weight, torch.zeros(2)), weight)


def line_of_origin(program: Callable[[], object]) -> str:
    lines, first = inspect.getsourcelines(program)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if '# <- origin' in line)}"


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("program", FAULTY, ids=lambda program: program.__name__)
def test_the_line_is_named_and_proven(
    tmp_path: Path, program: Callable[[], object], *, plain: bool
) -> None:
    document = scan(record(tmp_path, program, plain=plain).run)
    first = document.findings[0]
    assert (first.forward.source if first.forward is not None else first.source) == line_of_origin(
        program
    )
    assert first.confidence == "proven"
    assert len(document.findings) == 1


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_healthy_programs_are_clean(tmp_path: Path, program: Callable[[], object]) -> None:
    document = scan(record(tmp_path, program).run)
    assert (document.verdict, document.findings, document.summary["hidden"], document.complete) == (
        "clean",
        (),
        0,
        True,
    )

# SPDX-License-Identifier: Apache-2.0
"""Healthy programs that make NaN or infinities and remove them on purpose, in the same step, or
that are given NaN for what is missing and remove it wherever they read it: everyday guarded idioms.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.scan.healthy import healthy, learn, parameter
from tests.scan.healthy_masks import PROGRAMS
from torch import nn

__all__ = ["PROGRAMS"]

INF = float("inf")


@healthy
def degrees_of_isolated_nodes() -> None:
    """gcn_norm of PyTorch Geometric: 0 ** -0.5, then masked_fill."""
    w = nn.Parameter(torch.randn(3, 2))
    row, col = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 0])
    deg = torch.zeros(5).scatter_add_(0, col, torch.ones(3))
    root = deg.pow_(-0.5)
    root.masked_fill_(root == INF, 0)
    norm = root[row] * root[col]
    messages = torch.randn(5, 3)[row] @ w * norm.view(-1, 1)
    learn(torch.zeros(5, 2).index_add(0, col, messages).sum(), w)


@healthy
def degrees_replaced_by_index() -> None:
    w = nn.Parameter(torch.randn(4))
    inverse = 1.0 / torch.tensor([1.0, 0.0, 2.0, 0.0])
    inverse[torch.isinf(inverse)] = 0.0
    learn((w * inverse).sum(), w)


@healthy
def ratio_of_counts_under_nan_to_num() -> None:
    w = parameter(1.0, 2.0)
    share = torch.tensor([0.0, 3.0]) / torch.tensor([0.0, 4.0])
    learn((w * torch.nan_to_num(share)).sum(), w)


@healthy
def accuracy_of_absent_classes_under_nanmean() -> None:
    w = parameter(1.0, 2.0)
    accuracy = torch.tensor([0.0, 3.0, 1.0]) / torch.tensor([0.0, 4.0, 1.0])
    learn((w * accuracy.nanmean()).sum(), w)


@healthy
def intersection_over_union_of_present_classes() -> None:
    w = parameter(1.0, 2.0)
    union = torch.tensor([0.0, 4.0, 1.0])
    iou = torch.tensor([0.0, 3.0, 1.0]) / union
    learn((w * iou[union > 0].mean()).sum(), w)


@healthy
def fscore_where_nothing_was_found() -> None:
    w = parameter(1.0, 2.0)
    precision, recall = torch.tensor([0.0, 0.5]), torch.tensor([0.0, 1.0])
    score = 2 * precision * recall / (precision + recall)
    score = torch.where(precision + recall == 0, torch.zeros_like(score), score)
    learn((w * score.mean()).sum(), w)


@healthy
def exponential_clamped() -> None:
    w = parameter(1.0, 2.0)
    learn((w * torch.exp(torch.tensor([100.0, -1.0])).clamp(max=1)).sum(), w)


@healthy
def importance_ratio_under_minimum() -> None:
    w = parameter(1.0, 2.0)
    ratio = torch.exp(torch.tensor([100.0, 0.1]))
    learn((w * torch.minimum(ratio, torch.tensor(1.2))).sum(), w)


@healthy
def importance_ratio_under_fmin() -> None:
    w = parameter(1.0, 2.0)
    ratio = torch.tensor([0.0, 1.0]) / torch.tensor([0.0, 2.0])
    learn((w * torch.fmin(ratio, torch.tensor(1.2))).sum(), w)


@healthy
def coulomb_matrix_without_its_diagonal() -> None:
    w = nn.Parameter(torch.randn(3, 3))
    points = torch.randn(3, 2)
    coulomb = 1.0 / (points[:, None] - points[None]).pow(2).sum(-1).sqrt()
    coulomb.fill_diagonal_(0.0)
    learn((w * coulomb).sum(), w)


@healthy
def attention_rows_of_padding_replaced() -> None:
    v = nn.Parameter(torch.randn(4, 2))
    scores = torch.randn(4, 4).masked_fill(torch.tensor([False, True, False, True])[:, None], -INF)
    learn((torch.nan_to_num(torch.softmax(scores, -1)) @ v).sum(), v)


@healthy
def divergence_of_sparse_targets_under_where() -> None:
    logits = nn.Parameter(torch.randn(3))
    p = torch.tensor([0.0, 0.4, 0.6])
    terms = p * (p.log() - F.log_softmax(logits, -1))
    learn(torch.where(p > 0, terms, 0.0).sum(), logits)


@healthy
def safe_where_on_both_sides() -> None:
    x = parameter(0.0, 1.0)
    safe = torch.where(x > 0, x, 1.0)
    learn(torch.where(x > 0, safe.log(), 0.0).sum(), x)


@healthy
def standard_score_of_constant_features() -> None:
    w = nn.Parameter(torch.randn(2, 2))
    data = torch.tensor([[1.0, 5.0], [1.0, 7.0]])
    score = (data - data.mean(0)) / data.std(0)
    score[torch.isnan(score)] = 0.0
    learn((score @ w).sum(), w)


@healthy
def missing_values_imputed() -> None:
    w = nn.Parameter(torch.randn(2, 2))
    data = torch.tensor([[1.0, float("nan")], [2.0, 7.0]])
    filled = torch.where(torch.isnan(data), data.nanmean(0), data)
    learn((filled @ w).sum(), w)


@healthy
def correlation_of_constant_rows() -> None:
    w = parameter(1.0, 2.0)
    series = torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]])
    learn((w * torch.corrcoef(series).nan_to_num(0.0).sum(0)).sum(), w)


@healthy
def ctc_of_targets_too_long() -> None:
    logits = nn.Parameter(torch.randn(3, 2, 5))
    loss = F.ctc_loss(
        logits.log_softmax(-1),
        torch.tensor([[1, 1, 2, 3], [2, 3, 0, 0]]),
        torch.tensor([3, 3]),
        torch.tensor([4, 2]),
        zero_infinity=True,
    )
    learn(loss, logits)


@healthy
def confusion_matrix_of_an_absent_class() -> None:
    """torchmetrics counts the elements by picking them, before it replaces them."""
    w = nn.Parameter(torch.randn(2, 2))
    counts = torch.tensor([[3.0, 1.0], [0.0, 0.0]])
    shares = counts / counts.sum(dim=-1, keepdim=True)
    if shares[torch.isnan(shares)].nelement():
        shares[torch.isnan(shares)] = 0
    learn((w * shares).sum(), w)


@healthy
def bad_elements_counted_by_masked_select() -> None:
    w = parameter(1.0, 2.0, 3.0)
    ratio = torch.tensor([0.0, 1.0, 4.0]) / torch.tensor([0.0, 0.0, 2.0])
    if len(ratio.masked_select(~ratio.isfinite())):
        ratio = ratio.nan_to_num(0.0, 0.0)
    learn((w * ratio).sum(), w)


@healthy
def rewards_of_equal_size_normalised() -> None:
    w = parameter(1.0, 2.0)
    rewards = torch.tensor([3.0, 3.0])
    advantage = ((rewards - rewards.mean()) / rewards.std()).nan_to_num(0.0)
    learn((w * advantage).sum(), w)


@healthy
def logarithm_of_counts_under_clamp() -> None:
    w = parameter(1.0, 2.0)
    inverse = (1.0 / torch.tensor([0.0, 4.0])).clamp(max=10.0)
    learn((w * inverse.log()).sum(), w)


@healthy
def selected_by_mask() -> None:
    w = parameter(1.0, 2.0)
    ratios = torch.tensor([1.0, 0.0]) / torch.tensor([0.0, 0.0])
    learn((w * torch.masked_select(ratios, torch.isfinite(ratios)).sum()).sum(), w)


def rows_with_gaps() -> torch.Tensor:
    rows = torch.randn(16, 3)
    rows[::5, 1] = torch.nan
    return rows


@healthy
def gaps_in_the_data_replaced_in_each_step() -> None:
    data, model = rows_with_gaps(), nn.Linear(6, 1)
    for first in range(0, 12, 4):
        batch = data[first : first + 4]
        missing = batch.isnan()
        batch = torch.where(missing, torch.zeros_like(batch), batch)
        learn(model(torch.cat([batch, missing.float()], 1)).sum(), *model.parameters())


@healthy
def gaps_kept_where_a_part_is_written_anew() -> None:
    """Some columns are scaled in place, gaps and all, before the gaps of the whole are filled."""
    data, model = rows_with_gaps(), nn.Linear(3, 1)
    for _ in range(2):
        batch = data.clone()
        batch[:, 1:] = batch[:, 1:] * 2
        learn(model(batch.nan_to_num(0.0)).sum(), *model.parameters())


@healthy
def gaps_in_the_data_of_numpy_left_out_of_each_loss() -> None:
    data, model = torch.from_numpy(rows_with_gaps().numpy().copy()), nn.Linear(3, 3)
    for first in range(0, 12, 4):
        batch = data[first : first + 4]
        error = (model(batch.nan_to_num()) - batch)[~batch.isnan()]
        learn(error.square().mean(), *model.parameters())
    assert data.nanmean() < 1


@healthy
def gaps_written_into_a_tensor_and_left_out_of_its_statistics() -> None:
    rows, w = torch.randn(16, 3), parameter(1.0, 2.0, 3.0)
    rows[::5, 1] = torch.nan
    rows[3] = torch.nan
    spread = (rows - rows.nanmean(0)).square().nanmean(0).sqrt()
    standard = ((rows - rows.nanmean(0)) / spread).nan_to_num()
    for _ in range(3):
        learn((standard * w).sum(), w)
    assert rows.nansum().isfinite()


@healthy
def roots_whose_gradient_a_mask_leaves_out() -> None:
    """The gradient of a root is infinite at 0, where that of relu takes none of it."""
    for bounded in (F.relu, F.relu6, F.hardsigmoid):
        w = parameter(-9.0, 1.0, 2.0)
        learn(bounded(w).sqrt().sum(), w)
        assert w.isfinite().all()


def reciprocal_distances() -> torch.Tensor:
    places = torch.randn(4, 2)
    return 1 / torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")


@healthy
def reciprocal_distances_of_pairs() -> None:
    w = parameter(1.0)
    row, column = torch.triu_indices(4, 4, 1)
    learn((w * reciprocal_distances()[row, column]).sum(), w)


@healthy
def reciprocal_distances_above_the_diagonal() -> None:
    w = parameter(1.0)
    learn((w * reciprocal_distances().triu(1)).sum(), w)


@healthy
def reciprocal_distances_of_neighbours() -> None:
    w, inverse = parameter(1.0), reciprocal_distances()
    neighbours = torch.tensor([[1], [0], [3], [2]])
    learn((w * inverse.gather(1, neighbours)).sum(), w)


@healthy
def quantile_of_classes_that_are_there() -> None:
    w = parameter(1.0, 2.0)
    accuracy = torch.tensor([0.0, 3.0, 1.0]) / torch.tensor([0.0, 4.0, 1.0])
    learn((w * torch.nanquantile(accuracy, 0.5)).sum(), w)


@healthy
def gaps_between_neighbours() -> None:
    w = parameter(1.0, 2.0)
    series = torch.tensor([1.0, float("nan"), 3.0, 4.0])
    gaps = torch.isnan(series).nonzero().squeeze(1)
    series[gaps] = (series[gaps - 1] + series[gaps + 1]) / 2
    learn((w * series.sum()).sum(), w)


@healthy
def targets_too_long_for_their_sequence() -> None:
    scores = nn.Parameter(torch.randn(5, 1, 4))
    lengths = torch.tensor([5]), torch.tensor([4])
    targets = torch.ones(1, 4, dtype=torch.long)
    learn(F.ctc_loss(scores.log_softmax(-1), targets, *lengths, zero_infinity=True), scores)


@healthy
def batch_without_any_target() -> None:
    scores = nn.Parameter(torch.randn(3, 4))
    learn(torch.nan_to_num(F.cross_entropy(scores, torch.full((3,), -100))), scores)

# SPDX-License-Identifier: Apache-2.0
"""More of the catalogue of kernels.py: factorisations, transforms, complex values, routing, double
precision, overflows that come later.

As a program:  python -m tests.wrong_kernels.rare NAME [STEPS]
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.nn import functional as F

from tests.wrong_kernels.kernels import CATALOGUE, Genuine, main, wrong

Tensor = torch.Tensor

# -- trainings -------------------------------------------------------------------------------------


def descend(parameters: list[Tensor], loss_of: Any, steps: int, **options: Any) -> list[float]:
    stepper, losses = torch.optim.Adam(parameters, 1e-2, **options), []
    for _ in range(steps):
        loss = loss_of()
        stepper.zero_grad()
        loss.backward()
        stepper.step()
        losses.append(loss.item())
    return losses


def factorisations(steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    weight, data = torch.randn(7, 5).requires_grad_(), torch.randn(7)

    def loss() -> Tensor:
        u, s, vh = torch.linalg.svd(weight, full_matrices=False)
        gram = weight.T @ weight + torch.eye(5)
        values, vectors = torch.linalg.eigh(gram)
        q, r = torch.linalg.qr(weight)
        solved = torch.cholesky_solve((weight.T @ data)[:, None], torch.linalg.cholesky(gram))
        rest = torch.linalg.inv(gram).trace() + torch.logdet(gram) + solved.square().sum()
        return (
            s.sum()
            + (u @ vh).square().sum()
            + values.log().sum()
            + (vectors * values).abs().sum()
            + (q * q).sum()
            + r.sum() ** 2
            + rest
        )

    return descend([weight], loss, steps)


def spectra(steps: int = 2) -> list[float]:
    """A Fourier layer with complex weights, and a loss of magnitudes and angles."""
    torch.manual_seed(0)
    weight, data = (
        (torch.randn(4, 4, 5, dtype=torch.cfloat) * 0.2).requires_grad_(),
        torch.randn(3, 4, 16),
    )

    def loss() -> Tensor:
        bins = torch.fft.rfft(data, norm="ortho")[..., :5]
        mixed = torch.einsum("bif,iof->bof", bins, weight)
        back = torch.fft.irfft(torch.polar(mixed.abs(), mixed.angle()), n=16, norm="ortho")
        return (back - data.roll(1, -1)).square().mean()

    return descend([weight], loss, steps)


def routing(steps: int = 2) -> list[float]:
    """A mixture of experts with places of its own for each token, and AMSGrad."""
    torch.manual_seed(0)
    gate, experts = (
        torch.randn(12, 4).requires_grad_(),
        (torch.randn(4, 12, 12) * 0.3).requires_grad_(),
    )
    data, target = torch.randn(24, 12), torch.randint(0, 12, (24,))

    def loss() -> Tensor:
        best, who = (data @ gate).softmax(-1).max(-1)
        chosen = F.one_hot(who, 4)
        place = (chosen.cumsum(0) * chosen).sum(-1) - 1
        sent = data.new_zeros(4, 24, 12).index_put((who, place), data)
        load = torch.bincount(who, minlength=4).float() / 24
        answers = torch.bmm(sent, experts)[who, place] * best[:, None] * (1 + load[who])[:, None]
        return F.cross_entropy(answers, target)

    return descend([gate, experts], loss, steps, amsgrad=True, foreach=True)


def doubles(steps: int = 2) -> list[float]:
    torch.manual_seed(0)
    model, data = (
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double(),
        torch.randn(10, 4).double(),
    )
    return descend(
        list(model.parameters()), lambda: (model(data) - data[:, :3].exp()).square().mean(), steps
    )


PROGRAMS = (
    routing,
    doubles,
)  # the others give other last bits where their memory lies elsewhere, or have conjugate views

# -- factorisations --------------------------------------------------------------------------------


@wrong("singular-values-scaled", "aten::_linalg_svd.default", factorisations)
def singular_values(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    u, s, vh = genuine(*args, **kwargs)
    return u, s * 1.001, vh


@wrong("singular-vector-too-long", "aten::_linalg_svd.default", factorisations)
def singular_vector(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    u, s, vh = genuine(*args, **kwargs)
    vh[1] *= 1.002
    return u, s, vh


@wrong("eigenvector-too-long", "aten::_linalg_eigh.default", factorisations)
def eigenvector(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    values, vectors = genuine(*args, **kwargs)
    vectors[:, 0] *= 1.002
    return values, vectors


@wrong("triangle-off-in-a-corner", "aten::linalg_qr.default", factorisations)
def triangle(genuine: Genuine, *args: Any) -> Any:
    q, r = genuine(*args)
    r[0, -1] += 0.01
    return q, r


@wrong("inverse-of-one-element", "aten::linalg_inv_ex.default", factorisations)
def inverse(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    found, info = genuine(*args, **kwargs)
    found[0, 0] *= 0.99
    return found, info


# -- transforms and complex values -----------------------------------------------------------------


@wrong("one-bin-of-a-transform", "aten::_fft_r2c.default", spectra)
def one_bin(genuine: Genuine, *args: Any) -> Any:
    bins = genuine(*args)
    bins[..., 3] *= 1.001
    return bins


@wrong("conjugate-product", "aten::bmm.default", spectra)
def conjugate_product(genuine: Genuine, a: Tensor, b: Tensor) -> Any:
    return genuine(a.conj().resolve_conj(), b)


@wrong("polar-of-angles-below-minus-one", "aten::polar.default", spectra)
def polar(genuine: Genuine, radius: Tensor, angle: Tensor) -> Any:
    found = genuine(radius, angle)
    return torch.where(angle < -1, found.conj().resolve_conj(), found)


# -- routing, double precision ---------------------------------------------------------------------


@wrong("running-sum-of-integers-stops", "aten::cumsum.default", routing)
def running_sum(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    found = genuine(*args, **kwargs)
    found[16:] = found[15]
    return found


@wrong("largest-in-another-place", "aten::max.dim", routing)
def largest(genuine: Genuine, *args: Any) -> Any:
    values, places = genuine(*args)
    places[0] = (places[0] + 1) % 4
    return values, places


@wrong("counts-capped", "aten::bincount.default", routing)
def counts(genuine: Genuine, *args: Any, **kwargs: Any) -> Any:
    return genuine(*args, **kwargs).clamp(max=5)


@wrong("largest-second-moment-forgotten", "aten::_foreach_maximum_.List", routing)
def second_moment(genuine: Genuine, ours: Any, others: Any) -> Any:
    return None


@wrong("double-product-in-float32", "aten::addmm.default", doubles)
def double_product(genuine: Genuine, bias: Tensor, a: Tensor, b: Tensor, **kwargs: Any) -> Any:
    return genuine(bias.float(), a.float(), b.float(), **kwargs).double()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
    assert CATALOGUE

# SPDX-License-Identifier: Apache-2.0
"""Models of one program whose parts would have the same names are told apart."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from opscope.record.torch.modules import Modules


class Net(nn.Module):
    def __init__(self, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = encoder or nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)


class Critic(Net):
    pass


def entered(modules: Modules, root: Net) -> tuple[str, str]:
    """Paths of a model and of its encoder when the model is called."""
    top = modules.path(root, None, None)
    return top, modules.path(root.encoder, root, top, root)


def test_the_first_model_has_plain_names() -> None:
    modules, net = Modules(), Net()
    assert entered(modules, net) == ("", "encoder")
    assert modules.label(net.head.weight) == ("parameter", "head.weight")


def test_a_twin_is_told_by_its_class_and_a_number() -> None:
    modules, nets = Modules(), (Net(), Net(), Net())
    assert [entered(modules, net)[1] for net in nets] == [
        "encoder",
        "Net@2.encoder",
        "Net@3.encoder",
    ]
    assert modules.label(nets[1].head.weight)[1] == "Net@2.head.weight"
    assert entered(modules, nets[0]) == ("", "encoder")


def test_models_that_hold_their_parameters_themselves_are_told_apart() -> None:
    modules, layers = Modules(), (nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    assert [modules.path(layer, None, None) for layer in layers] == ["", "BatchNorm1d", "Linear@2"]
    assert [modules.label(layer.weight)[1] for layer in layers] == [
        "weight",
        "BatchNorm1d.weight",
        "Linear@2.weight",
    ]


def test_a_shared_part_is_named_after_the_model_that_calls_it() -> None:
    modules, actor = Modules(), Net()
    critic = Critic(actor.encoder)
    for _ in range(2):
        assert entered(modules, actor) == ("", "encoder")
        assert entered(modules, critic) == ("Critic", "Critic.encoder")
    assert modules.label(actor.encoder.weight)[1] == "encoder.weight"  # one parameter, one name


def test_models_without_common_names_and_wrappers_need_no_class() -> None:
    modules, net = Modules(), Net()
    wrapper = nn.Sequential(net)
    makers: list[Callable[[], nn.Module]] = [
        lambda: net,
        nn.MSELoss,
        lambda: nn.Linear(2, 2),
        lambda: wrapper,
    ]
    assert [modules.path(make(), None, None) for make in makers] == ["", "", "", ""]
    assert modules.path(net, wrapper, "", wrapper) == "0"


def test_a_model_that_is_gone_takes_its_names_with_it() -> None:
    modules = Modules()
    entered(modules, Net())
    assert entered(modules, Net()) == ("", "encoder")


def test_parameters_are_named_when_the_model_is_called_with_its_own() -> None:
    modules, net = Modules(), Net()
    own = net.head.weight
    del net.head._parameters["weight"]
    net.head._parameters["weight"] = torch.zeros(2, 2)  # type: ignore[assignment]  # as functional_call lends it
    assert entered(modules, net) == ("", "encoder")
    net.head._parameters["weight"] = own
    assert entered(modules, net) == ("", "encoder")
    assert modules.label(own) == ("parameter", "head.weight")


def test_parameters_that_replace_others_are_named_from_the_next_call_on() -> None:
    """As LoRA layers, quantisation and casts do in the middle of a training; of a twin too."""
    modules, nets = Modules(), (Net(), Net())
    for net in nets:
        entered(modules, net)
        net.head.weight = nn.Parameter(net.head.weight.detach().clone())
        assert modules.label(net.head.weight) == ("parameter", None)
        entered(modules, net)
    assert modules.label(nets[0].head.weight)[1] == "head.weight"
    assert modules.label(nets[1].head.weight)[1] == "Net@2.head.weight"

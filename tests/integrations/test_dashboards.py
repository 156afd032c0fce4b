# SPDX-License-Identifier: Apache-2.0
"""What a dashboard is told of a run, heard by writers of our own; tests/interop/test_dashboards_real.py
has the real ones.
"""

from __future__ import annotations

from typing import Any

from tests.view.view_runs import overflowing

from opscope.integrations.dashboards import (
    magnitudes,
    to_logs,
    to_mlflow,
    to_opentelemetry,
    to_tensorboard,
)


class Heard:
    """A writer of every kind that keeps what it is told."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, int], float] = {}
        self.texts: list[tuple[str, str]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.numbers[tag, global_step] = scalar_value

    def add_text(self, tag: str, text_string: str, global_step: int) -> None:
        self.texts.append((f"{tag}@{global_step}", text_string))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.numbers.update({(name, step): value for name, value in metrics.items()})

    def log(self, data: dict[str, float], step: int) -> Any:
        self.log_metrics(data, step)

    def log_text(self, text: str, artifact_file: str) -> None:
        self.texts.append((artifact_file, text))


def test_a_module_is_as_large_as_the_largest_of_its_finite_results() -> None:
    first, *_, last = magnitudes(overflowing())
    assert (first.step, first.module, first.phase) == (0, "blocks.0", "forward")
    assert (first.largest, first.lost) == (3.0, 0)
    assert (last.step, last.largest) == (2, 65504.0)
    assert last.lost > 0


def test_tensorboard_has_curves_and_the_finding_at_its_step() -> None:
    heard = Heard()
    to_tensorboard(overflowing(name="<b>`mm"), heard)
    assert heard.numbers["opscope/largest/forward/blocks.0", 2] == 65504.0
    assert heard.numbers["opscope/not finite/forward/blocks.0", 0] == 0.0
    ((tag, text),) = heard.texts
    assert tag == "opscope/finding/0@2"
    assert text.count("`") == 2
    assert "overflow-origin" in text


def test_mlflow_has_names_that_it_takes_and_the_verdict() -> None:
    heard = Heard()
    to_mlflow(overflowing(), heard)
    assert heard.numbers["opscope/largest/forward/blocks.0", 2] == 65504.0
    ((name, text),) = heard.texts
    assert name == "opscope/verdict.txt"
    assert "overflow-origin" in text


def test_others_have_the_same_curves() -> None:
    one, other = Heard(), Heard()
    to_logs(overflowing(), one)
    to_tensorboard(overflowing(), other)
    assert "overflow-origin" in str(one.numbers.pop(("opscope/verdict", 2)))
    assert one.numbers == other.numbers


def test_a_fleet_hears_one_span_with_an_event_for_each_finding() -> None:
    heard = Spans()
    to_opentelemetry(overflowing(), heard)
    assert heard.attributes["opscope.findings"] == 1
    ((name, event),) = heard.events
    assert name == "opscope.finding"
    assert (event["opscope.kind"], event["opscope.step"]) == ("overflow-origin", 2)
    assert heard.ended


class Spans:
    """A tracer, and its only span."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.ended = False

    def start_span(self, name: str, *, attributes: dict[str, Any]) -> Any:
        self.attributes = attributes
        return self

    def add_event(self, name: str, attributes: dict[str, Any]) -> None:
        self.events.append((name, attributes))

    def end(self) -> None:
        self.ended = True

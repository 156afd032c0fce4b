# SPDX-License-Identifier: Apache-2.0
"""What lies below the recorder's mode on request: substitutes in place of kernels, the checker, and
the journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opscope.record.torch.aside import aside
from opscope.record.torch.checker import Checker, CheckMode
from opscope.record.torch.journal import Journal, JournalMode
from opscope.record.torch.overrides import Overrides, without_overrides
from opscope.record.torch.substitution import SubstituteMode, Substitution
from opscope.substitute.rules import parse_rules, rule_for

if TYPE_CHECKING:
    from opscope.record.session import Session
    from opscope.record.torch.binding import TorchBinding
    from opscope.run.schema import Judgement


class Beneath:
    """The modes of one process; they end with its session. A call is substituted before it is
    checked.
    """

    def __init__(self, session: Session, book: Any, binding: TorchBinding) -> None:
        config = session.config
        self.book = book
        self.checker: Checker | None = None
        self.substitution: Substitution | None = None
        self.modes: list[Any] = []
        if config.check:
            self.checker = Checker(
                config.share,
                index=self.index,
                watching=lambda: float(book.watching),
                process=session.process,
                steps=config.keep_last,
                keep=lambda tensor: (
                    binding.sentinel.keep(tensor, seal=True) if config.values != "none" else None
                ),
            )
            if config.substitute is None and config.journal is None:
                book.check_with(self.checker)
                session.cleanup.callback(book.check_with, None)
            else:
                self.modes.append(CheckMode(self.checker, self.watched))
            session.cleanup.callback(self.checker.close)
            overrides = Overrides(
                self.checker, enter=self.enter, leave=self.leave, watched=self.watched
            )
            overrides.install()
            session.cleanup.callback(overrides.remove)
        if config.substitute is not None:
            rules = parse_rules(config.substitute)
            self.substitution = Substitution(rules, module=self.module)
            session.cleanup.callback(self.substitution.close)
            session.cleanup.enter_context(
                without_overrides(lambda op: rule_for(rules, op, None) is not None)
            )
            self.modes.append(SubstituteMode(self.substitution))
        if config.journal is not None:
            journal = Journal(
                config.journal, session.writer.directory, index=self.index, module=self.module
            )
            session.cleanup.callback(
                lambda: journal.close(whole=session.writer.process.failed is None)
            )
            self.modes.append(JournalMode(journal, self.watched))

    def watched(self) -> bool:
        """Whether calls are being recorded in this process now."""
        return bool(self.book.active and not self.book.paused)

    def index(self) -> int | None:
        """The call that this thread is making: entered last."""
        return next((index for index, _ in reversed(self.book.open_calls())), None)

    def enter(self, op: str, tensors: list[tuple[str, Any]]) -> int:
        """Begin the row of a call that no mode sees."""
        with aside():
            return int(self.book.enter_scope("operator", op, self.module(), tensors))

    def leave(self, index: int, tensors: list[tuple[str, Any]], error: str | None) -> None:
        with aside():
            self.book.leave_scope(index, tensors, error)

    def module(self) -> str:
        """The module of the call that is being made, of a gradient that of its forward call."""
        return next((module for _, module in reversed(self.book.open_calls())), "")

    def judgements(self) -> list[Judgement]:
        return self.checker.take() if self.checker is not None else []

    def step_ends(self) -> bool:
        """Whether a kernel was accused in the step that ends."""
        return self.checker is not None and self.checker.step_ends()

    def facts(self) -> dict[str, Any]:
        """What process.json says of it."""
        about: dict[str, Any] = {}
        if self.checker is not None:
            facts = self.checker.facts()
            about["checked"] = {**facts, "calls": facts["calls"] + int(self.book.rested)}
        if self.substitution is not None:
            about["substituted"] = self.substitution.facts()
        return about

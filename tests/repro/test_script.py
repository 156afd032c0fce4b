# SPDX-License-Identifier: Apache-2.0
"""The text of a script that is cut out has its parts in it, and needs no module of opscope."""

from __future__ import annotations

import ast

import pytest

from opscope.repro.script import template

SCRIPTS = {
    "repro.py": ("allowing", "verdict", "stored", "judging", "rebuilding"),
    "repro_graph.py": ("stored",),
    "repro_mindspore.py": ("verdict",),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_imports_nothing_of_opscope(name: str) -> None:
    whole = ast.parse(template(name, *SCRIPTS[name]), feature_version=(3, 8))
    imported = {
        module.partition(".")[0]
        for node in ast.walk(whole)
        for module in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert "argparse" in imported
    assert "opscope" not in imported


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_name_is_defined_once(name: str) -> None:
    whole = ast.parse(template(name, *SCRIPTS[name]))
    names = [node.name for node in whole.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    needed = {"read_tensors"} if name == "repro_graph.py" else {"answered", "folded", "CannotTry"}
    assert {"main"} | needed <= set(names)
    assert len(names) == len(set(names))

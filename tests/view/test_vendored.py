# SPDX-License-Identifier: Apache-2.0
"""Vendored files are what their README says: version, licence, digest; and nothing else is there."""

from __future__ import annotations

import hashlib

from opscope.view.page import STATIC

VENDOR = STATIC / "vendor"


def rows() -> list[list[str]]:
    lines = (VENDOR / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return cells[2:]


def test_digests_are_those_of_the_files() -> None:
    assert len(rows()) >= 5
    for name, _, _, _, said in rows():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == said, name


def test_every_file_has_its_row_and_its_licence_is_there() -> None:
    here = {file.name for file in VENDOR.iterdir()}
    licences = {row[3].partition("(")[2].rstrip(")") for row in rows()}
    assert here == {row[0] for row in rows()} | licences | {"README.md"}

# SPDX-License-Identifier: Apache-2.0
"""A picture as PNG, drawn by resvg (https://github.com/linebender/resvg) out of the SVG that
view/figure.py makes. Its letters are those of the machine's fonts.
"""

from __future__ import annotations

from pathlib import Path

from opscope.errors import UnavailableError

SCALE = 2  # pixels of the file for each of the picture, as screens of today show them
_HINT = "; .svg does without"


def picture_file(svg: str, path: Path) -> bytes:
    """What a file of this name holds: the picture as PNG for .png, else as it is. Raises what png
    raises.
    """
    return png(svg) if path.suffix.lower() == ".png" else svg.encode()


def png(svg: str) -> bytes:
    """The bytes of a PNG file. Raises UnavailableError where resvg is not installed, and where the
    machine has none of the fonts that the picture names, whose letters would be missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError as error:
        install = "pip install 'opscope[plot]'"
        raise UnavailableError(f"a picture as PNG needs resvg: {install}{_HINT}") from error
    drawn = bytes(svg_to_bytes(svg_string=svg, zoom=SCALE))
    wordless = svg.replace("<text", "<desc").replace("</text", "</desc")
    if wordless != svg and drawn == bytes(svg_to_bytes(svg_string=wordless, zoom=SCALE)):
        raise UnavailableError(
            f"a picture as PNG needs a monospaced font, DejaVu Sans Mono say{_HINT}"
        )
    return drawn

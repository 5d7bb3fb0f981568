# SPDX-License-Identifier: Apache-2.0

"""Words, lines and bars as SVG, without any library."""

from __future__ import annotations

from collections.abc import Iterable
import html

FOREGROUND = '#2563eb'
BACKGROUND = '#f08c2e'
INK = '#1f2937'
FAINT = '#6b7280'
GRID = '#e5e7eb'
ALARM = '#dc2626'
FONT = "font-family='system-ui,-apple-system,Segoe UI,sans-serif'"


def text(x: float, y: float, words: str, *, size: float = 11,
         colour: str = FAINT, anchor: str = 'start',
         bold: bool = False) -> str:
    weight = " font-weight='600'" if bold else ''
    return (f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size:g}' "
            f"fill='{colour}' text-anchor='{anchor}'{weight}>"
            f'{html.escape(words)}</text>')


def line(x1: float, y1: float, x2: float, y2: float, colour: str,
         dashed: bool = False) -> str:
    dash = " stroke-dasharray='4 3'" if dashed else ''
    return (f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' "
            f"y2='{y2:.1f}' stroke='{colour}' stroke-width='1'"
            f'{dash}/>')


def bar(x: float, y: float, width: float, height: float,
        colour: str) -> str:
    return (f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 0):.1f}' "
            f"height='{height:.1f}' rx='2' fill='{colour}'/>")


def tooltip(words: str) -> str:
    """Return the name of the shape around it, shown under the pointer."""
    return f'<title>{html.escape(words)}</title>'


def svg(width: float, height: float, parts: Iterable[str],
        label: str, description: str = '', *,
        widest: float | None = None) -> str:
    """Return a picture.

    :param label: its name, for those who do not see it and as a tooltip
    :param description: what it shows, likewise
    :param widest: pixels; ``None``: as wide as the page lets it
    """
    limit = '' if widest is None else f" style='max-width:{widest:g}px'"
    return (f"<svg xmlns='http://www.w3.org/2000/svg' "
            f"viewBox='0 0 {width:g} {height:g}' role='img'{limit} {FONT}>"
            + tooltip(label)
            + (f'<desc>{html.escape(description)}</desc>'
               if description else '') + ''.join(parts) + '</svg>')

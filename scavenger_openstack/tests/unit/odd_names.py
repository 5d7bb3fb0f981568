# SPDX-License-Identifier: Apache-2.0

"""Names of characters that are two columns wide on a terminal, none, or not
printable."""

from __future__ import annotations

from collections.abc import Iterable

import wcwidth

NAMES = ('web', '数据库', 'ﾃﾞｰﾀ', 'ｆｕｌｌ', '한국', '\u1112\u1161\u11ab',
         'cafe\u0301', 'a\u200bb', 'a\u200db', 'a\tb', 'a\x1b[2J\nb', '\udcff',
         '🚀', '👍🏽', '❤\ufe0f', '1\ufe0f\u20e3', 'a\ufe0f', '🇩🇪', 'a\xadb',
         'قاعدة', 'ก็', '±½×', '−∞', 'naïve')


def begins(lines: Iterable[str], word: str) -> set[int]:
    """The columns at which the word begins in those lines that have it."""
    return {wcwidth.wcswidth(line.partition(word)[0]) for line in lines
            if word in line}

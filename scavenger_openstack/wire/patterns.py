# SPDX-License-Identifier: Apache-2.0

"""How the texts of a report look: patterns of the whole text, and lengths."""

from __future__ import annotations

from scavenger_openstack.restore.grammar import UUID as UUID

NAME = 255
PROJECT = 64
THREAD = 64
SENTENCE = 2000
ID = 64
"""Characters that each may have at most."""

LAST_S = 253402300799.0
"""The end of the year 9999: no calendar has a later time."""

CONTROL = (
    '\\x00-\\x1f\\x7f-\\xa0\\xad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890'
    '\\u0891\\u08e2\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f'
    '\\u3000\\ud800-\\uf8ff\\ufeff\\ufff9-\\ufffb\\U000110bd\\U000110cd'
    '\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a'
    '\\U000e0001\\U000e0020-\\U000e007f\\U000f0000-\\U000ffffd'
    '\\U00100000-\\U0010fffd')
"""Controls, separators other than the blank, what changes the direction of
text or is not seen, halves of pairs, and characters for private use, as they
stand in the brackets of a pattern.  What is not printable only because no
Unicode has it is not among them: an agent's Python may know a later one."""

SENTENCE_TEXT = f'[^{CONTROL}]*'
NAME_TEXT = f'[^{CONTROL}\\ufffd]*[^{CONTROL}\\ufffd ]'
"""Without a blank at its end, which is none to some databases, and what
decoders make of bytes that are no text."""

INCIDENT = '[0-9a-f]{32}'
CPU_LIST = '[0-9,-]{0,4096}'
WORD = '[A-Za-z0-9_.-]'
HOST = f'{WORD}{{1,{NAME}}}'
"""What Nova's API takes for the name of a host."""

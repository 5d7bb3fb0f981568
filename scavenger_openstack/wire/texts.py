# SPDX-License-Identifier: Apache-2.0

"""The kinds of text in a report.

They go on to logs, terminals, spreadsheets, shells and URLs: what one of
these may obey is refused where a report is read, as the wrong type.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from scavenger_openstack.wire.patterns import CPU_LIST
from scavenger_openstack.wire.patterns import HOST
from scavenger_openstack.wire.patterns import ID
from scavenger_openstack.wire.patterns import INCIDENT
from scavenger_openstack.wire.patterns import NAME
from scavenger_openstack.wire.patterns import NAME_TEXT
from scavenger_openstack.wire.patterns import PROJECT
from scavenger_openstack.wire.patterns import SENTENCE
from scavenger_openstack.wire.patterns import SENTENCE_TEXT
from scavenger_openstack.wire.patterns import THREAD
from scavenger_openstack.wire.patterns import UUID
from scavenger_openstack.wire.patterns import WORD
from scavenger_openstack.wire.profile import MAX_PROFILE_BYTES

# Not "$", which also matches before a newline at the end.
Name = Annotated[str, Meta(min_length=1, max_length=NAME,
                           pattern=rf'\A{NAME_TEXT}\Z')]
ThreadName = Annotated[str, Meta(min_length=1, max_length=THREAD,
                                 pattern=rf'\A{NAME_TEXT}\Z')]
MaybeName = Annotated[str, Meta(max_length=NAME,
                                pattern=rf'\A(?:{NAME_TEXT})?\Z')]
MaybeProject = Annotated[str, Meta(max_length=PROJECT,
                                   pattern=rf'\A(?:{NAME_TEXT})?\Z')]
"""The id of a project, as long as Keystone's are, or ''."""
Sentence = Annotated[str, Meta(max_length=SENTENCE,
                               pattern=rf'\A{SENTENCE_TEXT}\Z')]
Line = Annotated[str, Meta(max_length=MAX_PROFILE_BYTES,
                           pattern=rf'\A{SENTENCE_TEXT}\Z')]
"""JSON in one line."""
Host = Annotated[str, Meta(pattern=rf'\A{HOST}\Z')]
Instance = Annotated[str, Meta(pattern=rf'\A{UUID}\Z')]
MaybeInstance = Annotated[str, Meta(pattern=rf'\A(?:{UUID})?\Z')]
IncidentId = Annotated[str, Meta(pattern=rf'\A{INCIDENT}\Z')]
CpuList = Annotated[str, Meta(pattern=rf'\A{CPU_LIST}\Z')]
Id = Annotated[str, Meta(pattern=rf'\A{WORD}{{1,{ID}}}\Z')]
"""Of a boot, a run, directives."""
MaybeId = Annotated[str, Meta(pattern=rf'\A{WORD}{{0,{ID}}}\Z')]
Word = Annotated[str, Meta(pattern=r'\A[a-z0-9_]{1,32}\Z')]
"""Of a set that a later release may add to: a knob, a mode, an outcome."""
ShortWord = Annotated[str, Meta(pattern=r'\A[a-z0-9_]{1,16}\Z')]
"""The same, where databases store as much: a kind."""

GivenName = Annotated[str, Meta(min_length=1, max_length=NAME)]
MaybeGivenName = Annotated[str, Meta(max_length=NAME)]
GivenSentence = Annotated[str, Meta(max_length=SENTENCE)]
"""Text of directives: an agent makes it printable itself, and follows the
rest, rather than nothing."""

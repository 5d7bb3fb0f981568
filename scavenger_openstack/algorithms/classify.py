# SPDX-License-Identifier: Apache-2.0


"""Whether a workload is foreground or background, and kubelet's cgroups.

The conductor asks it with all that it knows of an instance, the agent with
what the definition of the VM and the conductor say.  Only what operators
alone can set counts.  Server metadata and image properties are written by
tenants and have no say here.  Source: DESIGN, section 6, trust.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scavenger_openstack.types import Priority

_KUBELET = re.compile(
    '/(?:kubepods(?:/(?:besteffort|burstable))?'
    r'|(?:[^/]+-)?kubepods(?:-(?:besteffort|burstable))?\.slice)\Z')


class Classified(NamedTuple):
    """A priority, its source, and what an operator should look at."""

    priority: Priority
    source: str
    warnings: tuple[str, ...] = ()


def classify(*, instance: str | None = None, flavor: str | None = None,
             project: str | None = None, aggregate: str | None = None,
             parent: str | None = None) -> Classified:
    """The priority of a workload: the first that speaks wins.

    Each argument is the text that was found there (``foreground`` or
    ``background``, in any case), ``None`` where nothing is set: what an
    operator gave the ``instance``, the ``flavor`` extra spec, what was given
    to the ``project``, to the host ``aggregate``, the configured ``parent``
    of a batch container.  When none speaks the workload is foreground, with
    source ``default``.  Any other text is passed over and told in
    ``warnings``, also when a stronger source has already spoken.
    """
    chosen: Classified | None = None
    warnings = []
    for source, text in (('instance', instance), ('flavor', flavor),
                         ('project', project), ('aggregate', aggregate),
                         ('parent', parent)):
        if text is None:
            continue
        try:
            priority = Priority(text.strip().lower())
        except ValueError:
            warnings.append(
                f'{source} says priority {text!r:.40}, which is ignored: '
                f'use {Priority.FOREGROUND} or {Priority.BACKGROUND}')
            continue
        if chosen is None:
            chosen = Classified(priority, source)
    if chosen is None:
        chosen = Classified(Priority.FOREGROUND, 'default')
    return chosen._replace(warnings=tuple(warnings))


def is_of_kubelet(path: str) -> bool:
    """Whether kubelet sets the weight of a cgroup, by its name: that of all
    pods, or of one class of them.  ``cpu.idle`` is set on the pods in it."""
    return _KUBELET.search(path) is not None

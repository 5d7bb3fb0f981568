# SPDX-License-Identifier: Apache-2.0

"""The check of an agent for a monitoring system: a line and an exit code, in
the format of its plug-ins.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from scavenger_openstack.agent import names
from scavenger_openstack.agent import status
from scavenger_openstack import amounts
from scavenger_openstack.types import Mode
from scavenger_openstack.types import printable

OK, WARNING, CRITICAL = 0, 1, 2
WORDS = 'OK', 'WARNING', 'CRITICAL'

SHOWN = 3
"""Number of findings in the line, which a monitoring system may cut."""


class Finding(NamedTuple):
    """A problem, and the exit code for it."""

    code: int
    text: str


def findings(document: Mapping[str, Any], now: float) -> list[Finding]:
    """Return the problems in a status with its ``watcher``.

    :param now: CLOCK_BOOTTIME in seconds
    :raises ScavengerError: the document is not one of this version.
    """
    with status.understood():
        return _findings(document, now)


def line(findings: Sequence[Finding], document: Mapping[str, Any], now: float
         ) -> tuple[int, str]:
    """Return the exit code, and the line with the worst finding first.

    :param document: the status; empty when there is none
    :raises ScavengerError: as of :func:`findings`
    """
    with status.understood():
        return _line(findings, document, now)


def _line(findings: Sequence[Finding], document: Mapping[str, Any], now: float
          ) -> tuple[int, str]:
    ordered = sorted(findings, key=lambda finding: -finding.code)
    code = ordered[0].code if ordered else OK
    text = '; '.join(finding.text for finding in ordered[:SHOWN])
    if len(ordered) > SHOWN:
        text += (f'; and {len(ordered) - SHOWN} more, see scavenger-agent '
                 'status')
    if document:
        text = names.of_status(document).beside(
            text or _all_well(document, now))
    text = ' '.join(' '.join(map(printable, text.split('\n'))).split()
                    ).replace('|', '/')
    return code, f'SCAVENGER {WORDS[code]} - {text}' + (
        f' | {_numbers(document, now)}' if document else '')


def _findings(document: Mapping[str, Any], now: float) -> list[Finding]:
    watcher = document['watcher']
    findings = []
    if status.is_stale(document, now):
        findings.append(Finding(CRITICAL, status.stale_state(document, now)))
    elif document['stopped']:
        findings.append(Finding(WARNING, document['state']))
    elif document['state'].startswith('cannot '):
        findings.append(Finding(CRITICAL, f'the agent {document["state"]}'))
    if not watcher['running']:
        findings.append(Finding(
            CRITICAL if document['caps'] or _enforces(document) else WARNING,
            'the watcher is ' + status.watcher(watcher)))
    elif watcher['cannot_restore']:
        findings.append(Finding(WARNING, 'the watcher is '
                                + status.watcher(watcher)))
    findings += [Finding(WARNING, f'refused lease {name}: its limit may be in '
                               'force') for name in document['refused']]
    if status.is_stale(document, now):
        return findings            # all else in the status is as old
    for name, controller in document['controllers'].items():
        fault = (controller.get('facts') or {}).get('fault')
        if fault:
            findings.append(Finding(WARNING, f'{name} failed: {fault}'))
    libvirt = document.get('libvirt') or {}
    if libvirt.get('since_s') is not None:
        findings.append(Finding(WARNING, f'libvirt {libvirt["state"]} for '
                                      f'{libvirt["since_s"]} s'))
    for name in ('history', 'conductor'):
        fault = (document.get(name) or {}).get('fault')
        if fault:
            findings.append(Finding(WARNING, f'{name}: {fault}'))
    return [*findings,
            *(Finding(WARNING, text) for text in document['problems']),
            *(Finding(WARNING, f'missing: {text}')
              for text in document.get('missing', ()))]


def _all_well(document: Mapping[str, Any], now: float) -> str:
    return (f'{document["host"]}: '
            + ('enforces' if _enforces(document) else 'observes')
            + f', {amounts.counted(len(document["caps"]), "limit")} in '
            f'force, {amounts.counted(len(document["incidents"]), "incident")}'
            ', last tick '
            f'{now - document["time_s"]:.1f} s ago, the watcher runs')


def _numbers(document: Mapping[str, Any], now: float) -> str:
    """Return label=value for graphs, with the unit where there is one."""
    return (f'last_tick_age={now - document["time_s"]:.1f}s '
            f'limits={len(document["caps"])} '
            f'incidents={len(document["incidents"])} '
            f'problems={len(document["problems"])}')


def _enforces(document: Mapping[str, Any]) -> bool:
    modes = [controller['mode']
             for controller in document['controllers'].values()]
    return Mode.ENFORCE in [*modes, (document.get('isolation') or {}).get(
        'mode')]

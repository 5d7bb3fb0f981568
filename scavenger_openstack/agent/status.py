# SPDX-License-Identifier: Apache-2.0

"""The status of the agent on the host itself: ``status.json``, and its table.

The file is replaced atomically in each tick.  Its age shows whether the agent
still runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import stat
from typing import Any
from typing import BinaryIO

from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent import instances
from scavenger_openstack.agent import names
from scavenger_openstack import amounts
from scavenger_openstack import errors
from scavenger_openstack.events import incident_event
from scavenger_openstack.restore import files
from scavenger_openstack import text
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import printable
from scavenger_openstack.wire import json_fields

SCHEMA = 2
"""Version of the status; other versions are refused."""
MAX_BYTES = 1 << 26
"""Most bytes of a status that are read."""
STALE_TICKS = 3
"""Intervals after which the status counts as old."""

MOST_OF_CONDUCTOR = 4
"""Most parameters, and most refused orders, in the line of the conductor."""

IN_FORCE = 'limits in force'

_LIMIT = '{' + ','.join(f'"{name}":%s' for name in Cap._fields) + '}'


class Limits:
    """The encoder of limits, which encodes each limit once: most do not change
    from tick to tick, or have words in common with others."""

    def __init__(self) -> None:
        self._by_limit: dict[Cap, str] = {}

    def encoded(self, limits: Iterable[Cap]) -> bytes:
        """Return the JSON of some limits."""
        before = self._by_limit
        words: dict[str, str] = {}
        self._by_limit = {limit: before.get(limit) or _row(limit, words)
                          for limit in limits}
        return f'[{",".join(self._by_limit.values())}]'.encode()


def _row(limit: Cap, words: dict[str, str]) -> str:
    """Return the JSON of one limit; ``words`` are those encoded already."""
    parts = []
    for word in limit:
        if not isinstance(word, str):
            parts.append(str(word) if type(word) is int else json.dumps(word))
            continue
        encoded = words.get(word)
        if encoded is None:
            encoded = words[word] = json.dumps(word)
        parts.append(encoded)
    return _LIMIT % tuple(parts)


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(',', ':')).encode()


def asked(decision: Decision | None) -> int:
    """Return the number of workloads of which a controller asks for direct
    evidence."""
    return 0 if decision is None else len({
        workload for workload, _ in decision.asks})


def write(path: pathlib.Path, document: Mapping[str, Any],
          **fields: bytes) -> None:
    """Replace ``path`` by ``document``, never leaving half a file.

    :param document: not empty
    :param fields: the JSON of more fields, not empty
    :raises OSError: the directory is full or gone.
    """
    data = _encoded(document)
    for name, encoded in fields.items():
        data = b'%s,"%s":%s}' % (data[:-1], name.encode(), encoded)
    files.replace(path, data, draft=f'{path}.new', mode=0o640)


def read(path: pathlib.Path) -> dict[str, Any]:
    """Return the last status.

    :raises NoStatus: there is none.
    :raises ScavengerError: it cannot be read.
    """
    try:
        document = json.loads(read_file(path, MAX_BYTES))
    except FileNotFoundError:
        raise errors.NoStatus(
            f'{path}: no status: no agent runs with this state directory, '
            'or it has only just begun') from None
    except PermissionError:
        raise errors.ScavengerError(
            f'{path}: permission denied; must run as root') from None
    except (OSError, ValueError, RecursionError) as exc:
        raise errors.ScavengerError(f'{path}: not readable: {exc}') from exc
    try:
        if json_fields.mapping(document, 'status').get('schema') != SCHEMA:
            raise ValueError('another version')
        json_fields.number(document.get('time_s'), 'time_s')
        json_fields.quantity(document.get('interval_s', 1.0), 'interval_s')
    except (ValueError, RecursionError):
        raise errors.ScavengerError(
            f'{path}: not a status of version {SCHEMA}; restart the agent'
        ) from None
    status: dict[str, Any] = document
    return status


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Return a context for code that reads the fields of a status.

    :raises ScavengerError: the status is not of an agent of this version.
    """
    try:
        yield
    except errors.MISREAD as exc:
        raise errors.ScavengerError(
            f'the status cannot be understood ({type(exc).__name__}: '
            f'{exc!s:.200}); is the agent of another version? Restart it'
        ) from exc


def read_file(path: pathlib.Path, most: int) -> bytes:
    """Return the content of an agent's file, up to ``most`` bytes.

    :raises OSError: it cannot be read.
    :raises ScavengerError: others may have written it.
    """
    with open_file(path) as file:
        return file.read(most)


def open_file(path: pathlib.Path) -> BinaryIO:
    """Open an agent's file for reading; the errors are those of
    :func:`read_file`."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                 | os.O_NONBLOCK)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise errors.ScavengerError(f'{path}: not a regular file')
        owners = {0, os.geteuid(), os.stat(path.parent).st_uid}
        if info.st_uid not in owners or info.st_mode & 0o022:
            raise errors.ScavengerError(
                f'{path}: owner {info.st_uid}, mode '
                f'{stat.S_IMODE(info.st_mode):o}: others may have written '
                'it, so it is not shown; look at it and delete it')
        return open(fd, 'rb')
    except BaseException:
        os.close(fd)
        raise


def is_stale(document: Mapping[str, Any], now: float) -> bool:
    age = now - float(document['time_s'])
    return age > STALE_TICKS * float(document.get('interval_s', 1.0)) + 1


def table(document: Mapping[str, Any], now: float) -> str:
    """Return the status for people.

    :param now: CLOCK_BOOTTIME in seconds
    :raises ScavengerError: see :func:`understood`.
    """
    with understood():
        return '\n'.join(map(printable, _lines(
            {**document, 'stale': is_stale(document, now)}, now)))


def _lines(document: Mapping[str, Any], now: float) -> list[str]:
    age = now - float(document['time_s'])
    lines = [f'agent      {document["host"]}, process {document["pid"]}, '
             f'last tick {age:.1f} s ago',
             'state      ' + (stale_state(document, now)
                              if document['stale'] else document['state'])]
    if document.get('watcher'):
        lines.append('watcher    ' + watcher(document['watcher']))
    if document.get('grade'):
        lines.append(f'grade      {document["grade"]["text"]}')
    if document.get('protect'):
        lines.append(f'protects   {", ".join(document["protect"])}')
    lines += [f'missing    {sentence}'
              for sentence in document.get('missing', ())]
    if document.get('libvirt'):
        lines += libvirt_lines(document['libvirt'])
    lines.append('workloads  ' + ', '.join(
        f'{count} {priority}'
        for priority, count in document['workloads'].items()))
    for name, controller in sorted(document['controllers'].items()):
        facts = controller.get('facts', {})
        lines.append(f'{text.padded(printable(name), 10)} '
                     + controller['mode'] + _facts(facts)
                     + _evidence(controller.get('asks', 0)))
        lines += [f'suffers    {printable(victim)}: {printable(why)}'
                  for victim, why in facts.get('suffering', {}).items()]
        lines += [f'remembers  {name}: its limit was removed {age_s:.0f} s ago'
                  for name, age_s in facts.get('remembered', {}).items()]
        if suspects := facts.get('would_examine'):
            lines.append('would try  limits on '
                         + printable(', '.join(suspects))
                         + ' for seconds; it takes mode enforce')
    if document.get('isolation'):
        lines += isolation_lines(document['isolation'])
    lines.append(f'cost       {100 * document["cpu_share"]:.2f} % of one CPU, '
                 f'{document["peak_rss_bytes"] / 2**20:.0f} MiB')
    counters = document['counters']
    lines.append('counted    ' + ', '.join(
        f'{value} {name.replace("_", " ")}'
        for name, value in counters.items()))
    fault = (document.get('history') or {}).get('fault')
    if fault:
        lines.append(f'history    {fault}')
    if document.get('conductor'):
        lines.append('conductor  ' + _conductor(document))
    vm_names = names.of_status(document)
    return [*map(vm_names.beside, lines), *instances.table(document),
            *map(vm_names.beside, _rest(document, vm_names))]


def _rest(document: Mapping[str, Any], vm_names: names.Names) -> list[str]:
    """Return the lines of a status after those of the VMs."""
    lines = [*_rows(_title(document), _caps(document, 'caps'), vm_names),
             *_rows('limits that would be set', _caps(document, 'would'),
                    vm_names)]
    if document['unmet_bytes']:
        lines.append('memory above a limit:')
        lines += [f'  {name}: {amounts.of_bytes(amount)}'
                  for name, amount in document['unmet_bytes'].items()]
    if document['actions']:
        lines.append('actions:')
        lines += [f'  {action["kind"]} {action["workload"]}: '
                  f'{action["reason"]}' for action in document['actions']]
    for index, incident in enumerate(document['incidents']):
        lines.append('incident: ' + sentences.of_incident(
            incident_event(0.0, 'changed', '', json_fields.incident(
                incident, f'incidents[{index}]'), 0.0)))
    lines += [f'refused lease: {name}; its limit may be in force. Look at '
              'it, restore that knob by hand, delete the file'
              for name in document.get('refused', ())]
    for problem in document['problems']:
        lines.append(f'problem: {problem}')
    return lines


def isolation_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return what the fast loop does, for people: how many groups and VMs
    move with it, and which do not.

    :param facts: ``state``; ``groups`` with their CPU sets, and ``left_out``
        with the reasons, while it runs
    """
    groups = facts.get('groups')
    moved = f' (groups and VMs: {len(groups)})' if groups else ''
    return [f'isolation  {facts["state"]}{moved}',
            *(f'left out   {printable(name)}: {printable(why)}'
              for name, why in facts.get('left_out', {}).items())]


def stale_state(document: Mapping[str, Any], now: float) -> str:
    """Return the state of an agent whose status is old.

    :param now: CLOCK_BOOTTIME in seconds
    """
    return (f'STALE: no tick for {now - float(document["time_s"]):.0f} s, '
            f'and one is due every {document.get("interval_s", 1.0):g} s: '
            'the agent hangs or was killed. See its log, start it again')


def watcher(facts: Mapping[str, Any]) -> str:
    """Return whether limits are restored if the agent fails, for people.

    :param facts: ``running``, and ``cannot_restore``: reasons by kind of limit
    """
    if not facts['running']:
        return ('NOT RUNNING: nothing restores limits if the agent fails. '
                'Start scavenger-restore --watch')
    return '; '.join((
        'running: it restores every limit if the agent fails',
        *(f'but not those of {kind}, which are not set: {why}'
          for kind, why in sorted(facts['cannot_restore'].items()))))


def _title(document: Mapping[str, Any]) -> str:
    """Return the title of the rows of limits."""
    runs = (document.get('watcher') or {}).get('running', True)
    return 'limits at the last tick; ' + (
        'the watcher restores them' if runs else
        'no watcher runs: scavenger-restore --all restores them'
        ) if document['stale'] else IN_FORCE


def _facts(facts: Mapping[str, Any]) -> str:
    if 'fault' in facts:
        return f'; FAILED: {facts["fault"]}'
    memory = facts.get('memory') or {}
    cache = facts.get('page_cache') or {}
    text = '' if cache.get('rule') not in ('cutting', 'holding') else (
        '; background work gets no more page cache: the foreground reads '
        f'{cache["refault_bytes_per_s"] / 2**20:.2f} MiB/s again')
    if memory.get('upper') is None:
        return text
    return (f'; memory reserve {memory["upper"] / 2**20:.0f} MiB, '
            f'{memory.get("violations", 0)} violations'
            + (', learning' if memory.get('learning') else '') + text)


def _evidence(count: int) -> str:
    return '; gathers direct evidence of ' + amounts.counted(
        count, 'workload') if count else ''


def _conductor(document: Mapping[str, Any]) -> str:
    facts = document['conductor']
    answered_s = facts['answered_s']
    refused = facts.get('refused', {})
    holds = [f'{name} = {value}' for name, value
             in facts.get('parameters', {}).items()
             if f'parameter {name}' not in refused]
    return (('has not answered yet' if not answered_s else 'answered '
             f'{document["wall_time_s"] - answered_s:.0f} s ago')
            + (', waiting to be reported: '
               + amounts.of_bytes(facts['spool_bytes'])
               + f', the oldest for {facts.get("waiting_s", 0.0):.0f} s'
               if facts['spool_bytes'] else '')
            + (f'; lost for want of room: {facts["dropped"]}'
               if facts['dropped'] else '')
            + (f'; set aside, the conductor did not take them: '
               f'{facts["set_aside"]}' if facts.get('set_aside') else '')
            + _some('; parameters from there: ', holds)
            + _some('; not followed: ', [
                f'{order}: {why}' for order, why in refused.items()])
            + (f': {facts["fault"]}' if facts['fault'] else '')
            + (f'; {printable(notice)}' if (notice := facts.get('notice'))
               else ''))


def _some(title: str, texts: Sequence[str]) -> str:
    """Return a title with the first of some texts, '' if there are none."""
    if not texts:
        return ''
    return title + ', '.join(map(printable, texts[:MOST_OF_CONDUCTOR])) + (
        ' and more' if len(texts) > MOST_OF_CONDUCTOR else '')


def libvirt_lines(facts: Mapping[str, Any]) -> list[str]:
    since_s, versions = facts['since_s'], facts.get('versions')
    return [f'libvirt    {facts["state"]}'
            + (f' for {since_s} s' if since_s is not None else '')
            + (f': {facts["why"]}' if facts.get('why') else '')
            + ('; libvirtd {daemon}, libvirt library {library}, QEMU {qemu}'
               .format_map(versions)
               if versions and versions['daemon'] != 'unknown' else ''), *(
        f'domain {uuid} has not answered, or a job held it, for {age_s} s'
        for uuid, age_s in facts['domains'].items()), *(
        f'neither set nor removed yet: {knob}' for knob in facts['waits'])]


def _caps(document: Mapping[str, Any], name: str) -> list[Cap]:
    return [json_fields.cap(cap, f'{name}[{index}]')
            for index, cap in enumerate(document[name])]


def _rows(title: str, caps: list[Cap], vm_names: names.Names) -> list[str]:
    if not caps:
        return []
    return [f'{title}:', *(f'  {line}' for line in text.columns((), sorted(
        (vm_names.beside(cap.workload), str(cap.knob),
         amounts.of_knob(cap.knob, cap.value), f'{cap.reason} ({cap.owner})')
        for cap in caps), left=(0, 1, 3)))]

# SPDX-License-Identifier: Apache-2.0



"""Restore actions on network devices, by ``ip`` and ``tc``.

``tc`` deletes a token bucket of ours from the root of each device of a
workload, and puts ``noqueue`` back where that was.  ``tap`` takes the limit
of what arrives at devices away: the redirect at the ingress of each, then the
device (IFB) that they lead to.  The other way round every packet would be
lost in between.  Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

from scavenger_openstack.restore import grammar
from scavenger_openstack.restore.grammar import Gone
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore import processes

BUCKET = f'qdisc tbf {grammar.MARK:x}: root '
"""How ``tc`` shows a token bucket of ours."""
PREFERENCE = str(grammar.MARK)
"""The preference of a filter, and the group of an IFB, that are ours."""
_OPEN = ('rate', '10gbit', 'burst', '64mb', 'limit', '128mb')
_LINK = '[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}'
NETNS = '(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?'
_MAX_INDEX = 2 ** 31 - 1
_MAX_TAPS = 256
_TOOL_TIMEOUT_S = 5.0
_DRAIN_S = 0.5
_ENVIRONMENT = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C'}


def validate(action: RestoreAction) -> None:
    """Hold an action of kind ``tc`` or ``tap`` against the closed set.

    :raises Refused: the action is not in it.
    """
    grammar.only(action, {'do', 'netns', 'dev', 'ifindex', 'also'}
                 | ({'noqueue'} if action['do'] == 'tc' else set()))
    grammar.text(action, 'dev', _LINK)
    grammar.text(action, 'netns', NETNS)
    for name, most in ('also', _MAX_TAPS - 1), ('noqueue', _MAX_TAPS):
        indexes = action.get(name, [])
        if not isinstance(indexes, list) or len(indexes) > most:
            raise grammar.Refused(f'{name} {indexes!r:.99} is not allowed')
    for index in (action.get('ifindex'), *action.get('also', ()),
                  *action.get('noqueue', ())):
        grammar.number({'ifindex': index}, 'ifindex')
        if index > _MAX_INDEX:
            raise grammar.Refused(f'ifindex {index} is too high')


def delete_bucket(action: RestoreAction) -> bool:
    """Carry out a valid action of kind ``tc``; return whether it changed a
    thing.

    :raises Gone: no device is there any more.
    :raises RestoreError: a bucket does not go away.
    """
    netns, dev, where = _where(action)
    names, kinds = _links(netns, where)
    # Hardware drops packets without a queue, whatever a lease may hold.
    virtual = {name for name, _, _ in kinds}
    present = [index for index in (action['ifindex'],
                                   *action.get('also', ()))
               if names.get(index)]
    if not present:
        raise Gone(f'{where} was deleted and made again'
                   if dev in names.values() else f'{where} is no longer there')
    changed, faults = False, []
    for index in present:   # what is wrong with a device is no other's matter
        try:
            changed |= _delete_bucket(
                netns, names[index],
                noqueue=(index in action.get('noqueue', ())
                         and names[index] in virtual))
        except RestoreError as exc:
            faults.append(str(exc))
    if faults:
        raise RestoreError('; '.join(faults))
    return changed


def _delete_bucket(netns: str, dev: str, *, noqueue: bool) -> bool:
    """Delete our bucket of one device; return whether it changed a thing.

    :param noqueue: the kernel's default, which comes then, was not there
    :raises RestoreError: it does not go away.
    """
    changed, fault = False, ''
    for _ in range(3):
        shown = tool('tc', netns, 'qdisc', 'show', 'dev', dev, 'root')
        if shown.returncode:
            fault = shown.stderr
        elif any(line.startswith(BUCKET)
                 for line in shown.stdout.splitlines()):
            # By its handle: another program's may have come since.
            fault = tool('tc', netns, 'qdisc', 'del', 'dev', dev, 'root',
                         'handle', f'{grammar.MARK:x}:').stderr
            changed = True
        elif noqueue and (' 0: root ' in shown.stdout or not shown.stdout):
            fault = tool('tc', netns, 'qdisc', 'add', 'dev', dev, 'root',
                         'noqueue').stderr
            changed = True
        else:
            return changed
    raise RestoreError(f'{dev} keeps its rate limit; tc says '
                       f'{fault!r:.199}: delete it by hand')


def open_bucket(action: RestoreAction) -> None:
    """Let packets that wait behind an action of kind ``tap`` go on their way.

    :raises Gone: its namespace is no longer there.
    :raises RestoreError: there is no ``tc``, or it hangs.
    """
    netns, _, _ = _where(action)
    tool('tc', netns, 'qdisc', 'change', 'dev',
         f'{grammar.IFB}{action["ifindex"]}', 'root', 'handle', '5ca0:', 'tbf',
         *_OPEN)


def free_tap(action: RestoreAction) -> bool:
    """Carry out a valid action of kind ``tap``; return whether it changed a
    thing.

    A tap is known by its index: a redirect on one that was renamed must
    not outlive its IFB.  Each try may end after any of these calls, and the
    next one goes on from there.  ``also`` has the indices of further taps
    that are redirected to the IFB of the first: it goes when none is.

    :raises Gone: no tap is there any more, and no IFB of them either.
    :raises RestoreError: the redirect or the IFB does not go away.
    """
    open_bucket(action)   # meanwhile what waits goes on, and is not lost
    netns, _, where = _where(action)
    ifb, fault = f'{grammar.IFB}{action["ifindex"]}', ''
    taps: list[str] = []
    changed = False
    for _ in range(4):
        taps, has_ifb = _devices(action, netns, where, ifb)
        redirects, unknown = [], ''
        for tap in taps:
            try:
                redirects.append(_redirect(netns, tap))
            except RestoreError as exc:     # it may be gone by now
                unknown = str(exc)
        if any(redirects):
            fault = ' '.join(tool('tc', netns, *redirect).stderr
                             for redirect in redirects if redirect)
        elif unknown:       # a redirect may lead to the IFB
            fault = unknown
            continue
        elif has_ifb:       # no redirect leads to it any more
            _drain(netns, ifb)
            fault = tool('ip', netns, 'link', 'del', 'dev', ifb).stderr
        elif taps:
            return changed
        else:
            raise Gone(f'{where} is no longer there')
        changed = True
    raise RestoreError(f'{where} keeps its rate limit; ip and tc say '
                       f'{fault!r:.199}: delete it by hand (tc qdisc del dev '
                       f'{" and ".join(taps) or action["dev"]} ingress; ip '
                       f'link del {ifb})')


def _drain(netns: str, ifb: str) -> None:
    """Give what waits time to go.

    A bucket that is opened does not look before the time at which its old
    rate allowed the next packet.
    """
    until = time.monotonic() + _DRAIN_S
    while time.monotonic() < until:
        shown = tool('tc', netns, '-s', 'qdisc', 'show', 'dev', ifb, 'root')
        if ' backlog 0b 0p' in shown.stdout or shown.returncode:
            return
        time.sleep(0.005)


def _devices(action: RestoreAction, netns: str, where: str, ifb: str
             ) -> tuple[list[str], bool]:
    """The names now of the taps that are there; whether our IFB is."""
    names, kinds = _links(netns, where)
    return [names[index] for index in (action['ifindex'],
                                       *action.get('also', ()))
            if names.get(index)], (ifb, PREFERENCE, 'ifb') in kinds


def _links(netns: str, where: str
           ) -> tuple[dict[int, str], set[tuple[str, str, str]]]:
    """All devices that are there, as :func:`parse_links` returns them."""
    shown = tool('ip', netns, '-details', '-json', 'link', 'show')
    try:
        return parse_links(shown.stdout)
    except ValueError:
        raise RestoreError(f'{where}: ip says {shown.stderr!r:.199}: run as '
                           'root with iproute2 installed') from None


def parse_links(text: str
                ) -> tuple[dict[int, str], set[tuple[str, str, str]]]:
    """Return what ``ip -details -json link show`` says: the name by the index
    of each device, and the name, group and kind of each that has a kind.

    :raises ValueError: it is something else.
    """
    try:
        links = json.loads(text)
    except RecursionError:
        links = None
    if not isinstance(links, list):
        raise ValueError('no list of devices')
    names, kinds = {}, set()
    for link in links:
        if not isinstance(link, dict):
            continue
        index, name, info = map(link.get, ('ifindex', 'ifname', 'linkinfo'))
        if isinstance(index, int) and isinstance(name, str):
            names[index] = name
            if isinstance(info, dict):
                kinds.add((name, str(link.get('group')),
                           str(info.get('info_kind'))))
    return names, kinds


def _redirect(netns: str, tap: str) -> tuple[str, ...]:
    """Return what ``tc`` has to do so that nothing of ours is at the ingress.

    We never share an ingress, so an empty one is ours.  Another program may
    have come since: theirs stays.

    :raises RestoreError: ``tc`` does not say what is there.
    """
    qdisc = next((line for line in _shown(netns, 'qdisc', tap).splitlines()
                  if line.startswith(('qdisc ingress ', 'qdisc clsact '))),
                 '')
    if not qdisc:
        return ()
    preferences = {line.partition(' pref ')[2].partition(' ')[0]
                   for line in _shown(netns, 'filter', tap).splitlines()
                   if line.startswith('filter ')}
    if qdisc.startswith('qdisc ingress ') and preferences <= {PREFERENCE}:
        return ('qdisc', 'del', 'dev', tap, 'ingress')
    if PREFERENCE in preferences:
        return ('filter', 'del', 'dev', tap, 'ingress', 'protocol', 'all',
                'pref', PREFERENCE, 'u32')
    return ()


def _shown(netns: str, what: str, tap: str) -> str:
    shown = tool('tc', netns, what, 'show', 'dev', tap, 'ingress')
    if shown.returncode:
        raise RestoreError(shown.stderr)
    return shown.stdout


def _where(action: RestoreAction) -> tuple[str, str, str]:
    """Namespace, device, and both for a message.

    :raises Gone: the namespace is no longer there.
    """
    netns, dev = action['netns'], action['dev']
    if netns and not os.path.exists(f'/run/netns/{netns}'):
        raise Gone(f'network namespace {netns} is no longer there')
    return netns, dev, (f'{dev} in network namespace {netns}' if netns
                        else dev)


def tool(name: str, netns: str, *args: str
         ) -> subprocess.CompletedProcess[str]:
    """Run ``ip`` or ``tc`` to its end, or leave behind one that hangs: it may
    wait in the kernel for a lock.

    :raises RestoreError: it cannot be run, or hangs.
    """
    command = [name, *(('-n', netns) if netns else ()), *args]
    try:
        process = subprocess.Popen(
            command, env=_ENVIRONMENT, text=True, errors='replace',
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=_TOOL_TIMEOUT_S)
        except BaseException:
            processes.end(process)
            raise
    except OSError as exc:
        raise RestoreError(f'{name} cannot be run ({exc}): '
                           + grammar.advice(exc, 'iproute2')) from None
    except subprocess.TimeoutExpired:
        raise RestoreError(f'{name} has not ended within {_TOOL_TIMEOUT_S:g} '
                           's: see the kernel log') from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)

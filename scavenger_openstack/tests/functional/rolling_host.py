# SPDX-License-Identifier: Apache-2.0

"""The reporting part of an agent, of the release that ``PYTHONPATH`` names.

``python -P rolling_host.py JSON``: until SIGTERM incidents and limits begin
and end on a host, and are reported.  What has been given to the agent is in
``stored`` of its directory, a line for each incident; ``faults`` has why
reports were not answered, and ``waits`` the bytes that wait now.  While there
is a file ``quiet`` nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import functools
import importlib
import json
import pathlib
import signal
import sys
import threading
import time
from typing import Any
import uuid

from oslo_config import cfg

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack import rpc
from scavenger_openstack.wire import report

PAUSE_S = 0.4
STORE_BYTES = 64 << 20
TIMEOUT_S = 4.0

Add = Callable[[Iterable[Any]], None]


def caller(host: str, broker: str, exchange: str, url: str, ca_file: str,
           token_file: str) -> Callable[[bytes], bytes]:
    """Return what sends a report: over HTTPS if there is a URL."""
    if url:
        return https.caller(url, host, pathlib.Path(token_file), ca_file)
    conf = cfg.ConfigOpts()
    rpc.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('transport_url', broker)
    conf.set_override('control_exchange', exchange)
    conf.set_override('kombu_reconnect_splay', 0.0, 'oslo_messaging_rabbit')
    return rpc.Client(conf, timeout_s=TIMEOUT_S).sync


def agent(call: Callable[[bytes], bytes], directory: pathlib.Path,
          host: str) -> tuple[Any, Add]:
    """Return the agent's part, and what takes entries."""
    make: Any = functools.partial(
        sync.make, call, directory / 'sync', host=host, boot_id='boot',
        version='', sync_s=1.0)
    try:
        store: Any = importlib.import_module(
            'scavenger_openstack.agent.events.store')
    except ImportError:
        made = make(spool_bytes=STORE_BYTES)
        return made, made.spool.add
    kept = store.Store(directory / 'history', STORE_BYTES, STORE_BYTES)
    return make(kept), kept.add


def incident(name: str, what: str, begun_s: float) -> report.Incident:
    return report.Incident(
        sequence=1, time_s=time.time(), id=name,
        what=what,          # type: ignore[arg-type]
        begun_s=begun_s, victim='/services/s', signal='run_delay',
        value=0.5, threshold=0.2, cause='cpu', controller='attribution',
        suspects=[report.Suspect(workload='/batch/a', score=0.9,
                                 antagonist=True)])


def limit(what: str, since_s: float) -> report.Limit:
    return report.Limit(
        sequence=1, time_s=time.time(), workload='/batch/a',
        knob='cpu_cores', what=what,        # type: ignore[arg-type]
        since_s=since_s, owner='attribution', value=0.5, original=None)


def main(host: str, directory: str, **transport: str) -> None:
    top = pathlib.Path(directory)
    made, add = agent(caller(host, **transport), top, host)
    ends = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ends.set())
    add([report.AgentEvent(sequence=1, time_s=time.time(), what='started')])
    while not ends.is_set():
        name, begun_s = uuid.uuid4().hex, time.time()
        if not (top / 'quiet').exists():
            with (top / 'stored').open('a') as file:
                file.write(f'{name}\n')
            add([incident(name, 'began', begun_s), limit('set', begun_s)])
            turn(made, top)
            ends.wait(PAUSE_S)
            add([incident(name, 'ended', begun_s), limit('removed', begun_s)])
        turn(made, top)
        ends.wait(PAUSE_S)


def turn(made: Any, top: pathlib.Path) -> None:
    """Report what there is."""
    if not made.turn():
        with (top / 'faults').open('a') as file:
            file.write(f'{time.monotonic():.3f} {made.facts()["fault"]}\n')
    draft = top / 'waits.new'
    draft.write_text(str(made.facts()['spool_bytes']))
    draft.rename(top / 'waits')


if __name__ == '__main__':
    main(**json.loads(sys.argv[1]))

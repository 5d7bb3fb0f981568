# SPDX-License-Identifier: Apache-2.0

"""The second act as a whole, from the stage to the report."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from scavenger_openstack.demo import acts
from scavenger_openstack.demo import figures
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.demo.who import play as play_
from scavenger_openstack.demo.who import report
from scavenger_openstack.demo.who import result
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack import text

SECONDS = 170.0
NEXT = ('Next, on your own host: doc/source/install/index.rst; in mode '
        'observe the agent limits nothing, and scavenger-agent status '
        'shows what it would do')


def play(options: argparse.Namespace, interrupt: interrupt_.Interrupt) -> int:
    """Play it; the exit code."""
    seconds = options.phase_seconds or SECONDS
    if options.keep:
        keep.check()
    cpus = acts.check(options, 'blkio')
    print('scavenger-demo: who did it?  About '
          f'{(play_.QUIET_S + seconds + 15) / 60:.1f} minutes',
          file=sys.stderr)
    stage = stage_.Stage(memory_bytes=options.memory * acts.MIB,
                         link_bytes_per_s=acts.LINK_BYTES_PER_S, cpus=cpus,
                         groups=play_.GROUPS)
    plane = keep.Plane(stage.directory) if options.keep else None
    act, code = None, None
    problems: list[str] = []
    try:
        stage.make()
        load.build(stage.programs)
        interrupt.check()
        if plane:
            plane.open()
        act = play_.Who(stage, interrupt, seconds=seconds, seed=options.seed,
                      more_config=plane.config if plane else '')
        record = act.play()
        if plane:
            code = _told(record, options)
            _play_on(act, plane, interrupt, options)
    finally:
        acts.strike(act, stage, problems)
    record['knobs_left'] += problems
    if code is None:
        return _told(record, options)
    return acts.EXIT[figures.FAILED] if problems else code


def _play_on(act: play_.Who, plane: keep.Plane,
             interrupt: interrupt_.Interrupt, options: argparse.Namespace
             ) -> None:
    """Show what happened by the real commands, and play on until a signal
    comes."""
    try:
        act.start_again()
        plane.mark()
        plane.wait(interrupt)
        print(f'\n{plane.screen()}\n{plane.help()}', flush=True,
              file=sys.stderr if options.json else sys.stdout)
        act.play_on()
    except interrupt_.Interrupted:
        print('scavenger-demo: everything is removed now', file=sys.stderr)


def _told(record: dict[str, Any], options: argparse.Namespace) -> int:
    """Write the result; the exit code."""
    found = result.summary(record)
    return acts.write(
        options, 'who.json', 'who.html', result=found,
        stored=text.json_line({'result': found, 'record': record}),
        page=report.page(found, record), text=result.text(found),
        following=NEXT)

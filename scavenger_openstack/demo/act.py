# SPDX-License-Identifier: Apache-2.0

"""The act as a whole, from the stage to the report."""

from __future__ import annotations

import argparse
import sys

from scavenger_openstack.demo.play import Act
from scavenger_openstack.demo.play import choose_cpus
from scavenger_openstack.demo.play import GROUPS
from scavenger_openstack.demo.play import usual_s
from scavenger_openstack.demo import report
from scavenger_openstack.demo import result as demo_result
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage.stage import Stage
from scavenger_openstack import errors
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.interrupt import Interrupted
from scavenger_openstack import text

NEXT = ('Next, on your own host: doc/source/install/index.rst; in mode '
        'observe the agent limits nothing, and scavenger-agent status '
        'shows what it would do')


def play(options: argparse.Namespace, interrupt: Interrupt) -> int:
    """Play the act, and remove everything in any case; return the exit code.

    :raises DriverError: it cannot run here, or a program failed.
    :raises Interrupted: a signal came.
    """
    if options.keep:
        keep.check()
    stage = Stage(GROUPS, choose_cpus())
    plane = keep.Plane(stage.directory) if options.keep else None
    act = None
    code = None
    problems: list[str] = []
    print(f'scavenger-demo: about {usual_s() / 60:.0f} minutes on CPUs '
          f'{", ".join(map(str, stage.cpus))}', file=sys.stderr)
    try:
        stage.make()
        if plane:
            plane.open()
        act = Act(stage, interrupt, seed=options.seed,
                  more_config=plane.config if plane else '')
        record = act.play()
        if plane:
            code = _write(options, demo_result.summary(record, None))
            _play_on(act, plane, interrupt, options)
    finally:
        text.over(sys.stderr)
        problems = _end(act, stage)
    if code is None:
        return _write(options, demo_result.summary(record, problems))
    return demo_result.EXIT[demo_result.FAILED] if problems else code


def _play_on(act: Act, plane: keep.Plane,
             interrupt: Interrupt, options: argparse.Namespace
             ) -> None:
    """Show the result by the real commands, and go on until a signal comes.
    """
    try:
        plane.mark()
        plane.wait(interrupt)
        print(f'\n{plane.screen()}\n{plane.help()}', flush=True,
              file=sys.stderr if options.json else sys.stdout)
        act.play_on()
    except Interrupted:
        print('scavenger-demo: everything is removed now', file=sys.stderr)


def _end(act: Act | None, stage: Stage) -> list[str]:
    """End the agent and remove everything; print and return the problems."""
    problems: list[str] = []
    if act is not None:
        try:
            problems += act.stop()
        except (errors.DriverError, OSError) as exc:
            problems.append(str(exc))
    problems += stage.remove()
    for problem in problems:
        print(f'scavenger-demo: {problem}; run scavenger-demo --clean',
              file=sys.stderr)
    return problems


def _write(options: argparse.Namespace, result: dict[str, object]) -> int:
    """Store and print the result; return the exit code."""
    options.output.mkdir(parents=True, exist_ok=True)
    stored = options.output / 'result.json'
    page = options.output / 'report.html'
    stored.write_text(text.json_line(result) + '\n')
    page.write_text(report.page(result))
    print(text.json_page(result) if options.json else demo_result.text(result),
          flush=True)
    print(f'\n{stored} and {page} written\n{NEXT}', file=sys.stderr)
    return demo_result.EXIT[str(result['verdict'])]

# SPDX-License-Identifier: Apache-2.0

"""The act as a whole, from the stage to the report."""

from __future__ import annotations

import argparse
import sys

from scavenger_openstack.demo import play as play_
from scavenger_openstack.demo import report
from scavenger_openstack.demo import result as result_
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack import text

NEXT = ('Next, on your own host: doc/source/install/index.rst; in mode '
        'observe the agent limits nothing, and scavenger-agent status '
        'shows what it would do')


def play(options: argparse.Namespace, interrupt: interrupt_.Interrupt) -> int:
    """Play it, and remove everything whatever happens; return the exit code.

    :raises DriverError: it cannot run here, or a program failed.
    :raises Interrupted: a signal came.
    """
    if options.keep:
        keep.check()
    stage = stage_.Stage(play_.GROUPS, play_.choose_cpus())
    plane = keep.Plane(stage.directory) if options.keep else None
    act = None
    code = None
    problems: list[str] = []
    print(f'scavenger-demo: about {play_.usual_s() / 60:.0f} minutes on CPUs '
          f'{", ".join(map(str, stage.cpus))}', file=sys.stderr)
    try:
        stage.make()
        if plane:
            plane.open()
        act = play_.Act(stage, interrupt, seed=options.seed,
                        more_config=plane.config if plane else '')
        record = act.play()
        if plane:
            code = _write(options, result_.summary(record, None))
            _play_on(act, plane, interrupt, options)
    finally:
        text.over(sys.stderr)
        problems = _end(act, stage)
    if code is None:
        return _write(options, result_.summary(record, problems))
    return result_.EXIT[result_.FAILED] if problems else code


def _play_on(act: play_.Act, plane: keep.Plane,
             interrupt: interrupt_.Interrupt, options: argparse.Namespace
             ) -> None:
    """Show what happened by the real commands, and go on until a signal
    comes."""
    try:
        plane.mark()
        plane.wait(interrupt)
        print(f'\n{plane.screen()}\n{plane.help()}', flush=True,
              file=sys.stderr if options.json else sys.stdout)
        act.play_on()
    except interrupt_.Interrupted:
        print('scavenger-demo: everything is removed now', file=sys.stderr)


def _end(act: play_.Act | None, stage: stage_.Stage) -> list[str]:
    """End the agent and remove everything; print and return what went
    wrong."""
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
    print(text.json_page(result) if options.json else result_.text(result),
          flush=True)
    print(f'\n{stored} and {page} written\n{NEXT}', file=sys.stderr)
    return result_.EXIT[str(result['verdict'])]

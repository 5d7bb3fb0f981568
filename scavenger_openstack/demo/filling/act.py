# SPDX-License-Identifier: Apache-2.0

"""The first act as a whole, from the stage to the report."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.demo import acts
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import play as play_
from scavenger_openstack.demo.filling import report
from scavenger_openstack.demo.filling import result
from scavenger_openstack.demo.filling import table
from scavenger_openstack.demo.filling import turns as turns_
from scavenger_openstack.demo.filling import verdict
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import product
from scavenger_openstack.demo import progress as progress_
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack import text


class Length(NamedTuple):
    """How long a demo plays; ``turns`` are pairs of them at most."""

    rounds: int
    seconds: float
    repeats: int
    turns: int
    most_s: float


QUICK = Length(rounds=1, seconds=12.0, repeats=3, turns=30, most_s=345.0)
FULL = Length(rounds=4, seconds=30.0, repeats=4, turns=45, most_s=1500.0)
NEXT = 'Next, who disturbs whom: sudo .venv/bin/scavenger-demo --who'


def play(options: argparse.Namespace, interrupt: interrupt_.Interrupt) -> int:
    """Play it; the exit code."""
    length = QUICK if options.quick else FULL
    settings = play_.Settings(
        names=options.only or list(phases.PHASES),
        rounds=options.rounds or length.rounds,
        seconds=options.phase_seconds or length.seconds, seed=options.seed,
        repeats=length.repeats)
    cpus = acts.check(options)
    records, pairs, problem = _records(
        options, settings, options.turns or length.turns, length.most_s,
        cpus, interrupt)
    found = result.summary(records, {
        **result.rounds(records),
        'seconds': settings.seconds,
        'seed': settings.seed, 'cpus': len(cpus),
        'memory_bytes': options.memory * acts.MIB,
        'link_bytes_per_s': acts.LINK_BYTES_PER_S,
        'memory_window_s': product.MEMORY_WINDOW_S,
        'network_window_s': product.NETWORK_WINDOW_S}, pairs, problem)
    return acts.write(
        options, 'result.json', 'report.html', result=found,
        stored=text.json_page(found), page=report.page(found, records),
        text=table.text(found), following=NEXT)


def _records(options: argparse.Namespace, settings: play_.Settings,
             turns: int, most_s: float, cpus: list[int],
             interrupt: interrupt_.Interrupt
             ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Build a stage, play on it, and remove it whatever happens.

    Returns the phases, the pairs of turns, and what ended it too early.

    :raises DriverError: before the first phase had ended.
    """
    names = list(settings.names)
    judged = set(verdict.NEEDED) <= set(names)
    begun_s = time.monotonic()
    progress = progress_.Progress(
        names, settings.rounds, settings.seconds,
        turns=min(turns, interval.LEAST) if judged else 0)
    more = max(0, verdict.ENOUGH - settings.rounds)
    longest_s = most_s + more * progress.round_s(verdict.NEEDED)
    print(f'scavenger-demo: about {progress.total_s / 60:.0f} minutes'
          + (f', up to {longest_s / 60:.0f} if the machine is busy or the '
             'figures scatter' if judged else ''), file=sys.stderr)
    stage = stage_.Stage(memory_bytes=options.memory * acts.MIB,
                         link_bytes_per_s=acts.LINK_BYTES_PER_S, cpus=cpus)
    playing, playing_turns, problem = None, None, ''
    problems: list[str] = []
    try:
        stage.make()
        load.build(stage.programs)
        interrupt.check()
        playing = play_.Play(stage, settings,
                            load.calibrate(stage.programs), interrupt,
                            progress)
        for _ in range(settings.rounds):
            playing.round(names)
        # Turns that would all be set aside tell nothing.
        if judged and (options.turns or not all(
                one['others']['disturbed'] for one in playing.records)):
            playing_turns = turns_.Turns(stage, playing, interrupt, progress,
                                         settings.seed)
            playing_turns.play(most=turns, until_s=begun_s + most_s,
                               limit=verdict.P99_LIMIT)
            for _ in range(more):
                if not result.takes_a_round(playing.records,
                                            playing_turns.pairs):
                    break
                progress.more(verdict.NEEDED)
                playing.round(verdict.NEEDED)
    except (errors.DriverError, OSError) as exc:
        if playing is None or not playing.records:
            raise
        problem = str(exc)
    finally:
        progress.end()
        acts.strike(playing, stage, problems)
    records = playing.records
    records[-1]['knobs_left'] += problems
    if playing_turns:
        records[-1]['knobs_left'] += playing_turns.knobs_left
    return records, playing_turns.pairs if playing_turns else [], problem

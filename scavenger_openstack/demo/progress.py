# SPDX-License-Identifier: Apache-2.0

"""Where the demo is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
import sys
from typing import TextIO

from scavenger_openstack.demo.filling import phases
from scavenger_openstack import text

OVERHEAD_S = 0.9
"""What a phase takes beside its warm-up and its measured time."""
PAIR_S = 8.0
"""What two turns take."""


class Progress:
    """Tells on stderr which phase plays and how long it will take."""

    def __init__(self, names: Sequence[str], rounds: int, seconds: float,
                 stream: TextIO = sys.stderr, *, turns: int = 0) -> None:
        self._stream = stream
        self._bar = stream.isatty()
        self._rounds = rounds
        self._seconds = seconds
        self.total_s = rounds * self.round_s(names) + (
            phases.LEARN_S + PAIR_S * turns if turns else 0.0)
        self._before_s = 0.0
        self._phase_s = 0.0
        self._warm_up_s = 0.0
        self._label = ''

    def round_s(self, names: Sequence[str]) -> float:
        """What one round of these phases takes."""
        return sum(phases.PHASES[name].warm_up_s + self._seconds + OVERHEAD_S
                   for name in names)

    def more(self, names: Sequence[str]) -> None:
        """One more round of these phases."""
        self.say('the batch work, or the file transfer, missed its limit in '
                 'a round: one more round tells whether by chance')
        self._rounds += 1
        self._before_s, self._phase_s = self.total_s, 0.0
        self.total_s += self.round_s(names)

    def begin(self, number: int, phase: phases.Phase,
              seconds: float) -> None:
        """A phase of round ``number`` (from 0) begins."""
        self._before_s += self._phase_s
        self._phase_s = phase.warm_up_s + seconds + OVERHEAD_S
        self._warm_up_s = phase.warm_up_s
        self._label = f'round {number + 1}/{self._rounds}  {phase.name:<12}'
        if self._bar:
            self.show(-phase.warm_up_s)
        else:
            left_s = max(0.0, self.total_s - self._before_s)
            print(f'{self._label} {phase.title} (about {left_s:.0f} s left)',
                  file=self._stream, flush=True)

    def again(self, why: str) -> None:
        """The phase is played once more."""
        self.say(f'the machine was not quiet, once more: {why}')

    def turns(self, most: int) -> None:
        """Pairs of turns begin."""
        self.say('short turns of the service, alone and beside the batch '
                 f'work, until they tell (at most {most} pairs)')

    def turn(self, number: int, name: str) -> None:
        """One turn of pair ``number`` (from 0) begins."""
        text.over(self._stream, f'pair {number + 1} of turns  {name:<12}')

    def say(self, words: str) -> None:
        """One line that stays."""
        self.end()
        print(words, file=self._stream, flush=True)

    def show(self, at_s: float) -> None:
        """``at_s`` counts from the end of the phase's warm-up."""
        done_s = self._before_s + min(self._phase_s,
                                      max(0.0, at_s + self._warm_up_s))
        share = min(1.0, done_s / self.total_s)
        left_s = max(0.0, self.total_s - done_s)
        text.over(self._stream, (
            f'{text.bar(share)} {self._label} '
            f'{left_s // 60:.0f}:{left_s % 60:02.0f} left '))

    def end(self) -> None:
        text.over(self._stream)

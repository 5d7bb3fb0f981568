# SPDX-License-Identifier: Apache-2.0

"""``scavenger-ibench``: what its commands do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import contextlib
import os
import pathlib
import sys
import time

from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.arguments import Level
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import consent
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.interrupt import Interrupted
from scavenger_openstack.ibench.interrupt import SLICE_S
from scavenger_openstack.ibench.options import parser
from scavenger_openstack.ibench.options import PROFILE_REPEATS
from scavenger_openstack.ibench.progress import Progress
from scavenger_openstack.ibench import report
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import whole
from scavenger_openstack import text
from scavenger_openstack.types import format_cpus

EXIT_INTERRUPTED = 130
INTERCONNECT = catalogue.find_soi('interconnect')

Job = tuple[catalogue.Soi, list[Level]]


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit code.

    :raises ConfigError: it cannot be; a sentence.
    :raises ScavengerError: a kernel failed.
    :raises OSError: a file cannot be written.
    """
    options = command_line.parse(
        parser(), list(sys.argv[1:] if argv is None else argv))
    interrupt = Interrupt()
    try:
        return _COMMANDS[options.command](options, interrupt)
    except Interrupted:
        print('scavenger-ibench: interrupted; all that it made is removed',
              file=sys.stderr)
        return EXIT_INTERRUPTED


def _list(options: argparse.Namespace, interrupt: Interrupt
          ) -> int:
    if options.json:
        print(text.json_page([report.of_soi(soi)
                              for soi in catalogue.SOIS]))
    else:
        print('\n'.join(report.list_lines(catalogue.SOIS)))
    return 0


def _build(options: argparse.Namespace, interrupt: Interrupt
           ) -> int:
    print(build.build())
    return 0


def _serve(options: argparse.Namespace, interrupt: Interrupt
           ) -> int:
    """Serve until a signal comes."""
    process = run.start_process(
        [str(build.build()), 'serve', f'address={options.address}'], None)
    try:
        run.wait_serving(process, interrupt)
        print(f'serving {options.address} until Ctrl-C', flush=True)
        while process.poll() is None:
            interrupt.wait_until(time.monotonic() + SLICE_S)
        raise errors.DriverError(
            f'the remote end ended with status {process.returncode}')
    finally:
        run.end_process(process)


def _run(options: argparse.Namespace, interrupt: Interrupt
         ) -> int:
    return _play(options, interrupt, [
        (options.soi, [Level(options.intensity, options.seconds)])])


def _ramp(options: argparse.Namespace, interrupt: Interrupt
          ) -> int:
    return _play(options, interrupt, [
        (options.soi, [Level(percent, options.seconds)
                       for percent in options.levels])])


def _mix(options: argparse.Namespace, interrupt: Interrupt
         ) -> int:
    return _play(options, interrupt, [
        (soi, [Level(percent, options.seconds)])
        for soi, percent in options.mix])


def _validate(options: argparse.Namespace, interrupt: Interrupt
              ) -> int:
    chosen = surroundings(options)
    with session.opened(interrupt=interrupt, parent=parent(options),
                        alone=True, favour=True) as (host, notes):
        document = whole.validate_all(
            host, chosen, options.only, seconds=options.seconds,
            repeats=options.repeats, pairs=not options.no_pairs,
            yes=options.yes)
    document['notes'] += notes
    _publish(options, document, report.validation_lines(document))
    return 0


def _profile(options: argparse.Namespace, interrupt: Interrupt
             ) -> int:
    """Profile a workload; the document has a form of its own."""
    from scavenger_openstack.ibench.profile import document as profile_document
    from scavenger_openstack.ibench.profile import whole as profile
    from scavenger_openstack.ibench.profile import wish
    document, notes = profile.make_profile(wish.Wish(
        sois=options.sois, short=options.short,
        repeats=options.repeats or (
            1 if options.short else PROFILE_REPEATS),
        seconds=options.seconds, cgroup=options.workload_cgroup,
        instance=options.instance, command=options.workload_command,
        workload_cpus=options.workload_cpus, meter=options.meter,
        qos=options.qos, cpus=options.cpus,
        beside_cpus=options.beside_cpus, parent=parent(options),
        geometry=options.geometry, path=options.path,
        address=options.address, size_bytes=options.size, seed=options.seed,
        yes=options.yes), interrupt,
        show=lambda words: print(f'scavenger-ibench: {words}',
                                 file=sys.stderr))
    if options.output:
        pathlib.Path(options.output).write_text(
            text.json_page(document) + '\n')
    print(text.json_page(document) if options.json
          else '\n'.join(profile_document.lines(document, notes)))
    if options.html:
        pathlib.Path(options.html).write_text(profile_document.page(
            document, notes, options.workload_cgroup or options.instance
            or options.workload_command))
    return 0


_COMMANDS = {'list': _list, 'build': _build, 'serve': _serve, 'run': _run,
             'ramp': _ramp, 'mix': _mix, 'validate': _validate,
             'profile': _profile}


def surroundings(options: argparse.Namespace) -> arguments.Surroundings:
    """Return what the options choose.

    :raises ConfigError: a CPU is not here, or a size is missing.
    """
    # A user that is not root stays in the cgroup of the shell, and its limits.
    cgroup = parent(options) if os.geteuid() == 0 else None
    cpus = session.choose_cpus(options.cpus, every=getattr(
        options, 'soi', None) is INTERCONNECT)
    return arguments.Surroundings(
        geometry=geometry.read_geometry(cpus[0], options.geometry),
        memory=geometry.read_memory(cgroup), cpus=cpus,
        path=options.path, address=options.address, size_bytes=options.size,
        threads=options.threads, seed=options.seed)


def parent(options: argparse.Namespace) -> str | None:
    """Return the cgroup for the one of the kernels; None: make none."""
    return None if options.no_cgroup else options.cgroup


def _play(options: argparse.Namespace, interrupt: Interrupt,
          jobs: Sequence[Job]) -> int:
    """Run kernels together and report on them."""
    chosen = surroundings(options)
    with contextlib.ExitStack() as stack:
        host, notes = stack.enter_context(session.opened(
            interrupt=interrupt, parent=parent(options), alone=False))
        if options.address is None and any(
                soi.name == 'network_bandwidth' for soi, _ in jobs):
            host, link = stack.enter_context(session.linked(
                host, chosen.cpus))
            chosen = chosen._replace(address=link.address)
            notes.append('the link is a veth pair of its own, which has no '
                         'rate: 100 % is what its CPUs carry')
        starts = [arguments.plan_start(soi, _share(chosen, number, jobs))
                  for number, (soi, _) in enumerate(jobs)]
        consent.check_room(
            [(start, max(level.percent for level in levels))
             for start, (_, levels) in zip(starts, jobs, strict=True)],
            chosen, yes=options.yes)
        document = _measure(host, starts, jobs)
    document |= {'command': options.command,
                 'cpus': format_cpus(chosen.cpus),
                 'cgroup': host.cgroup and host.cgroup.path,
                 'notes': [*notes, *chosen.geometry.notes]}
    _publish(options, document, report.result_lines(document))
    return 0


def _share(chosen: arguments.Surroundings, number: int,
           jobs: Sequence[Job]) -> arguments.Surroundings:
    """Return the part of one of several kernels: a CPU in turn, its own
    order."""
    soi = jobs[number][0]
    if len(jobs) > 1 and soi.name != 'interconnect' and not chosen.threads:
        chosen = chosen._replace(
            cpus=(chosen.cpus[number % len(chosen.cpus)],))
    return chosen._replace(seed=chosen.seed + number)


def _measure(host: run.Host, starts: Sequence[arguments.Start],
             jobs: Sequence[Job]) -> report.Document:
    """Measure each kernel alone, then run all together."""
    longest_s = max(sum(level.seconds for level in levels)
                    for _, levels in jobs)
    bar = Progress(longest_s + run.CALIBRATE_S * len(jobs))
    try:
        work = []
        rates: list[run.Event] = []
        if len(jobs) == 1:
            work = [(starts[0], run.level_words(jobs[0][1]))]
        else:
            for start, (_, levels) in zip(starts, jobs, strict=True):
                bar.show_time(f'{start.soi.name}: its rate alone')
                rates.append(run.calibrate(host, start))
                work.append((start, run.level_words(
                    levels, chunk_s=rates[-1]['chunk_s'])))
        results = run.play(
            host, work, on_turn=lambda kernels: bar.show_time(', '.join(
                _state(kernel.result) for kernel in kernels)))
    finally:
        bar.end()
    rates = rates or [results[0].calibrated or {}]
    return {'sois': [report.of_result(result, calibrated)
                     for result, calibrated
                     in zip(results, rates, strict=True)]}


def _state(result: run.Result) -> str:
    return (f'{result.start.soi.name} {result.levels[-1]["percent"]:g} %'
            if result.levels else f'{result.start.soi.name}: its rate alone')


def _publish(options: argparse.Namespace, document: report.Document,
             lines: Sequence[str]) -> None:
    """Print a document, and write the page."""
    print(text.json_page(document) if options.json else '\n'.join(lines))
    if options.html:
        from scavenger_openstack.ibench import page
        pathlib.Path(options.html).write_text(page.page(document))

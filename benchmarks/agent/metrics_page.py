# SPDX-License-Identifier: Apache-2.0

"""What the agent's metrics cost.

Counts the ticks of a host of which all workloads are VMs with metrics of
their own and limits, and publishes its pages, as the agent does every 5 s.
Prints the bytes of a page; the CPU time of counting a tick and of a page with
its file; how much of a tick's interval that is; the ratio to the same page
made by prometheus_client; and the memory that importing that takes.

    python benchmarks/agent/metrics_page.py [--workloads 100] [--pages 200]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

from prometheus_client import CollectorRegistry
from prometheus_client import core
from prometheus_client import generate_latest

from scavenger_openstack.agent import loop
from scavenger_openstack.agent.metrics import page
from scavenger_openstack.agent.metrics import publishing
from scavenger_openstack.decision import rates
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

KNOBS = (Knob.CPU_CORES, Knob.MEMORY_BYTES, Knob.IO_BYTES_PER_S,
         Knob.EGRESS_BYTES_PER_S)
INTERVAL_S = 1.0
IMPORT = '''
import pathlib
def rss():
    return int(next(line for line in pathlib.Path('/proc/self/status')
                    .read_text().splitlines() if 'VmRSS' in line).split()[1])
from scavenger_openstack.agent import service
before = rss()
import prometheus_client
print(rss() - before)
'''


def sample(workloads: list[Workload], time_s: float) -> HostSample:
    return HostSample(
        'h', 'boot', time_s, 1.8e9 + time_s, tuple(WorkloadSample(
            one, cpu_s=time_s, run_delay_s=time_s / 7, io_wait_s=time_s / 3,
            io_ops=int(time_s), net_tx_bytes=int(time_s), memory_bytes=2 ** 30)
            for one in workloads), cpu_busy_s=dict.fromkeys(
                range(64), time_s / 2), memory_total_bytes=2 ** 38)


def document(time_s: float) -> dict[str, object]:
    """A status, as far as the page needs it."""
    return {
        'wall_time_s': 1.8e9 + time_s, 'stopped': False, 'grade': None,
        'counters': {'ticks': 1, 'blind_ticks': 0, 'kills': 0},
        'peak_rss_bytes': 2 ** 25, 'would': [], 'incidents': [],
        'isolation': {'mode': 'enforce'}, 'libvirt': {'since_s': None},
        'conductor': {'spool_bytes': 0}, 'missing': [],
        'controllers': {name: {'mode': 'enforce', 'facts': {}}
                        for name in ('scavenger', 'io_shares')}}


class Library:
    """The same page by prometheus_client."""

    def __init__(self, rows: dict[str, list[list[object]]]) -> None:
        self._rows = rows

    def collect(self) -> list[core.Metric]:
        kinds = {page.GAUGE: core.GaugeMetricFamily,
                 page.COUNTER: core.CounterMetricFamily}
        families = []
        for name, metric in page.METRICS.items():
            family = kinds[metric.kind](metric.name, metric.help,
                                        labels=metric.labels)
            for *labels, value in self._rows.get(name, ()):
                if value is not None:
                    family.add_metric(labels, value)
            families.append(family)
        return families


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--workloads', type=int, default=100,
                        help='VMs of the host (100)')
    parser.add_argument('--pages', type=int, default=200,
                        help='pages that are made (200)')
    options = parser.parse_args()
    names = [str(uuid.uuid4()) for _ in range(options.workloads)]
    workloads = [Workload(name, Priority.BACKGROUND, project=uuid.uuid4().hex,
                          instance=name) for name in names]
    limits = {(name, knob): Cap(name, knob, 1.0, 'scavenger', 'a reason')
              for name in names for knob in KNOBS}
    counting, publishing_ = [], []
    with tempfile.TemporaryDirectory(dir='/dev/shm') as where:
        file = pathlib.Path(where) / 'scavenger.prom'
        metrics = publishing.Metrics(
            pathlib.Path(where) / 'state', 15.0, ['scavenger', 'io_shares'],
            file=str(file), instances=options.workloads)
        time_s, before = 0.0, sample(workloads, 0.0)
        for _ in range(options.pages):
            for step in range(int(publishing.EVERY_S / INTERVAL_S)):
                time_s += INTERVAL_S
                now = sample(workloads, time_s)
                tick = loop.Tick(time_s, now, rates.rates(before, now))
                status, before = document(time_s), now
                began_s = time.thread_time()
                encoded = metrics.tick(tick, limits, status)
                (counting if step else publishing_).append(
                    time.thread_time() - began_s)
        size, rows = file.stat().st_size, json.loads(encoded)
    registry = CollectorRegistry()
    registry.register(Library(rows))
    library = []
    for _ in range(options.pages):
        began_s = time.thread_time()
        generate_latest(registry)
        library.append(time.thread_time() - began_s)
    began_s = time.thread_time()
    for _ in range(options.pages):
        page.text_format.page((metric, rows.get(name, ()))
                              for name, metric in page.METRICS.items())
    own_s = (time.thread_time() - began_s) / options.pages
    imported = subprocess.run([sys.executable, '-c', IMPORT], check=True,
                              capture_output=True, text=True)
    tick_s, page_s, library_s = map(statistics.median, (
        counting, publishing_, library))
    print(f'{options.workloads} VMs with {len(limits)} limits, '
          f'{options.pages} pages, medians of CPU time\n'
          f'page           {size:,} bytes\n'
          f'tick counted   {1e3 * tick_s:.3f} ms, '
          f'{100 * tick_s / INTERVAL_S:.3f} % of its interval\n'
          f'page and file  {1e3 * page_s:.2f} ms, '
          f'{100 * page_s / publishing.EVERY_S:.3f} % of one CPU\n'
          f'text alone     {1e3 * own_s:.2f} ms; prometheus_client '
          f'{1e3 * library_s:.2f} ms, ratio {library_s / own_s:.1f}; '
          f'importing it {int(imported.stdout) / 1024:.1f} MiB')
    return 0


if __name__ == '__main__':
    sys.exit(main())

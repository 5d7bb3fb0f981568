# SPDX-License-Identifier: Apache-2.0

"""The table that ``scavenger-agent sample`` prints: the use of workloads
between two samples."""

from __future__ import annotations

from collections.abc import Sequence

from scavenger_openstack.agent import names
from scavenger_openstack import amounts
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack.drivers import base
from scavenger_openstack import text
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import printable
from scavenger_openstack.types import WorkloadRates

TITLES = ('workload', 'priority', 'CPU cores', 'waits for CPU', 'memory',
          'disk', 'waits for disk', 'sends', 'receives', 'cycles/instr.')
UNKNOWN = '-'


def lines(before: HostSample, sample: HostSample, facts: base.Facts
          ) -> list[str]:
    """Return the lines for people; a value that is not measured is ``-``."""
    rates = decision_rates.rates(before, sample)
    vm_names = names.Names()
    vm_names.follow(facts.instances)
    memory = ('' if sample.memory_total_bytes is None
              or sample.memory_available_bytes is None else
              f', {amounts.of_bytes(sample.memory_available_bytes)} of '
              f'{amounts.of_bytes(sample.memory_total_bytes)} available')
    return [
        f'host       {sample.host}: {rates.interval_s:.1f} s, '
        f'{amounts.counted(len(sample.cpu_busy_s), "CPU")}{memory}',
        *([f'grade      {facts.grade["text"]}'] if facts.grade else ()),
        *(f'missing    {printable(sentence)}' for sentence in facts.missing),
        *text.columns(TITLES, [_row(rated, vm_names)
                               for rated in rates.workloads], left=(0, 1))]


def _row(rated: WorkloadRates, vm_names: names.Names) -> Sequence[str]:
    workload = rated.workload
    return (
        vm_names.beside(workload.id),
        f'{workload.priority} ({workload.source})',
        UNKNOWN if rated.cpu_cores is None else f'{rated.cpu_cores:.2f}',
        UNKNOWN if rated.run_delay is None else
        f'{amounts.of_number(rated.run_delay)} s/s',
        UNKNOWN if rated.memory_bytes is None else
        amounts.of_bytes(rated.memory_bytes),
        UNKNOWN if rated.io_bytes_per_s is None else
        amounts.of_bytes_per_s(rated.io_bytes_per_s),
        UNKNOWN if rated.io_wait_s_per_op is None else
        f'{amounts.of_number(rated.io_wait_s_per_op * 1e3)} ms/op.',
        *(UNKNOWN if rate is None else amounts.of_bytes_per_s(rate)
          for rate in (rated.net_tx_bytes_per_s, rated.net_rx_bytes_per_s)),
        UNKNOWN if rated.cpi is None else amounts.of_number(rated.cpi))

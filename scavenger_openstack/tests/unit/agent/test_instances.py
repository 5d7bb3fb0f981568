# SPDX-License-Identifier: Apache-2.0

"""The list of VMs in the status."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import fixtures
import testtools
from testtools import content

from scavenger_openstack.agent import instances
from scavenger_openstack.agent import status
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.wire.json_fields import as_json

MIB = 2 ** 20
IGNORED = ("extra spec 'scavenger:priority' = 'backgroud' is ignored: it has "
           'to be foreground or background')


def uuid(number: int) -> str:
    return f'7f1bb3a0-5f0a-4e6c-8a3e-{number:012x}'


def instance(number: int, **more: Any) -> Instance:
    return Instance(**{
        'uuid': uuid(number), 'name': f'instance-{number:08x}',
        'display_name': f'web-{number}', 'flavor': 'm1.small',
        'priority': Priority.BACKGROUND, 'source': 'flavor', 'vcpus': 2,
        'memory_allotment_bytes': 2048 * MIB, 'specs_known': True, **more})


def rates(number: int) -> WorkloadRates:
    return WorkloadRates(
        Workload(uuid(number), Priority.BACKGROUND), 1.0, cpu_cores=1.3,
        memory_bytes=812 * MIB, io_bytes_per_s=3.1e6, io_ops_per_s=42.0,
        net_tx_bytes_per_s=2e5, net_rx_bytes_per_s=1e5)


def document(found: list[Instance], *uses: WorkloadRates,
             caps: tuple[Cap, ...] = (), incidents: tuple[Incident, ...] = ()
             ) -> dict[str, Any]:
    return json.loads(json.dumps({
        'instances': instances.rows(found, Rates(1.0, 1.0, uses)),
        'caps': [cap._asdict() for cap in caps],
        'incidents': [as_json(one) for one in incidents]}))


ALL = [Cap(uuid(3), knob, value, 'scavenger', 'why') for knob, value in (
    (Knob.CPU_CORES, 0.5), (Knob.CPU_SET, '0-1'), (Knob.CPU_IDLE, 1.0),
    (Knob.MEMORY_BYTES, 812.0 * MIB), (Knob.IO_BYTES_PER_S, 10e6),
    (Knob.IO_OPS_PER_S, 100.0), (Knob.EGRESS_BYTES_PER_S, 5e6),
    (Knob.INGRESS_BYTES_PER_S, 4e6), (Knob.LLC_WAYS, 2.0),
    (Knob.PAUSED, 1.0))]


def ten() -> dict[str, Any]:
    """The status of a host with ten VMs."""
    found: list[Instance] = []
    uses: list[WorkloadRates] = []
    for number, (name, flavor, cores, mib) in enumerate((
            ('web-1', 'm1.small', 0.31, 812),
            ('web-2', 'm1.small', 0.42, 798),
            ('shop-db', 'm1.large', 1.87, 5210),
            ('mail', 'm1.tiny', 0.02, 61),
            ('ci-runner', 'm1.medium', 1.2, 2900),
            ('batch-1', 'bg.large', 0.48, 790),
            ('batch-2', 'bg.large', 0.5, 1204),
            ('render-a', 'bg.cpu', 0.5, 640),
            ('render-b', 'bg.cpu', 0.47, 655),
            ('crawler', 'bg.small', 0.11, 300)),
            1):
        background = flavor.startswith('bg')
        found.append(instance(
            number, display_name=name, flavor=flavor,
            priority=(Priority.BACKGROUND if background
                      else Priority.FOREGROUND),
            source='flavor' if background else 'default',
            memory_allotment_bytes=8192 * MIB,
            ignored=(IGNORED,) if name == 'ci-runner' else ()))
        uses.append(rates(number)._replace(
            cpu_cores=cores, memory_bytes=mib * MIB))
    caps = tuple(Cap(uuid(number), knob, value, 'scavenger', reason)
                 for number in range(6, 11) for knob, value, reason in (
                     (Knob.CPU_CORES, 0.5, 'web-2 waits, r = 0.93'),
                     (Knob.CPU_SET, '0-1', 'CPUs that the foreground leaves'),
                     (Knob.MEMORY_BYTES, 1300.0 * MIB, 'memory: foreground '
                      'uses 9.8 GiB, keeps 12.1, leaves 6.5 for 5 workloads')
                 ) if knob is not Knob.CPU_CORES or number > 7)
    return {**statuses.document(
        state='running', workloads={'foreground': 5, 'background': 5},
        libvirt={'state': 'answers', 'since_s': None, 'waits': [],
                 'domains': {uuid(9): 31}},
        controllers={'attribution': {'mode': 'enforce'},
                     'scavenger': {'mode': 'enforce'}}),
        **document(found, *uses, caps=caps, incidents=(
            Incident('1', 5.0, 'h', uuid(2), 'run_delay', 0.41, 0.08, 'cpu',
                     ((uuid(8), 0.93),), (uuid(8),), 'cap', 'confirmed'),
            Incident('2', 5.0, 'h', uuid(3), 'io_wait', 0.0312, 0.01,
                     'disk')))}


class TableTest(testtools.TestCase):

    def test_a_vm(self) -> None:
        self.assertEqual([
            '  instance-00000003  web-3  m1.small  background (flavor)',
            f'      {uuid(3)}  limits: 0.5 cores, CPUs 0-1, CPU only when '
            'idle, memory',
            '        812 MiB, disk 10 MB/s, disk 100 operations/s, sends 5 '
            'MB/s, receives 4 MB/s, 2 ways of',
            '        cache, paused',
            '      uses 1.30 of 2 cores, 812 of 2,048 MiB, disk 3.1 MB/s (42 '
            'operations/s), sends 0.2 MB/s,',
            '        receives 0.1 MB/s'],
            instances.table(document([instance(3)], rates(3),
                                     caps=tuple(ALL)))[1:])

    def test_each_knob_has_words(self) -> None:
        self.assertEqual(set(Knob), {cap.knob for cap in ALL})

    def test_nothing_is_known_of_it(self) -> None:
        self.assertEqual([
            '  instance-00000001  -  -  foreground (default)',
            f'      {uuid(1)}  no limits',
            '      uses unknown of 2 cores, unknown of 2,048 MiB, disk '
            'unknown, sends unknown, receives unknown'],
            instances.table(document([instance(
                1, display_name='', flavor='', source='default',
                priority=Priority.FOREGROUND)]))[1:])

    def test_an_extra_spec_that_is_ignored(self) -> None:
        text = ' '.join(' '.join(instances.table(document([
            instance(1, ignored=(IGNORED,))]))).split())
        self.assertIn(IGNORED, text)

    def test_a_victim_with_and_without_a_proven_cause(self) -> None:
        one = Incident('1', 5.0, 'h', uuid(1), 'io_wait', 0.0312, 0.01,
                       'disk')
        text = ' '.join(' '.join(instances.table(document(
            [instance(1), instance(2)], incidents=(one, Incident(
                '2', 5.0, 'h', uuid(2), 'cpi', None, None, 'cpu',
                antagonists=(uuid(3),)))))).split())
        self.assertIn(
            'SUFFERS from disk: io_wait 0.0312, threshold 0.01; no cause is '
            'proven, so nothing is limited for it', text)
        self.assertIn(
            'SUFFERS from cpu: cpi unknown, threshold unknown; caused by '
            f'{uuid(3)}', text)

    def test_what_disturbed_earlier(self) -> None:
        text = ' '.join(' '.join(instances.table(document(
            [instance(1)], incidents=(Incident(
                '1', 5.0, 'h', uuid(1), 'cpi', None, None, 'cpu',
                named_earlier=(uuid(3),)),)))).split())
        self.assertIn(f'nothing disturbs it now; earlier {uuid(3)} did', text)

    def test_a_victim_of_the_host_itself(self) -> None:
        text = ' '.join(' '.join(instances.table(document(
            [instance(1)], incidents=(Incident(
                '1', 5.0, 'h', uuid(1), 'run_delay', 0.31, 0.1, 'core',
                grounds=(Ground(THE_HOST, GroundKind.DIRECT, 0.9, 1.9, 2.0),
                         )),)))).split())
        self.assertIn('SUFFERS from core: run_delay 0.31, threshold 0.1; '
                      'caused by the host itself', text)

    def test_a_victim_of_its_own_quota(self) -> None:
        text = ' '.join(' '.join(instances.table(document(
            [instance(1)], incidents=(Incident(
                '1', 5.0, 'h', uuid(1), 'throttled_share', 0.31, 0.1,
                'own_limit'),)))).split())
        self.assertIn(
            'SUFFERS from own_limit: throttled_share 0.31, threshold 0.1; '
            'its own quota is the cause, so nothing is limited for it', text)

    def test_ten_fit_100_columns(self) -> None:
        found = [instance(number, display_name='x' * 128, flavor='y' * 128,
                          ignored=(IGNORED,)) for number in range(10)]
        lines = instances.table(document(
            found, *map(rates, range(10)), caps=tuple(ALL)))
        self.assertGreater(len(lines), 40)
        self.assertLessEqual(max(map(len, lines)), 100)

    def test_ten_as_an_operator_sees_them(self) -> None:
        """Each has its names, what it is, uses, may use and suffers, and
        no UUID is without a name."""
        text = status.table(ten(), 10.0)
        self.addDetail('status', content.text_content(text))
        for number in range(1, 11):
            self.assertIn(f'\n  instance-{number:08x}  ', text)
            self.assertIn(f'\n      {uuid(number)}  ', text)
        words = ' '.join(text.split())
        for said in (
                'SUFFERS from cpu: run_delay 0.41, threshold 0.08; caused by '
                f'instance-00000008 (render-a, {uuid(8)})', IGNORED,
                f'domain instance-00000009 (render-b, {uuid(9)}) has not '
                'answered',
                f'instance-0000000a (crawler, {uuid(10)}) cpu_cores 0.5 '
                'cores web-2 waits, r = 0.93',
                f'incident: victim instance-00000003 (shop-db, {uuid(3)}), '
                'cause disk'):
            self.assertIn(said, words)

    def test_no_vm(self) -> None:
        self.assertEqual([], instances.table(document([])))
        self.assertEqual([], instances.table({}))


class JsonTest(testtools.TestCase):

    def test_limits_and_victims_are_beside_the_vm(self) -> None:
        one, = instances.complete(document([instance(3)], rates(3),
                                           caps=tuple(ALL[:2])))
        self.assertEqual(
            ({'cpu_cores': 0.5, 'cpu_set': '0-1'}, [], 1.3, 812 * MIB,
             'web-3', 'm1.small', 'flavor'),
            (one['limits'], one['suffers'], one['cpu_cores'],
             one['memory_bytes'], one['display_name'], one['flavor'],
             one['source']))

    def test_a_priority_of_the_control_plane(self) -> None:
        found = instance(3, priority=Priority.FOREGROUND, source='default')
        use = rates(3)
        use = use._replace(workload=dataclasses.replace(
            use.workload, source='override'))
        one, = document([found], use)['instances']
        self.assertEqual(('background', 'override'),
                         (one['priority'], one['source']))

    def test_in_the_file(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's')
        made = instances.InstanceRows()
        for found in ([], [instance(1), instance(2)]):
            status.write(path, {'schema': status.SCHEMA, 'time_s': 1.0},
                         instances=made.encoded(1.0, found, None))
            self.assertEqual([one.uuid for one in found], [
                row['uuid'] for row in status.read(path)['instances']])

    def test_made_again_now_and_then_or_with_other_vms(self) -> None:
        found = [instance(1)]
        made = instances.InstanceRows()
        first = made.encoded(100.0, found, None)
        later = Rates(101.0, 1.0, (rates(1),))
        self.assertIs(first, made.encoded(101.0, found, later))
        self.assertIn(b'1.3', made.encoded(100.0 + instances.EVERY_S, found,
                                        later))
        self.assertIn(b'web-2', made.encoded(105.5, [instance(2)], None))

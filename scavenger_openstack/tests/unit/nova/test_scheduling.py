# SPDX-License-Identifier: Apache-2.0

"""Filter and weigher with objects of Nova, and an API on loopback."""

from __future__ import annotations

import json
import logging
import math
import socket
import threading
import time

import fixtures
from keystoneauth1 import loading
import nova.conf
from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import weights as scheduler_weights
from nova import weights as nova_weights
from oslo_config import cfg

from scavenger_openstack.nova import options
from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary
from scavenger_openstack.tests.unit.nova.scheduling import MIB
from scavenger_openstack.tests.unit.nova.scheduling import SchedulingCase
from scavenger_openstack.tests.unit.nova.scheduling import spec
from scavenger_openstack.tests.unit.nova.scheduling import states
from scavenger_openstack.tests.unit.nova.scheduling import told


class Scheduling(SchedulingCase):

    def test_background_goes_where_there_is_headroom(self) -> None:
        self.say(told('a'), told('b', headroom={
            'cpu_cores': 0.5, 'memory_bytes': 4096.0 * MIB}),
                 told('c', silent=True))
        self.assertEqual(['a'], self.passing(spec(), 'a', 'b', 'c', 'd'))
        self.assertEqual([], self.passing(spec(vcpus=5), 'a', 'b'))
        self.assertTrue(self.filter.host_passes(states('a')[0], spec()))
        self.assertFalse(self.filter.host_passes(states('b')[0], spec()))

    def test_why_no_host_takes_it(self) -> None:
        """At INFO, once a minute."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        now_s = 1000.0
        self.filter.clock = lambda: now_s
        self.say(*(told(f'h{number}', enforcing=False) for number in range(5)),
                 told('full', headroom={'cpu_cores': 0.5,
                                        'memory_bytes': 0.0}),
                 told('free'))
        names = [f'h{number}' for number in range(5)]
        self.passing(spec(), *names, 'full', 'free')
        self.passing(spec(background=False), *names)
        self.assertEqual('', log.output)
        for _ in range(3):
            self.assertEqual([], self.passing(spec(), *names, 'full'))
            now_s += 20
        [line] = log.output.splitlines()
        self.assertIn('1 vCPUs and 512 MiB (1 requests', line)
        self.assertIn('its agent sets no limits: h0, h1, h2 and 2 more; '
                      'headroom of 0.5 cores is less than 1: full', line)
        self.assertEqual([], self.passing(spec(), 'h0'))
        self.assertIn('(3 requests', log.output.splitlines()[1])

    def schedule(self, states: list[host_manager.HostState],
                 wanted: objects.RequestSpec) -> str:
        """The host on which Nova places an instance, '' if there is none."""
        weighed = scheduler_weights.HostWeightHandler().get_weighed_objects(
            [self.weigher], list(self.filter.filter_all(states, wanted)),
            wanted)
        if not weighed:
            return ''
        weighed[0].obj.consume_from_request(wanted)
        host: str = weighed[0].obj.host
        return host

    def test_a_burst_of_one_request(self) -> None:
        """As many on each host as fit, in turn."""
        self.say(told('a'), told('b'))
        wanted = spec()
        wanted.flavor.update({'root_gb': 0, 'ephemeral_gb': 0, 'swap': 0})
        wanted.pci_requests = wanted.numa_topology = None
        found = states('a', 'b')
        hosts = [self.schedule(found, wanted) for _ in range(10)]
        self.assertEqual([{'a', 'b'}] * 4, [
            set(hosts[at:at + 2]) for at in range(0, 8, 2)])
        self.assertEqual(['', ''], hosts[8:])

    def test_memory_that_was_just_given_away(self) -> None:
        self.say(told('a', headroom={'cpu_cores': 64.0,
                                     'memory_bytes': 1100.0 * MIB}))
        found = states('a')
        for passes, mib in ((True, 512), (True, 512), (False, 0)):
            self.assertEqual(passes, self.filter.host_passes(found[0],
                                                             spec()))
            found[0].free_ram_mb -= mib

    def used(self, vcpus: int, wanted_vcpus: int = 1) -> bool:
        """Whether a host passes that has so much in Nova's database now."""
        self.say(told('a'))
        found = states('a')[0]
        found.vcpus_used = vcpus
        return self.filter.host_passes(found, spec(vcpus=wanted_vcpus))

    def test_instances_that_boot(self) -> None:
        """They count for a while, whichever scheduler placed them."""
        self.assertTrue(self.used(20, 4))
        self.now_s += 5
        self.assertEqual((False, True), (self.used(23, 2), self.used(23, 1)))
        self.now_s += 5
        self.assertFalse(self.used(24))
        self.now_s += placed.PLACED_S - 11
        self.assertFalse(self.used(24))
        self.now_s += 3
        self.assertEqual((False, True), (self.used(24, 4), self.used(24, 3)))
        self.now_s += placed.PLACED_S
        self.assertTrue(self.used(24, 4))

    def test_others_that_are_deleted_meanwhile(self) -> None:
        """What they used is free when an agent reports so."""
        for vcpus in 20, 16:
            self.assertTrue(self.used(vcpus, 4))
        self.assertFalse(self.used(20))
        self.now_s += placed.PLACED_S + 1
        self.assertTrue(self.used(20, 4))

    def test_what_the_foreground_has_just_got(self) -> None:
        """It does not use it yet; its requests pass everywhere."""
        self.say(told('a'))
        found = states('a')
        for vcpus in 0, 4:
            found[0].vcpus_used = vcpus
            self.assertEqual(found, list(self.filter.filter_all(
                found, spec(background=False))))
        self.assertFalse(self.used(4))

    def test_names_with_and_without_a_domain(self) -> None:
        """Those that agents report by, and those that Nova has."""
        self.say(told('a.example.org'), told('b', headroom={
            'cpu_cores': 7.0, 'memory_bytes': 4096.0 * MIB}),
            told('c', headroom={'cpu_cores': 0.5}))
        self.assertEqual(['a', 'b.example.org'], self.passing(
            spec(), 'a', 'b.example.org', 'c.example.org', 'a.other.org'))
        self.assertEqual(['b.example.org', 'a'], self.weighed(
            spec(), 'a', 'b.example.org'))

    def test_the_name_that_a_host_had_before(self) -> None:
        self.say(told('a', silent=True), told('a.example.org'))
        self.assertEqual(['a', 'a.example.org'], self.passing(
            spec(), 'a', 'a.example.org'))

    def test_background_goes_where_limits_are_set(self) -> None:
        self.say(told('a', enforcing=False), told('b'))
        self.assertEqual(['b'], self.passing(spec(), 'a', 'b'))

    def test_a_flavor_that_asks_placement(self) -> None:
        """What it asks for has to be free, not what it has."""
        self.say(told('a', headroom={
            'cpu_cores': 0.5, 'memory_bytes': 256.0 * MIB}))
        for asked, names in (
                ({'CUSTOM_BACKGROUND_VCPU': '0',
                  'CUSTOM_BACKGROUND_MEMORY_MB': '256'}, ['a']),
                ({'CUSTOM_BACKGROUND_VCPU': '0',
                  'CUSTOM_BACKGROUND_MEMORY_MB': '257'}, []),
                ({'CUSTOM_BACKGROUND_VCPU': '0'}, []),
                ({'CUSTOM_BACKGROUND_VCPU': '1',
                  'CUSTOM_BACKGROUND_MEMORY_MB': '256'}, []),
                ({'CUSTOM_BACKGROUND_VCPU': 'none',
                  'CUSTOM_BACKGROUND_MEMORY_MB': '256'}, [])):
            wanted = spec()
            wanted.flavor.extra_specs.update({
                f'resources:{name}': value for name, value in asked.items()})
            self.assertEqual(names, self.passing(wanted, 'a'), str(asked))

    def test_the_foreground_goes_everywhere(self) -> None:
        self.say(told('a', silent=True))
        self.assertEqual(['a', 'b'],
                         self.passing(spec(background=False), 'a', 'b'))
        self.assertEqual(1, self.api.asked)

    def test_a_rebuild_stays_where_it_is(self) -> None:
        self.say(told('a', silent=True))
        self.assertEqual(['a'], self.passing(
            spec(_nova_check_type=['rebuild']), 'a'))

    def test_the_foreground_keeps_away_from_incidents(self) -> None:
        self.say(told('a', incidents=1), told('b', background_vcpus=6.0),
                 told('c'))
        self.assertEqual(['c', 'b', 'a'], self.weighed(
            spec(background=False), 'a', 'b', 'c'))

    def test_the_background_goes_where_most_is_free(self) -> None:
        self.say(told('a'), told('b', headroom={'cpu_cores': 7.0}),
                 told('c', incidents=1, headroom={'cpu_cores': 8.0}))
        self.assertEqual(['b', 'a', 'c'],
                         self.weighed(spec(), 'a', 'b', 'c'))

    def test_an_answer_that_is_the_same(self) -> None:
        """It is not sent again, and counts as new."""
        self.say(told('a'))
        self.later_s = 50.0
        self.summary.refresh()
        self.assertEqual(1, self.api.spared)
        self.later_s = 100.0
        self.assertEqual(['a'], self.passing(spec(), 'a', 'b'))
        self.say(told('b'))
        self.assertEqual(['b'], self.passing(spec(), 'a', 'b'))

    def test_without_an_answer_all_are_alike(self) -> None:
        for answer in (500, 404, 'no JSON', '{}', '[]', '{"hosts": [1]}',
                       '{"hosts": [{"name": "a"}]}',
                       *(json.dumps({'hosts': [told('a', **odd)]})
                         for odd in ({'incidents': math.inf},
                                     {'background_vcpus': math.nan},
                                     {'background_vcpus': 10 ** 400},
                                     {'headroom': {'cpu_cores': math.inf}})),
                       None):
            if answer is None:
                nova.conf.CONF.set_override('summary_timeout_s', 0.3,
                                            options.SECTION)
            self.api.answer = answer
            self.summary.refresh()
            self.assertEqual(['a', 'b'], self.passing(spec(), 'a', 'b'),
                             str(answer))
            self.assertEqual(
                [0.0, 0.0], self.weigher.weigh_objects(
                    [nova_weights.WeighedObject(one, 0.0)
                     for one in states('a', 'b')], spec()))

    def test_a_fault_that_terminals_obey(self) -> None:
        """What answered may be another program."""
        def read() -> summary.Hosts:
            raise ValueError('a\x1b[31m\nb')

        log = self.useFixture(fixtures.FakeLogger(summary.__name__))
        summary.Summary(read, interval_s=1.0, max_age_s=1.0).refresh()
        self.assertIn(r'ValueError: a\x1b[31m\nb', log.output)

    def test_a_fault_is_logged_once(self) -> None:
        log = self.useFixture(fixtures.FakeLogger(summary.__name__))
        for answer, count in ((401, 1), (500, 2)):
            self.api.answer = answer
            for _ in range(3):
                self.summary.refresh()
            self.assertEqual(count, log.output.count(
                'No summary of the hosts'), log.output)
        self.say(told('a'))
        self.assertEqual(1, log.output.count('a summary of the hosts again'))

    def test_an_answer_is_kept_for_a_while(self) -> None:
        now = [100.0]
        kept = summary.Summary(
            summary.Reader(nova.conf.CONF).read, interval_s=3600.0,
            max_age_s=60.0, clock=lambda: now[0])
        self.say(told('a'))
        kept.refresh()
        self.api.answer = 500
        for later_s, names in ((0, {'a'}), (60, {'a'}), (1, set())):
            now[0] += later_s
            kept.refresh()
            self.assertEqual(names, set(kept.last_hosts()), str(later_s))

    def test_it_is_read_again_and_again(self) -> None:
        self.say(told('a'))
        self.assertEqual(['a'], self.passing(spec(), 'a', 'b'))
        self.api.answer = json.dumps({'hosts': [told('b')]})
        deadline = time.monotonic() + 30
        while self.passing(spec(), 'a', 'b') != ['b']:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_nobody_has_asked_for_long(self) -> None:
        """What was known then is too old; the next one waits again."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{summary.__name__}.FIRST_S', 30.0))
        now = [100.0]
        kept = summary.Summary(
            summary.Reader(nova.conf.CONF).read, interval_s=0.01,
            max_age_s=60.0, clock=lambda: now[0])
        for name in 'a', 'b':
            others = threading.enumerate()      # of other tests, too
            self.api.answer = json.dumps({'hosts': [told(name)]})
            self.assertEqual({name}, set(kept.hosts()))
            reader, = (thread for thread in threading.enumerate()
                       if thread.name == 'scavenger-summary'
                       and thread not in others)
            now[0] += summary.IDLE_S
            reader.join(30)
            self.assertFalse(reader.is_alive())

    def test_no_thread_can_be_started(self) -> None:
        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        self.api.answer = json.dumps({'hosts': [told('a')]})
        with fixtures.MonkeyPatch('threading.Thread.start', fail):
            self.assertEqual(['a', 'b'], self.passing(spec(), 'a', 'b'))
        deadline = time.monotonic() + 30
        while self.passing(spec(), 'a', 'b') != ['a']:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_nobody_waits_for_it_twice(self) -> None:
        """The first time for a second at most, later not at all."""
        self.api.answer = None
        self.passing(spec(), 'a')
        asked = self.api.asked
        for _ in range(1000):
            self.passing(spec(), 'a')
        self.assertEqual(asked, self.api.asked)

    def test_keystone_hangs(self) -> None:
        """It accepts the connection, and never answers."""
        keystone = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(keystone.close)
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf.register_opts(loading.get_auth_plugin_conf_options('password'),
                           options.SECTION)
        for name, value in (
                ('auth_type', 'password'), ('username', 'nova'),
                ('password', 'p'), ('summary_timeout_s', 0.3),
                ('endpoint_override', self.api.url),
                ('auth_url', 'http://127.0.0.1:'
                             f'{keystone.getsockname()[1]}/v3')):
            conf.set_override(name, value, options.SECTION)
        kept = summary.Summary(summary.Reader(conf).read, interval_s=60.0,
                               max_age_s=60.0)
        asks = threading.Thread(target=kept.refresh, daemon=True)
        asks.start()
        asks.join(30)
        self.assertFalse(asks.is_alive())

    def test_a_request_without_what_is_expected(self) -> None:
        self.say(told('a', silent=True))
        for odd in (None, objects.RequestSpec(), spec(vcpus=1)):
            if odd is not None and 'flavor' in odd:
                odd.flavor = objects.Flavor(
                    vcpus=1, memory_mb=1)       # no extra specs loaded
            self.assertEqual(['a'], self.passing(odd, 'a'))
            self.assertEqual(1, len(self.weigher.weigh_objects(
                [nova_weights.WeighedObject(states('a')[0], 0.0)], odd)))

    def test_the_multiplier_of_an_aggregate(self) -> None:
        state = states('a')[0]
        self.assertEqual(1.0, self.weigher.weight_multiplier(state))
        state.aggregates = [objects.Aggregate(metadata={
            'interference_weight_multiplier': '2.5'})]
        self.assertEqual(2.5, self.weigher.weight_multiplier(state))

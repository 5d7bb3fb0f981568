# SPDX-License-Identifier: Apache-2.0

"""A real Prometheus asks an agent, an API and a conductor; cloud_metrics_cases
on servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any
import urllib.parse
import urllib.request

from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import schema
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.unit.cloud_metrics_cases import Metrics
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.wire import codec

WAIT_S = 90.0


class Scraped(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        if shutil.which('prometheus') is None:
            self.skipTest('needs Prometheus')
        self.ports = {name: process.free_port() for name in (
            'agent', 'api', 'conductor', 'prometheus', 'reports', 'http')}

    def run_program(self, *command: str, **environment: str) -> None:
        """Start a program that ends with the test."""
        with (self.directory / 'log').open('ab') as output:
            found = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, cwd=self.directory,
                env={**os.environ, 'HOME': str(self.directory),
                     **environment})
        self.addCleanup(found.wait, 60)
        self.addCleanup(found.terminate)

    def log(self) -> str:
        return (self.directory / 'log').read_text(errors='replace')[-4000:]

    def control_plane(self) -> None:
        """An API, and two processes of a conductor, on one database."""
        url = f'sqlite:///{self.directory}/database'
        engine = connect.engine(url)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            self.token = enrollment.enroll(
                connection, cloud.HOST, now_s=0.0).token
        engine.dispose()
        file = self.directory / 'control.conf'
        file.write_text(f'''[database]
connection = {url}
[api]
port = {self.ports['http']}
auth_strategy = noauth
metrics_listen = 127.0.0.1:{self.ports['api']}
[conductor]
metrics_listen = 127.0.0.1:{self.ports['conductor']}
''')
        self.run_program(sys.executable, '-m', 'scavenger_openstack.cmd.api',
                         '--config-file', str(file))
        counted = self.directory / 'counted'
        counted.mkdir()
        self.run_program(
            sys.executable, '-m', 'gunicorn', '--workers', '2', '--bind',
            f'127.0.0.1:{self.ports["reports"]}',
            'scavenger_openstack.wsgi.conductor:application',
            SCAVENGER_CONFIG_FILE=str(file),
            PROMETHEUS_MULTIPROC_DIR=str(counted))

    def report(self) -> bytes:
        """Have the conductor take a report; the answer."""
        request = urllib.request.Request(
            f'http://127.0.0.1:{self.ports["reports"]}/v1/sync',
            codec.encode(cloud.report()), {
                'X-Scavenger-Host': cloud.HOST,
                'Authorization': f'Bearer {self.token}'})
        with urllib.request.urlopen(request, timeout=30) as answer:
            data: bytes = answer.read()
            return data

    def until(self, what: str, do: Any) -> Any:
        """What it returns, as soon as that is something."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                found = do()
            except OSError:
                found = None
            if found:
                return found
            if time.monotonic() > deadline:
                self.fail(f'{what}: {found!r}; {self.log()}')
            time.sleep(0.2)

    def page(self, name: str) -> bytes:
        with urllib.request.urlopen(
                f'http://127.0.0.1:{self.ports[name]}/metrics',
                timeout=30) as answer:
            data: bytes = answer.read()
            return data

    def query(self, expression: str) -> dict[str, float]:
        """What Prometheus answers: job -> value."""
        with urllib.request.urlopen(
                f'http://127.0.0.1:{self.ports["prometheus"]}/api/v1/query?'
                + urllib.parse.urlencode({'query': expression}),
                timeout=30) as answer:
            found = json.load(answer)
        return {one['metric'].get('job', ''): float(one['value'][1])
                for one in found['data']['result']}

    def test_all_three(self) -> None:
        file = self.directory / 'scavenger.prom'
        self.configure('[scavenger]', 'mode = enforce')
        self.config.write_text(self.config.read_text().replace(
            '[agent]', f'[agent]\nmetrics_file = {file}\nmetrics_listen = '
                       f'127.0.0.1:{self.ports["agent"]}'))
        self.start('standalone')
        self.control_plane()
        self.until('a report', self.report)
        for _ in range(7):      # each process takes some, and starts once
            self.report()
        targets = {}
        for name in ('agent', 'api', 'conductor'):
            page = self.until(name, lambda name=name: self.page(name))
            self.assertEqual(b'', subprocess.run(
                ['promtool', 'check', 'metrics'], input=page, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout)
            targets[name] = f'127.0.0.1:{self.ports[name]}'
        self.run_prometheus(targets)
        self.until('all are asked', lambda: sum(self.query('up').values())
                   == len(targets))
        self.assertEqual({'agent': 1.0}, self.query('scavenger_watcher_up'))
        self.assertLess(self.query(
            'time() - scavenger_agent_last_tick_timestamp_seconds')['agent'],
            30)
        self.assertEqual({'agent': 1.0}, self.until(
            'a limit', lambda: self.query(
                'scavenger_limits{knob="cpu_idle"}')))
        self.assertEqual({'api': 1.0, 'conductor': 1.0},
                         self.query('sum by (job) (scavenger_hosts)'))
        self.assertEqual({'conductor': 8.0}, self.query(
            'sum by (job) (scavenger_reports_total{result="stored"})'))
        printed = self.run_agent('metrics')
        self.assertEqual((0, ''), (printed.returncode, printed.stderr))
        names = [{line.partition(b'{')[0].partition(b' ')[0]
                  for line in text.splitlines()} for text in (
            printed.stdout.encode(), file.read_bytes(), self.page('agent'))]
        self.assertEqual(names[0], names[1])
        self.assertEqual(names[1], names[2])

    def run_prometheus(self, targets: dict[str, str]) -> None:
        (self.directory / 'prometheus.yml').write_text(json.dumps({
            'global': {'scrape_interval': '1s', 'scrape_timeout': '1s'},
            'scrape_configs': [{
                'job_name': name, 'static_configs': [{'targets': [target]}]}
                for name, target in targets.items()]}))
        self.run_program(
            'prometheus', f'--config.file={self.directory}/prometheus.yml',
            f'--storage.tsdb.path={self.directory}/series',
            f'--web.listen-address=127.0.0.1:{self.ports["prometheus"]}')


class OnMariaDb(Metrics, databases.MariaDb):
    pass


class OnPostgreSql(Metrics, databases.PostgreSql):
    pass

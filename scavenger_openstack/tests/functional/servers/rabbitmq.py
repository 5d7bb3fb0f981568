# SPDX-License-Identifier: Apache-2.0


"""A private RabbitMQ, with an epmd of its own."""

from __future__ import annotations

import functools
import pathlib
import signal
import socket

from scavenger_openstack.tests.functional.servers import process

SCRIPTS = '/usr/lib/rabbitmq/bin'
"""The ones in /usr/sbin change to the user that has the service's files."""

CONFIGURATION = """
listeners.tcp.local = 127.0.0.1:{port}
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 256MiB
log.console = true
log.file = false
"""


class RabbitMq(process.Server):
    """``url`` is for ``transport_url``."""

    def __init__(self) -> None:
        super().__init__('rabbitmq')
        self._epmd_port = process.free_port()
        self._node_port = process.free_port()
        self.port = process.free_port()
        self.url = f'rabbit://guest:guest@127.0.0.1:{self.port}/'
        for name in ('mnesia', 'log'):
            self.make_directory(name)
        self.write('rabbitmq.conf', CONFIGURATION.format(port=self.port))
        self.write('env.conf', '')
        self.write('plugins', '[].\n')
        self._names = {
            'ERL_EPMD_PORT': str(self._epmd_port),
            'ERL_EPMD_ADDRESS': '127.0.0.1',
            'RABBITMQ_NODENAME': f'test{self.port}@localhost',
            'RABBITMQ_CONF_ENV_FILE': str(self.directory / 'env.conf')}
        self.begin()

    @property
    def log(self) -> pathlib.Path:
        """What it has written."""
        return self.directory / 'rabbitmq-server.log'

    def begin(self) -> None:
        """Start it, the first time or again."""
        top = self.directory
        environment = {
            **self._names,
            'RABBITMQ_DIST_PORT': str(self._node_port),
            'RABBITMQ_CONFIG_FILE': str(top / 'rabbitmq.conf'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(top / 'plugins'),
            'RABBITMQ_MNESIA_BASE': str(top / 'mnesia'),
            'RABBITMQ_LOG_BASE': str(top / 'log'),
            'RABBITMQ_PID_FILE': str(top / 'pid'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none '
                '-kernel inet_dist_use_interface {127,0,0,1}',
            # The server replaces its script, so that signals reach it.
            'RUNNING_UNDER_SYSTEMD': 'true'}
        self.start([process.program('epmd'), '-address', '127.0.0.1',
                    '-port', str(self._epmd_port)],
                   lambda: process.answers(
                       socket.AF_INET, ('127.0.0.1', self._epmd_port)),
                   environment)
        self.start([process.program('rabbitmq-server', SCRIPTS)],
                   self._ready, environment)

    def _ready(self) -> bool:
        """Whether it greets a client, which is the last that it begins."""
        try:
            with socket.create_connection(('127.0.0.1', self.port), 5.0
                                          ) as client:
                client.sendall(b'AMQP\x00\x00\x09\x01')
                return client.recv(1) == b'\x01'
        except OSError:
            return False

    def control(self, *arguments: str) -> None:
        """As an operator does with rabbitmqctl."""
        self.run([process.program('rabbitmqctl', SCRIPTS), *arguments],
                 self._names)

    def freeze(self) -> None:
        """It accepts connections and never answers."""
        self._processes[-1].send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._processes[-1].send_signal(signal.SIGCONT)


@functools.cache
def shared() -> RabbitMq:
    """The one of this process.

    :raises process.Missing: RabbitMQ is not installed.
    """
    process.program('epmd')
    process.program('rabbitmq-server', SCRIPTS)
    return RabbitMq()

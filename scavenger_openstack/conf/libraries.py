# SPDX-License-Identifier: Apache-2.0

"""Options of libraries in a file that all programs read.

What deployment tools write for every service of OpenStack is not wrong here,
also where a library, or an option of it, is not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

USED_SECTIONS = frozenset((
    'openstack', 'oslo_messaging_rabbit', 'oslo_messaging_kafka',
    'oslo_messaging_metrics', 'oslo_messaging_notifications',
    'oslo_messaging_tracing', 'keystone_authtoken', 'oslo_policy',
    'oslo_middleware', 'oslo_reports', 'cors', 'healthcheck'))
"""Sections that a library reads, in those programs that import it."""

USED_DEFAULTS = frozenset((
    'transport_url', 'control_exchange', 'rpc_response_timeout',
    'rpc_ping_enabled', 'executor_thread_pool_size',
    'rpc_thread_pool_size'))
"""Options of theirs in [DEFAULT]."""

UNUSED_SECTIONS = frozenset((
    'audit_middleware_notifications', 'barbican', 'cache', 'coordination',
    'key_manager', 'keystone', 'keystone_auth', 'matchmaker_redis',
    'oslo_concurrency', 'oslo_db', 'oslo_limit', 'oslo_messaging_amqp',
    'oslo_messaging_pulsar', 'oslo_messaging_zmq', 'oslo_versionedobjects',
    'privsep', 'profiler', 'profiler_jaeger', 'profiler_otlp',
    'service_user', 'ssl', 'taskflow', 'vault', 'wsgi'))
"""Sections of libraries of OpenStack that no program here uses."""

UNUSED: Mapping[str, Mapping[str, str]] = {
    'DEFAULT': {
        'host': '[agent] host', 'auth_strategy': '[api] auth_strategy',
        **dict.fromkeys((
            'api_paste_config', 'backdoor_port', 'backdoor_socket', 'bindir',
            'client_socket_timeout', 'disable_process_locking', 'enabled_apis',
            'fatal_deprecations', 'fatal_exception_format_errors',
            'graceful_shutdown_timeout', 'lock_path', 'log_options',
            'max_header_line', 'memcached_servers', 'my_ip',
            'notification_driver', 'notification_topics',
            'osapi_max_limit', 'periodic_enable', 'periodic_fuzzy_delay',
            'periodic_interval_max', 'pybasedir', 'report_interval',
            'rootwrap_config', 'rpc_backend', 'run_external_periodic_tasks',
            'service_down_time', 'state_path', 'tcp_keepidle', 'tempdir',
            'use_forwarded_for', 'use_ssl', 'verbose',
            'wsgi_default_pool_size', 'wsgi_keep_alive', 'wsgi_log_format',
            'wsgi_server_debug'), '')},
    'database': {
        'max_pool_size': '[database] max_connections',
        'max_overflow': '[database] max_connections', **dict.fromkeys((
            'asyncio_connection', 'asyncio_slave_connection', 'backend',
            'connection_debug', 'connection_parameters',
            'connection_recycle_time', 'connection_trace',
            'db_inc_retry_interval', 'db_max_retries',
            'db_max_retry_interval', 'db_retry_interval', 'idle_timeout',
            'max_retries', 'min_pool_size', 'mysql_enable_ndb',
            'mysql_sql_mode', 'mysql_wsrep_sync_wait', 'pool_timeout',
            'retry_interval', 'slave_connection', 'sqlite_synchronous',
            'use_db_reconnect', 'use_tpool'), '')}}
"""Options in sections of ours -> the option here that does the like.  Those
of oslo.service and oslo.db, and what templates write for each service."""

Sections = Mapping[str, Mapping[str, Sequence[str]]]
"""What a file has: the values of each option of each section."""


def named_sections(files: Iterable[Sections]) -> set[str]:
    """The sections that an ``auth_section`` of keystoneauth names."""
    return {value for sections in files for options in sections.values()
            for value in options.get('auth_section', ())}


def without_unused(sections: Sections) -> Sections:
    """Return what a file has for the programs here and the libraries they
    use."""
    return {name: {option: values for option, values in options.items()
                   if option not in UNUSED.get(name, ())}
            for name, options in sections.items()
            if name not in UNUSED_SECTIONS}


def unused(files: Iterable[tuple[str, Sections]]) -> Iterator[str]:
    """Generate a sentence for each file that has options of libraries which
    are ignored."""
    listed = list(files)
    named = named_sections(sections for _, sections in listed)
    for path, sections in listed:
        ignored = [
            f'[{name}] {option}' + (f' (use {ours})' if ours else '')
            for name, options in UNUSED.items()
            for option, ours in sorted(options.items())
            if option in sections.get(name, ())]
        ignored += [f'[{name}]' for name in sorted(
            UNUSED_SECTIONS & sections.keys() - named)]
        if ignored:
            yield (f'{path}: options of libraries that are not used here are '
                   f'ignored: {", ".join(ignored)}')

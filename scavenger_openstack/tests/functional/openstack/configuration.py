# SPDX-License-Identifier: Apache-2.0

"""The configuration files of the OpenStack of the tests, as text."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib

PASSWORD = 'secret'
"""Of every user: all of it listens on loopback only, and is gone soon."""

REGION = 'RegionOne'

DATABASES = ('keystone', 'placement', 'glance', 'nova_api', 'nova_cell0',
             'nova_cell1', 'scavenger')

INSTANCES = '/var/lib/nova/instances'
"""In the file system of each hypervisor."""

CATALOG = {'nova': ('compute', '/v2.1'), 'placement': ('placement', ''),
           'glance': ('image', ''), 'neutron': ('network', ''),
           'scavenger': ('interference', '')}
"""User and service -> type, and what follows the port in its URL."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Where everything is.

    :param top: a directory of ours; ``environment`` that of the programs
    :param ports: by service, with ``keystone``
    :param databases: URLs, by the names of :data:`DATABASES`
    :param broker: for ``transport_url``
    :param extra: more of ``nova.conf``, by section
    """

    top: pathlib.Path
    environment: pathlib.Path
    ports: Mapping[str, int]
    databases: Mapping[str, str]
    broker: str
    extra: Mapping[str, str]

    def url(self, service: str) -> str:
        return f'http://127.0.0.1:{self.ports[service]}'

    @property
    def keystone(self) -> str:
        return self.url('keystone') + '/v3'

    def directory(self, service: str) -> pathlib.Path:
        """Where its configuration is."""
        return self.top / 'etc' / service


def text(sections: Mapping[str, str]) -> str:
    """A file of these sections."""
    return '\n'.join(f'[{name}]\n{body.strip()}\n'
                     for name, body in sections.items())


def credentials(site: Site, user: str) -> str:
    """What a service needs to speak to Keystone as a user."""
    return f"""
auth_type = password
auth_url = {site.keystone}
www_authenticate_uri = {site.keystone}
username = {user}
password = {PASSWORD}
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = {REGION}
"""


def keystone(site: Site) -> str:
    return text({
        'DEFAULT': '', 'database': database(site, 'keystone'),
        'token': 'provider = fernet',
        'fernet_tokens': f'key_repository = {site.top}/fernet',
        'fernet_receipts': f'key_repository = {site.top}/fernet',
        'credential': f'key_repository = {site.top}/credential'})


def placement(site: Site) -> str:
    return text({
        'DEFAULT': '', 'api': 'auth_strategy = keystone',
        'placement_database': database(site, 'placement'),
        'keystone_authtoken': credentials(site, 'placement')})


def glance(site: Site) -> str:
    return text({
        'DEFAULT': f"""
node_staging_uri = file://{site.top}/staging
enabled_backends = files:file
enabled_import_methods = []
worker_self_reference_url = {site.url('glance')}
""",
        'database': database(site, 'glance'),
        'glance_store': 'default_backend = files',
        'files': f'filesystem_store_datadir = {site.top}/images',
        'os_glance_staging_store':
            f'filesystem_store_datadir = {site.top}/staging',
        'os_glance_tasks_store':
            f'filesystem_store_datadir = {site.top}/tasks',
        'oslo_concurrency': f'lock_path = {site.top}/locks',
        'paste_deploy': 'flavor = keystone\nconfig_file = '
            f'{site.environment}/etc/glance/glance-api-paste.ini',
        'keystone_authtoken': credentials(site, 'glance')})


def nova(site: Site) -> str:
    """For the API, the scheduler and the conductor."""
    return text(_with({
        **_nova(site, 'control'),
        'api_database': database(site, 'nova_api'),
        'database': database(site, 'nova_cell1'),
        'keystone_authtoken': credentials(site, 'nova'),
        'scheduler': 'workers = 1\ndiscover_hosts_in_cells_interval = 2',
        'conductor': 'workers = 1'}, site.extra))


def compute(site: Site, host: str, uri: str, address: str) -> str:
    """For the nova-compute of one hypervisor.  It must see no database.

    :param address: where others reach it, see :mod:`.compute`
    """
    helper = (f'helper_command = {site.environment}/bin/privsep-helper '
              f'--config-file {site.directory("nova")}/{host}.conf')
    return text(_with({
        **_nova(site, host, address),
        'libvirt': f"""
virt_type = qemu
cpu_mode = none
connection_uri = {uri}
live_migration_inbound_addr = {address}
live_migration_uri = qemu+unix:///system?socket={site.top}/sockets/%s
tb_cache_size = 32
hw_machine_type = x86_64=pc
""",
        # A kernel begins as a disk with partitions does, and is refused when
        # the next host fetches it for a live migration.
        'workarounds': 'disable_deep_image_inspection = true',
        'vnc': 'enabled = false',
        'nova_sys_admin': helper, 'privsep_osbrick': helper,
        'vif_plug_linux_bridge_privileged': helper,
        'vif_plug_ovs_privileged': helper,
        'upgrade_levels': 'compute = auto'}, site.extra))


def ours(site: Site) -> str:
    """Section ``[scavenger]`` of ``nova.conf``: credentials for our API."""
    return credentials(site, 'scavenger').replace(
        f'www_authenticate_uri = {site.keystone}\n', '')


def _nova(site: Site, host: str, address: str = '127.0.0.1'
          ) -> dict[str, str]:
    return {
        'DEFAULT': f"""
transport_url = {site.broker}
host = {host}
my_ip = {address}
state_path = {site.top}/nova/{host}
instances_path = {INSTANCES}
compute_driver = libvirt.LibvirtDriver
update_resources_interval = 10
heal_instance_info_cache_interval = -1
periodic_fuzzy_delay = 0
reserved_host_memory_mb = 512
block_device_allocate_retries_interval = 1
force_config_drive = false
rpc_response_timeout = 60
""",
        'service_user': 'send_service_user_token = true\n'
            + credentials(site, 'nova'),
        'placement': credentials(site, 'placement'),
        'glance': credentials(site, 'glance'),
        'neutron': credentials(site, 'neutron'),
        'cinder': credentials(site, 'nova'),
        'api': '', 'scavenger': ours(site),
        'oslo_concurrency': f'lock_path = {site.top}/locks'}


def openrc(site: Site) -> str:
    """For a shell: the administrator's credentials."""
    return ''.join(f'export {name}={value}\n'
                   for name, value in variables(site).items())


def variables(site: Site) -> dict[str, str]:
    """The same, as an environment."""
    return {
        'OS_AUTH_URL': site.keystone, 'OS_USERNAME': 'admin',
        'OS_PASSWORD': PASSWORD, 'OS_PROJECT_NAME': 'admin',
        'OS_USER_DOMAIN_NAME': 'Default', 'OS_PROJECT_DOMAIN_NAME': 'Default',
        'OS_REGION_NAME': REGION, 'OS_IDENTITY_API_VERSION': '3',
        'OS_COMPUTE_API_VERSION': '2.latest', 'OS_PLACEMENT_API_VERSION':
            '1.39'}


def database(site: Site, name: str) -> str:
    """The options for one of :data:`DATABASES`."""
    return f'connection = {site.databases[name]}'


def _with(sections: dict[str, str], more: Mapping[str, str]
          ) -> dict[str, str]:
    return {name: sections.get(name, '').rstrip() + '\n' + more.get(name, '')
            for name in (*sections, *(set(more) - set(sections)))}

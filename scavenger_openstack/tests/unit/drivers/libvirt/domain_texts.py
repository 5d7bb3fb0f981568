# SPDX-License-Identifier: Apache-2.0

"""What libvirt 9.0 wrote for a running domain with the metadata of Nova 34.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax import saxutils

UUID = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
PROJECT = 'f241e906010e4917ae8153f4fb8aa021'
MIB = 1024 ** 2

TUNE = '''<cputune>
    <shares>1024</shares>
    <period>100000</period>
    <quota>50000</quota>
    <vcpupin vcpu='0' cpuset='0'/>
    <vcpupin vcpu='1' cpuset='1'/>
    <emulatorpin cpuset='0-1'/>
  </cputune>'''

DEVICES = '''<emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw' cache='none'/>
      <source file='/var/lib/nova/instances/disk' index='3'/>
      <backingStore/>
      <target dev='vda' bus='virtio'/>
      <iotune>
        <total_bytes_sec>10000000</total_bytes_sec>
        <read_iops_sec>100</read_iops_sec>
        <write_iops_sec>0</write_iops_sec>
        <group_name>drive-virtio-disk0</group_name>
      </iotune>
    </disk>
    <disk type='network' device='disk'>
      <source protocol='rbd' name='volumes/volume-1'/>
      <target dev='vdb' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'>
      <target dev='hda' bus='ide'/>
      <readonly/>
    </disk>
    <disk type='file' device='cdrom'>
      <source file='/var/lib/nova/instances/disk.config' index='1'/>
      <target dev='hdb' bus='ide'/>
    </disk>
    <interface type='bridge'>
      <source bridge='br-int'/>
      <target dev='tap5c8a3f00-12'/>
    </interface>
    <interface type='ethernet'>
      <target dev='tap0'/>
    </interface>
    <interface type='hostdev'>
      <mac address='52:54:00:15:8c:a3'/>
    </interface>
    <memballoon model='virtio'>
      <stats period='10'/>
    </memballoon>'''


def nova(specs: Mapping[str, str] | None = None,
         properties: Mapping[str, str] | None = None, name: str = 'web',
         version: str = '1.1', project: str | None = PROJECT,
         root: str = '') -> str:
    """Nova's element; without ``specs`` as before 2025.2."""
    def named(tag: str, values: Mapping[str, str]) -> str:
        return ''.join(
            f'<nova:{tag} name={saxutils.quoteattr(key)}>'
            f'{saxutils.escape(value)}</nova:{tag}>'
            for key, value in values.items())
    extra = image = owner = ''
    if specs is not None:
        extra = ('<nova:extraSpecs>' + named('extraSpec', specs)
                 + '</nova:extraSpecs>')
    if properties is not None:
        image = ('<nova:image uuid=""><nova:properties>'
                 + named('property', properties)
                 + '</nova:properties></nova:image>')
    if project is not None:
        owner = ('<nova:owner><nova:user uuid="34">buzz</nova:user>'
                 f'<nova:project uuid={saxutils.quoteattr(project)}>moon'
                 '</nova:project></nova:owner>')
    return f'''<nova:instance
        xmlns:nova="http://openstack.org/xmlns/libvirt/nova/{version}">
      <nova:package version="34.0.0"/>
      <nova:name>{saxutils.escape(name)}</nova:name>
      <nova:flavor name="m1.small" id="2"><nova:memory>128</nova:memory>
        {extra}</nova:flavor>{image}{owner}{root}<nova:ports/>
    </nova:instance>'''


def domain(metadata: str = '', *, name: str = 'instance-00000001',
           vcpu: str = '<vcpu placement="static">2</vcpu>',
           tune: str = '', devices: str = DEVICES, rest: str = '') -> str:
    return f'''<domain type='kvm' id='1'>
  <name>{saxutils.escape(name)}</name>
  <uuid>{UUID}</uuid>
  <metadata>{metadata}</metadata>
  <memory unit='KiB'>131072</memory>
  <currentMemory unit='KiB'>65536</currentMemory>
  {vcpu}{tune}
  <cpu mode='custom' match='exact' check='full'>
    <model fallback='forbid'>Skylake-Server</model>
  </cpu>
  <devices>{devices}</devices>{rest}
</domain>'''

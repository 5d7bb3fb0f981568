# SPDX-License-Identifier: Apache-2.0

"""What Nova writes into the XML of a domain: its flavor and its image.

Pure.  Names and image properties come from tenants.  Who may decide what:
priority, floors and protection come from the extra specs of the flavor, which
only operators write; an image property may put instances of one project into
one application, and without any name flavor and image do.

Nova writes extra specs and image properties into the XML since 2025.2
(``nova:extraSpecs``, ``nova:image``), and of the properties only those that
it knows itself, unless an operator taught it ``scavenger_application``.
Without them ``known`` is false and another service has to ask Nova.

Source: nova/virt/libvirt/config.py.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor as flavor_
from scavenger_openstack.drivers.libvirt.safe_xml import shown
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable

NOVA = ('http://openstack.org/xmlns/libvirt/nova/1.1',
        'http://openstack.org/xmlns/libvirt/nova/1.0')

MAX_SPECS = 512
"""So many extra specs and image properties are looked at."""

_OURS = flavor_.PREFIX
_IMAGE_APPLICATION = 'scavenger_application'
_NAME_CHARS = 128
_PROJECT = re.compile('[A-Za-z0-9_-]{1,64}')


class NovaMetadata:
    """What it says of an instance; all of it may be missing or wrong."""

    def __init__(self, metadata: ElementTree.Element | None) -> None:
        self.ignored: list[str] = []
        self.ignored_properties: list[str] = []
        self.floor: dict[Knob, float] = {}
        self.protect = True
        instance, nova = None, ''
        for uri in NOVA if metadata is not None else ():
            if instance is None and metadata is not None:
                nova = f'{{{uri}}}'
                instance = metadata.find(f'{nova}instance')
        if instance is None:
            instance = ElementTree.Element('none')
        self.display_name = _name(instance.findtext(f'{nova}name', ''))
        kind = instance.find(f'{nova}flavor')
        self.name = '' if kind is None else _name(kind.get('name', ''))
        owner = instance.find(f'{nova}owner/{nova}project')
        project = '' if owner is None else owner.get('uuid', '')
        self.project = project if _PROJECT.fullmatch(project) else None
        element = instance.find(f'{nova}flavor/{nova}extraSpecs')
        self.known = element is not None
        specs = _named(element, f'{nova}extraSpec')
        self.dedicated = (
            specs.get('hw:cpu_policy') in ('dedicated', 'mixed')
            or specs.get('resources:PCPU', '0') != '0')
        said = flavor_.read(specs)
        self._specs(said)
        properties = _named(instance.find(
            f'{nova}image/{nova}properties'), f'{nova}property')
        for key, value in properties.items():
            self._property(key, value, names=said.application is None)
        root = instance.find(f'{nova}root')
        name = flavor_.application(
            said.application, properties.get(_IMAGE_APPLICATION),
            image='' if root is None or root.get('type') != 'image'
            else root.get('uuid', ''),
            flavor='' if kind is None else kind.get('name', ''))
        # Never one of another project.
        self.application = (f'{self.project}/{name}'
                            if self.project and name else None)

    def _specs(self, said: flavor_.Flavor) -> None:
        for one in said.wrong:
            self._wrong(*one)
        self.priority, self.source, _ = classify.classify(
            flavor=said.priority)
        if said.application is not None and self.project is None:
            self._wrong(flavor_.APPLICATION, said.application,
                        'the project is not known')
        self.floor.update(said.floor)
        self.protect = said.protect

    def _property(self, key: str, value: str, *, names: bool) -> None:
        """Of an image, which tenants make: not for the log.

        :param names: whether it may name the application
        """
        why = ''
        if key == _IMAGE_APPLICATION:
            if names and not (self.project and flavor_.is_application(value)):
                why = ('the project is not known, or the name has not 1 to '
                       f'{flavor_.APPLICATION_CHARS} printable characters')
        elif _OURS + key[len(_OURS):] in (
                flavor_.PRIORITY, flavor_.PROTECT, *flavor_.FLOORS) and \
                key.startswith((_OURS, 'scavenger_')):
            why = 'only an extra spec of the flavor can say that'
        if why:
            self.ignored_properties.append(
                f'image property {shown(key)} = {shown(value)} is ignored: '
                + why)

    def _wrong(self, key: str, value: str, why: str) -> None:
        self.ignored.append(f'extra spec {shown(key)} = {shown(value)} is '
                            f'ignored: {why}')


def _name(text: str) -> str:
    """On one line, without what would move a terminal's cursor."""
    return printable(text.strip()[:_NAME_CHARS])[:_NAME_CHARS]


def _named(parent: ElementTree.Element | None, tag: str) -> dict[str, str]:
    """The texts of children by their names; the first of each counts."""
    found: dict[str, str] = {}
    for child in some(parent, MAX_SPECS):
        if child.tag == tag:
            found.setdefault(child.get('name', ''),
                             (child.text or '').strip())
    return found

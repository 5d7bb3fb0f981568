# SPDX-License-Identifier: Apache-2.0


"""One domain that runs, as libvirt lets it be asked and changed."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from typing import Any
from typing import NamedTuple

from scavenger_openstack import errors

OCCUPIED_MS = 500


class Busy(errors.DriverError):
    """The domain has a job (it migrates, is saved): nothing is written."""


class DomainReading(NamedTuple):
    """One look at a domain; ``held``: it was paused on purpose.

    One that was paused when it was saved comes back as if it migrated.
    """

    uuid: str
    xml: str
    held: bool


class Handle:
    """One domain that runs.

    Each method raises :class:`~scavenger_openstack.errors.DriverError`: it
    could not be done, and why.
    """

    def __init__(self, api: Any, converted: Callable[[str], Any], domain: Any,
                 uuid: str, no_quota_us: int = -1) -> None:
        self._no_quota_us = no_quota_us
        self._api = api
        self._converted = converted
        self._domain = domain
        self.uuid = uuid

    @contextlib.contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        """What libvirt raises, in our words.

        Of a domain that has ended it says no more than that this is not
        valid now, in the language of the host.
        """
        try:
            with self._converted(what):
                yield
        except errors.Denied as exc:
            with self._converted(what):
                runs = self._domain.isActive()
            if not runs:
                raise errors.WorkloadGone(str(exc)) from None
            raise

    def read(self) -> DomainReading | None:
        """Return what the domain is now; ``None`` when it does not run."""
        api = self._api
        with self._doing(f'domain {self.uuid}'):
            state, reason = self._domain.state()
            if state in (api.VIR_DOMAIN_SHUTOFF, api.VIR_DOMAIN_CRASHED):
                return None
            return DomainReading(self.uuid, self._domain.XMLDesc(),
                              state == api.VIR_DOMAIN_PAUSED
                              and reason in (api.VIR_DOMAIN_PAUSED_USER,
                                             api.VIR_DOMAIN_PAUSED_MIGRATION))

    def inactive(self) -> str:
        """Return the XML that the domain starts with next, '' for none."""
        with self._doing(f'definition of domain {self.uuid}'):
            if not self._domain.isPersistent():
                return ''
            return str(self._domain.XMLDesc(
                self._api.VIR_DOMAIN_XML_INACTIVE))

    def check_idle(self) -> None:
        """See that no job would keep a write waiting for 30 s.

        :raises Busy: there is one.
        """
        idle = self._api.VIR_DOMAIN_JOB_NONE
        try:
            with self._doing(f'job of domain {self.uuid}'):
                job = self._domain.jobStats().get('type', idle)
        except errors.Unsupported:
            job = None      # it comes in: libvirt tells only where it is from
        if job != idle:
            raise Busy(f'domain {self.uuid} migrates or is being saved: '
                       'nothing is written until that has ended')

    def occupied(self) -> bool:
        """Return whether a call waits for its QEMU, and has for some time."""
        with self._doing(f'control of domain {self.uuid}'):
            state, _, since_ms = self._domain.controlInfo()
        return bool(state == self._api.VIR_DOMAIN_CONTROL_ERROR or (
            state == self._api.VIR_DOMAIN_CONTROL_OCCUPIED
            and since_ms > OCCUPIED_MS))

    def _affect(self, inactive: bool) -> int:
        return int(self._api.VIR_DOMAIN_AFFECT_CONFIG if inactive
                   else self._api.VIR_DOMAIN_AFFECT_LIVE)

    def set_quota(self, quota_us: int, period_us: int, *,
                  inactive: bool = False) -> None:
        """Set the quota of each vCPU; -1 is none."""
        if quota_us < 0:
            quota_us = self._no_quota_us
        with self._doing(f'CPU quota of domain {self.uuid}'):
            self._domain.setSchedulerParametersFlags(
                {'vcpu_period': period_us, 'vcpu_quota': quota_us},
                self._affect(inactive))

    def set_iotune(self, disk: str, limits: Mapping[str, int | str], *,
                   inactive: bool = False) -> None:
        """Set limits of one disk, by the names that libvirt has for them."""
        with self._doing(f'disk {disk} of domain {self.uuid}'):
            self._domain.setBlockIoTune(disk, dict(limits),
                                        self._affect(inactive))

    def set_balloon(self, kib: int, *, inactive: bool = False) -> None:
        """Set the memory of the guest, which gets there in its own time."""
        with self._doing(f'balloon of domain {self.uuid}'):
            self._domain.setMemoryFlags(kib, self._affect(inactive))

    def pause(self, wanted: bool) -> None:
        """Stop all vCPUs, or let them go on."""
        with self._doing(f'domain {self.uuid}'):
            self._domain.suspend() if wanted else self._domain.resume()

    def set_record(self, uri: str, key: str, text: str | None, *,
                   inactive: bool = False) -> None:
        """Keep an element of ours in the domain's metadata, or drop it."""
        with self._doing(f'metadata of domain {self.uuid}'):
            self._domain.setMetadata(
                self._api.VIR_DOMAIN_METADATA_ELEMENT, text,
                key if text is not None else None, uri,
                self._affect(inactive))

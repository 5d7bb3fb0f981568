# SPDX-License-Identifier: Apache-2.0

"""Answers of the kernel about all devices, one of them odd."""

from __future__ import annotations

from collections.abc import Sequence
import struct

import testtools

from scavenger_openstack.drivers.kernel import ingress
from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel import rtnetlink

ODD = (b'', b'\0' * 3, b'\0' * 12, b'\0' * 16, b'\0' * 20, b'\xff' * 24)
NAME, MTU, STATS = 3, 4, 1


class Recorded(netlink.Netlink):
    """A conversation in which the kernel answers what was recorded."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        super().__init__()
        self.answers = list(answers)

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        return self.answers


class TestOddAnswers(testtools.TestCase):

    def recorded(self, *answers: bytes) -> Recorded:
        found = Recorded(answers)
        self.addCleanup(found.close)
        return found

    def devices(self, *answers: bytes) -> rtnetlink.Rtnetlink:
        found = rtnetlink.Rtnetlink()
        found.close()
        found.talk = self.recorded(*answers)
        return found

    def test_names(self) -> None:
        link = (struct.pack('=BxHiII', 0, 1, 7, 0, 0)
                + netlink.attribute(NAME, b'eth0\0')
                + netlink.attribute(MTU, struct.pack('=I', 1500)))
        nameless = struct.pack('=BxHiII', 0, 1, 8, 0, 0)
        for odd in (*ODD, nameless):
            for answers in ((odd, link), (link, odd)):
                self.assertEqual({'eth0': rtnetlink.Link(7, 1500)},
                                 self.devices(*answers).links(), repr(odd))

    def test_counters(self) -> None:
        row = struct.pack('=BxxxII', 0, 7, 1) + netlink.attribute(
            STATS, struct.pack('=QQQQ', 1, 2, 3000, 4000))
        padded = struct.pack('=BxxxII', 0, 9, 1) + netlink.attribute(
            99, b'') + netlink.attribute(
            STATS, struct.pack('=QQQQ', 1, 2, 5, 6))
        for odd in ODD:
            self.assertEqual({7: (3000, 4000), 9: (5, 6)},
                             self.devices(odd, row, odd, padded
                                          ).link_bytes(), repr(odd))

    def test_filters(self) -> None:
        other = struct.pack('=BxxxiIII', 0, 7, 0, 0, 5 << 16
                            ) + netlink.attribute(1, b'flower\0')
        for odd in ODD[:3]:
            self.assertEqual([ingress.Filter('flower', 5)], ingress.filters(
                self.recorded(odd, other), 7))

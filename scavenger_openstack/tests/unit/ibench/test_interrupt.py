# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import signal

import testtools

from scavenger_openstack.ibench import interrupt


class TestInterrupt(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        for number in interrupt.SIGNALS:
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def test_each_signal(self) -> None:
        for number in interrupt.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
            found = interrupt.Interrupt()
            found.check()
            os.kill(os.getpid(), number)
            self.assertRaises(interrupt.Interrupted, found.check)

    def test_below_nohup(self) -> None:
        """It goes on when its terminal is closed."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        found = interrupt.Interrupt()
        os.kill(os.getpid(), signal.SIGHUP)
        found.check()

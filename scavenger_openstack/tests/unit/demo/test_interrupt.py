# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

from __future__ import annotations

import os
import signal

import testtools

from scavenger_openstack.demo import interrupt


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

# SPDX-License-Identifier: Apache-2.0

"""The tests: ``unit`` needs nothing, ``functional`` root and a real kernel."""

import faulthandler
import logging
import os
import signal
import sys
import warnings

# Between the results there is nothing but what a test failed by: what is
# logged while none looks at it goes nowhere, and what libraries of others say
# of one another is not for here.  A program that a test starts does log.
if 'unittest' in sys.modules:
    logging.getLogger().addHandler(logging.NullHandler())
    # Tests that are ended clean up; hogs and guests would stay for ever.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Before tools/test.sh interrupts them, they say where they stand.
    if stuck := os.environ.get('SCAVENGER_STUCK'):
        file, _, after_s = stuck.rpartition(':')
        faulthandler.dump_traceback_later(float(after_s), file=open(file, 'a'))
warnings.filterwarnings('ignore', r'\s*Eventlet is deprecated')

# A shell gives what it runs in the background an ignored Ctrl-C, which every
# process that a test starts would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

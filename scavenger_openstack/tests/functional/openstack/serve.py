# SPDX-License-Identifier: Apache-2.0

"""Serve one WSGI application of OpenStack on a loopback port.

``serve.py MODULE PORT``, run by the interpreter of :mod:`.packages`, which
has OpenStack and not this project.
"""

import importlib
import sys

import waitress

if __name__ == '__main__':
    module, port = sys.argv[1:]
    del sys.argv[1:]        # some applications read their options there
    waitress.serve(importlib.import_module(module).application,
                   host='127.0.0.1', port=int(port), threads=8)

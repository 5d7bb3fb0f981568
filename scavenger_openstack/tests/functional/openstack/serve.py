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

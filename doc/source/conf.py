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

"""How the documentation is built."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / '_ext'))

project = 'scavenger_openstack'
author = 'scavenger_openstack contributors'
copyright = author

extensions = ['oslo_config.sphinxext', 'api_reference', 'data_path',
              'incident_states', 'program_help', 'rooms']
root_doc = 'index'
exclude_patterns: list[str] = []

html_theme = 'alabaster'
html_static_path = ['_static']
html_copy_source = False
html_theme_options = {
    'description': 'Background work in the idle part of a cloud',
    'page_width': '70rem',
    'fixed_sidebar': True,
}

man_pages = [
    (f'cli/{name}', name, what, [author], section)
    for name, section, what in (
        ('scavenger-agent', 8,
         'set limits on background work of this host'),
        ('scavenger-restore', 8,
         'restore what an agent has limited'),
        ('scavenger-standalone', 8,
         'agent, watcher and control plane of one host'),
        ('scavenger-manage', 8,
         'manage the database of the control plane'),
        ('scavenger-status', 8,
         'check before an upgrade'),
        ('scavenger-conductor', 8,
         'store what agents report'),
        ('scavenger-api', 8,
         'serve the API on loopback'),
        ('scavenger-demo', 8,
         'show on this machine what the agent does'),
        ('scavenger-replay', 1,
         'decide again on what was recorded'),
        ('scavenger-simulate', 1,
         'compare policies on simulated hosts'),
    )]

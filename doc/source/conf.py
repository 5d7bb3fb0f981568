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

extensions = ['oslo_config.sphinxext', 'api_reference']
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

# SPDX-License-Identifier: Apache-2.0

"""How the documentation is built."""

from __future__ import annotations

import logging
import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent / '_ext'))

project = 'scavenger_openstack'
author = 'scavenger_openstack contributors'
copyright = author

extensions = ['openstackdocstheme', 'oslo_config.sphinxext', 'api_reference',
              'data_path', 'incident_states', 'metrics_table', 'program_help',
              'rooms']
root_doc = 'index'
exclude_patterns: list[str] = []

html_theme = 'openstackdocs'
html_static_path = ['_static']
templates_path = ['_templates']
html_css_files = ['theme.css']
html_copy_source = False
# The pages tell no tracker of their readers, see also _templates.
html_theme_options = {
    'analytics_tracking_code': '',
    'root_title': project,
    'sidebar_search': True,
}
openstackdocs_auto_name = False
openstackdocs_auto_version = False

man_pages = [
    (f'reference/cli/{name}', name, what, [author], section)
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
        ('scavenger-ibench', 8,
         'make load on one resource at a chosen intensity'),
        ('scavenger-replay', 1,
         'decide again on what was recorded'),
        ('scavenger-simulate', 1,
         'compare policies on simulated hosts'),
    )]


def setup(app: Any) -> None:
    """Without a git clone, or in one of another user, all is built, too."""
    logging.getLogger('sphinx.openstackdocstheme.ext').addFilter(
        lambda record: 'gitsha' not in str(record.msg))

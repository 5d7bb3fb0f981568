# SPDX-License-Identifier: Apache-2.0

"""Horizon's own settings of tests, with the plug-in."""

from openstack_dashboard import enabled as horizon_enabled

from scavenger_openstack.dashboard import enabled

# As if our files were copied to where Horizon reads them.
horizon_enabled.__path__.extend(enabled.__path__)

from openstack_dashboard.test.settings import *  # noqa: E402, F403
from openstack_dashboard.test.settings import TEMPLATES  # noqa: E402

# As Horizon outside of tests, a template is parsed once; and its scripts are
# put together only where a test sets this.
COMPRESS_ENABLED = False
_options = TEMPLATES[0]['OPTIONS']
_options['loaders'] = [
    ('django.template.loaders.cached.Loader', _options['loaders'])]

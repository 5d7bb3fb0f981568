# SPDX-License-Identifier: Apache-2.0

"""How many examples a property is tried on, and which.

A property is tried on the same examples in every run of a tier.  With the
number of examples in the environment variable ``SCAVENGER_EXAMPLES`` each
property is tried on that many, other ones each time.  Nothing is kept on
disk.

Whatever else rolls dice begins with :data:`SEED`; another one is taken from
the environment variable of that name.
"""

from __future__ import annotations

import os
import pathlib

import hypothesis
from hypothesis import configuration
from hypothesis import strategies as st

from scavenger_openstack.tests import tiers

EXAMPLES = int(os.environ.get('SCAVENGER_EXAMPLES') or 0)
SEED = int(os.environ.get('SEED') or 1)

hypothesis.settings.register_profile(
    'scavenger', max_examples=EXAMPLES or tiers.times(60, 30),
    derandomize=not EXAMPLES,
    database=None, deadline=None, print_blob=False,
    # A busy machine is no fault of a property.
    suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile('scavenger')
# Else its caches would go to the current directory.  It can do without.
configuration.set_hypothesis_home_dir(pathlib.Path(os.devnull, 'nowhere'))

ENCODABLE = st.characters(exclude_categories=['Cs'])
"""All that ``st.text`` takes by itself, which encodes each character there
is to find out."""

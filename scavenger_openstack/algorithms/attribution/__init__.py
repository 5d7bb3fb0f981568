# SPDX-License-Identifier: Apache-2.0

"""The detector of our own: what the entry point ``attribution`` means."""

from scavenger_openstack.algorithms.attribution.controller import Controller
from scavenger_openstack.algorithms.attribution.params import Params

__all__ = ['Controller', 'Params']

# SPDX-License-Identifier: Apache-2.0


"""What runs on a simulated host, from the configuration of an agent.

The same files that an operator can use, and the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
from typing import Any
from typing import NamedTuple

from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack.types import Mode

DEFAULTS = ''
"""Names the configuration of a fresh install, without any file."""


class Preset(NamedTuple):
    """The parameters of the controllers of the slow loop, by name and in
    their order, and those of the fast loop, ``None`` without it."""

    controllers: Mapping[str, Any]
    fast_loop: perfiso.Params | None


@functools.cache
def controller_type(name: str) -> Any:
    """Return the class of a controller; searched for once."""
    return parts.controller_type(name, '[agent] controllers')


@functools.cache
def read(name: str = DEFAULTS) -> Preset:
    """Return what a preset, or a fresh install, lets run.

    Modes count as far as they are off: all else enforces in the laboratory.
    """
    conf = conf_package.of_preset(name)
    controllers = {
        controller: conf_params.params_of(
            conf, controller, controller_type(controller).params_type)
        for controller in conf.agent.controllers
        if conf_package.mode(conf, controller) is not Mode.OFF}
    fast = perfiso.Controller.name
    return Preset(controllers, None if conf_package.mode(
        conf, fast) is Mode.OFF else conf_params.params_of(
            conf, fast, perfiso.Params))

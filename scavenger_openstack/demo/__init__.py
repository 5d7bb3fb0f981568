# SPDX-License-Identifier: Apache-2.0

"""The demo: what the product does for a service beside batch work.

``stage`` is where it plays (cgroups, disk and uplink of its own), ``load``
what plays there (C programs).  ``filling`` is the first act: the service and
batch work in six ways, run round by round; ``who`` is the second: which job
disturbs which service.  The product takes part as an operator would use it:
as a process with a configuration file (``product``).
"""

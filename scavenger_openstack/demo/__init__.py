# SPDX-License-Identifier: Apache-2.0

"""The demo: what the agent does for a service beside a hog.

``stage`` is where it runs (cgroups of its own), ``service`` and ``load`` are
the service, the hog is a source of interference of ``ibench``.  ``play`` is
the act, ``result`` and ``report`` what it showed.  The product takes part as
an operator would use it: as a process with a configuration file
(``product``).
"""

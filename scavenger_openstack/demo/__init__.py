# SPDX-License-Identifier: Apache-2.0

"""The demo: a service alone, beside a hog, and protected by the agent.

``stage`` has the cgroups where it runs, ``service`` and ``load`` are
the service, the hog is a source of interference of ``ibench``.  ``play`` is
the act, ``result`` and ``report`` are its result.  The product takes part as
an operator uses it: as a process with a configuration file (``product``).
"""

# SPDX-License-Identifier: Apache-2.0

"""What runs inside Nova's processes, by the extension points that it has.

Each part is turned on by itself in ``nova.conf``: the validator of extra
specs in nova-api by being installed, filter and weigher in nova-scheduler,
the notification driver in nova-compute.  None of them raises into Nova, and
without our control plane Nova goes on as if they were not there.
"""

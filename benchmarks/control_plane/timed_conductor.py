# SPDX-License-Identifier: Apache-2.0

"""The conductor as a WSGI application, with the times of its transactions."""

from __future__ import annotations

import transactions

transactions.in_environment()

from scavenger_openstack.wsgi import conductor  # noqa: E402

application = conductor.application

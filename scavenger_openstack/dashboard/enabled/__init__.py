# SPDX-License-Identifier: Apache-2.0

"""What Horizon reads from ``openstack_dashboard/local/enabled``."""

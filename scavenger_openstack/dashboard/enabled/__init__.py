# SPDX-License-Identifier: Apache-2.0

"""The files for Horizon's ``openstack_dashboard/local/enabled``."""

# SPDX-License-Identifier: Apache-2.0

"""The commands: a noun of ``openstack interference`` each."""

# SPDX-License-Identifier: Apache-2.0

"""A VM on its host, without libvirt: its process, cgroups and taps."""

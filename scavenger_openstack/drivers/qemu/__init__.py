# SPDX-License-Identifier: Apache-2.0

"""What a VM is on its host, without libvirt: process, cgroups, taps."""

# SPDX-License-Identifier: Apache-2.0

"""Tests on VMs of a libvirt in a guest; see ``test_guest_vms``."""

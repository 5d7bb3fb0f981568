# SPDX-License-Identifier: Apache-2.0

"""VMs below libvirt, as workloads with counters and limits."""

# SPDX-License-Identifier: Apache-2.0

"""How long workloads wait for disks and CPUs, by delay accounting."""

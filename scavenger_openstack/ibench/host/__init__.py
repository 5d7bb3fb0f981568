# SPDX-License-Identifier: Apache-2.0

"""What a run makes on the host, and removes: cgroup, link, scratch, lock."""

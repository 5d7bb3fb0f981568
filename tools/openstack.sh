#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# A real OpenStack on this machine, to try the project on.
#
#     tools/openstack.sh up        start it, with a small cloud in it
#     eval "$(tools/openstack.sh env)"
#     openstack antagonist list    and so on, from any directory
#     tools/openstack.sh status    its programs
#     tools/openstack.sh pictures  of the panel, for the documentation; after
#                                  some minutes, when there is an incident;
#                                  --help has directory, size and theme
#     tools/openstack.sh down      end it; nothing is left
#
# Keystone, Placement, Glance, Nova and Horizon with two hypervisors whose
# guests are emulated, on loopback.  Needs root.  The first start installs
# OpenStack below ~/.cache/scavenger-openstack, which takes a minute or more.

set -euo pipefail

cd "$(dirname "$0")/.."
case ${1:-} in
    up) tools/setup.sh test ;;
    down | status | env | pictures) ;;
    *) echo "usage: tools/openstack.sh up|down|status|env|pictures" >&2
        exit 2 ;;
esac
exec .venv/bin/python -m \
    scavenger_openstack.tests.functional.openstack.command "$@"

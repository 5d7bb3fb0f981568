#!/bin/bash
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

# A real OpenStack on this machine, to try the project on.
#
#     tools/openstack.sh up        start it, with a small cloud in it
#     eval "$(tools/openstack.sh env)"
#     openstack antagonist list    and so on, from any directory
#     tools/openstack.sh status    its programs
#     tools/openstack.sh down      end it; nothing is left
#
# Keystone, Placement, Glance and Nova with two hypervisors whose guests are
# emulated, on loopback.  Needs root.  The first start installs OpenStack
# below ~/.cache/scavenger-openstack, which takes a minute or more.

set -euo pipefail

cd "$(dirname "$0")/.."
case ${1:-} in
    up) tools/setup.sh test ;;
    down | status | env) ;;
    *) echo "usage: tools/openstack.sh up|down|status|env" >&2; exit 2 ;;
esac
exec .venv/bin/python -m \
    scavenger_openstack.tests.functional.openstack.command "$1"

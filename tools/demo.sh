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

# Set up this checkout, then run the demo in its quick form.
#
#     sudo tools/demo.sh [arguments of scavenger-demo]

set -euo pipefail

cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    cat >&2 <<'EOF'
The demo needs root: it makes cgroups and network namespaces of its own,
puts its load generators in them, and removes them when it is done.

    sudo tools/demo.sh
EOF
    exit 1
fi
tools/setup.sh demo
quick=--quick
for word in "$@"; do
    if [ "$word" = --who ]; then quick=; fi     # the second act has one length
done
exec .venv/bin/scavenger-demo ${quick:+"$quick"} "$@"

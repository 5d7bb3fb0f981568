#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

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

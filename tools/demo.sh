#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Set up this checkout, then run the demo.
#
#     sudo tools/demo.sh [arguments of scavenger-demo]

set -euo pipefail

cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    cat >&2 <<'EOF'
The demo needs root: it makes cgroups of its own, puts its load generators in
them, and removes them when it is done.

    sudo tools/demo.sh
EOF
    exit 1
fi
tools/setup.sh demo
exec .venv/bin/scavenger-demo "$@"

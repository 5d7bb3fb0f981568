#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Make a bare checkout ready: system packages (when root) and .venv.
#
#     tools/setup.sh [demo|test]
#
# Debian and Ubuntu.  Does only what is missing; the second run is quick.

set -euo pipefail

profile=${1:-test}
case $profile in
    demo) requirements=(-r requirements.txt) ;;
    test) requirements=(-r requirements.txt -r test-requirements.txt
                        -c tools/test-constraints.txt) ;;
    *) echo "usage: tools/setup.sh [demo|test]" >&2; exit 2 ;;
esac

cd "$(dirname "$0")/.."
top=$PWD
exec </dev/null
new_services=()
log=$(mktemp)
trap 'rm -f "$log"; services_as_before' EXIT

say() { echo "setup: $*"; }

die() {
    echo "setup: $*" >&2
    exit 1
}

# Run a command; show what it said only when it failed.
quietly() {
    if ! "$@" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        die "failed: $*"
    fi
}

# Some packages of the tests bring services, which the tests do not use: they
# are not started, get no database, and stay off after a reboot.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/scavenger-setup.conf
services_off() {
    local package
    for package in "$@"; do
        case $package in
            postgresql) new_services+=(postgresql) ;;
            prometheus) new_services+=(prometheus
                                       prometheus-node-exporter) ;;
            rabbitmq-server) new_services+=(rabbitmq-server epmd) ;;
        esac
    done
    [ "${#new_services[@]}" -gt 0 ] || return 0
    if grep -qs 'Made by tools/setup.sh' "$policy"; then
        rm -f "$policy"       # of a run that was killed
    elif [ -e "$policy" ]; then
        mv "$policy" "$policy.before-setup"
    fi
    cat >"$policy" <<END
#!/bin/sh
# Made by tools/setup.sh while it installs packages.
for word; do
    for service in ${new_services[*]}; do
        case \$word in
            \$service | \$service.* | \$service@*) exit 101 ;;
        esac
    done
done
[ ! -x "$policy.before-setup" ] || exec "$policy.before-setup" "\$@"
END
    chmod 755 "$policy"
    mkdir -p "${no_cluster%/*}"
    echo 'create_main_cluster = false' >"$no_cluster"
}

services_as_before() {
    [ "${#new_services[@]}" -gt 0 ] || return 0
    rm -f "$policy" "$no_cluster"
    [ ! -e "$policy.before-setup" ] || mv "$policy.before-setup" "$policy"
    rmdir "${no_cluster%/*}" 2>/dev/null || true
    if command -v systemctl >/dev/null; then
        local service
        for service in "${new_services[@]}" epmd.socket; do
            systemctl --quiet disable "$service" >/dev/null 2>&1 || true
        done
    fi
    new_services=()
}

# Install system packages when we may; else say which ones are missing.
apt_updated=
install() {
    if [ "$(id -u)" != 0 ]; then
        say "MISSING system packages: $*"
        say "  not root, so going on without; as root: apt-get install $*"
        return 1
    fi
    if ! command -v apt-get >/dev/null; then
        say "MISSING: $*; this is not Debian or Ubuntu, install them by hand"
        return 1
    fi
    local options=(-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
    export DEBIAN_FRONTEND=noninteractive
    if [ -z "$apt_updated" ]; then
        say "apt-get update"
        quietly apt-get -q "${options[@]}" update
        apt_updated=yes
    fi
    say "apt-get install $*"
    services_off "$@"
    quietly apt-get -q -y "${options[@]}" install \
        --no-install-recommends "$@"
    services_as_before
}

# The interpreter that a virtual environment can be made from, or nothing.  That
# of the distribution first: the Debian packages run on it, and it is compiled
# with profiles, so that the tests take a fifth less CPU time than with what
# pyenv compiles.
find_python() {
    local name path
    for name in /usr/bin/python3 python3 python3.14 python3.13 python3.12 \
            python3.11; do
        path=$(command -v "$name") || continue
        "$path" - 2>/dev/null <<'PY' && return
import ensurepip, sys, venv
if sys.version_info < (3, 11):
    sys.exit(1)
print(sys._base_executable)
PY
    done
    return 1
}

# What must stay the same for the installed packages to be right.
fingerprint() {
    echo "$top"
    .venv/bin/python --version
    cat setup.cfg setup.py pyproject.toml requirements.txt \
        test-requirements.txt tools/test-constraints.txt
}

# A copy of another place, or one whose interpreter was replaced, does not.
venv_works() {
    [ -x .venv/bin/python ] && .venv/bin/python - "$top/.venv" <<'PY'
import sys
try:
    import pip
except ImportError:
    sys.exit(1)
sys.exit(sys.version_info < (3, 11) or sys.prefix != sys.argv[1])
PY
}

# Two set-ups of one checkout wait for each other.
exec 9<"tools/setup.sh"
flock 9

if ! venv_works; then
    if ! python=$(find_python); then
        install ca-certificates python3 python3-venv || true
        python=$(find_python) || die \
            "needs Python >= 3.11 with venv: Debian 12, Ubuntu 24.04 or newer"
    elif [ ! -e /etc/ssl/certs/ca-certificates.crt ] \
            && command -v apt-get >/dev/null; then
        install ca-certificates || true
    fi
    say "virtual environment .venv, $("$python" --version)"
    rm -rf .venv 2>"$log" || die \
        "cannot replace .venv: $(tail -n 1 "$log"); remove it as its owner"
    quietly "$python" -m venv .venv
fi

ready=$(fingerprint | sha256sum | cut -d ' ' -f 1)
if [ "$(cat ".venv/ready-$profile" 2>/dev/null)" = "$ready" ]; then
    say "Python packages are up to date"
else
    [ -w .venv ] || die \
        "may not write to .venv: run as its owner ($(stat -c %U .venv))," \
        "or remove it"
    say "pip install ${requirements[*]} -e ."
    # pbr takes the version from git.  Without git, without history, or
    # where git refuses a checkout of another user, it has to be told.
    if [ ! -e .git ] \
            || ! git rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
        export PBR_VERSION=${PBR_VERSION:-0.0.1.dev0}
    fi
    export SKIP_GENERATE_AUTHORS=1 SKIP_WRITE_GIT_CHANGELOG=1
    export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
    export PIP_ROOT_USER_ACTION=ignore
    quietly .venv/bin/python -m pip install -q bindep \
        "${requirements[@]}" -e .
    echo "$ready" >".venv/ready-demo"
    [ "$profile" = demo ] || echo "$ready" >".venv/ready-$profile"
fi

if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: see bindep.txt for what else is needed"
else
    mapfile -t missing < <(.venv/bin/bindep --brief "$profile" || true)
    if [ "${#missing[@]}" -gt 0 ]; then
        install "${missing[@]}" || true
    else
        say "system packages are complete"
    fi
fi

# The binding is compiled against the installed libvirt and has its version;
# without it only the tests that need hypervisors are skipped.
if [ "$profile" = test ]; then
    if libvirt=$(pkg-config --modversion libvirt 2>/dev/null); then
        installed=$(.venv/bin/python - <<'PY'
from importlib import metadata
try:
    print(metadata.version('libvirt-python'))
except metadata.PackageNotFoundError:
    pass
PY
        )
        if [ "$installed" != "$libvirt" ]; then
            say "pip install libvirt-python==$libvirt"
            .venv/bin/python -m pip install -q --no-input \
                --disable-pip-version-check --root-user-action=ignore \
                "libvirt-python==$libvirt" >"$log" 2>&1 \
                || say "MISSING libvirt-python $libvirt: $(tail -n 1 "$log")"
        fi
    else
        say "MISSING libvirt-dev and pkg-config: no tests with hypervisors"
    fi
fi

# What root made in another user's checkout belongs to its owner.
if [ "$(id -u)" = 0 ] && [ "$(stat -c %u .)" != 0 ]; then
    chown -Rh --reference=. .venv
fi

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Set up this checkout, then run linters and tests.
#
#     tools/test.sh          what guards a change: some twenty minutes
#     tools/test.sh all      the rest, too: see doc/source/contributor/tests.rst
#     tools/test.sh unit     only the unit tests: no linters, no root
#     tools/test.sh REGEX    only the tests whose name matches, no linters
#     tools/test.sh --again [all | unit | REGEX]
#                            the same; up to eight tests that failed run once
#                            more, by themselves, and are listed
#
# As root also the functional tests, on real cgroups and devices; else they
# are skipped.  The last line is "N passed, N failed, N skipped".

set -euo pipefail

cd "$(dirname "$0")/.."
exec </dev/null
again=0
if [ "${1:-}" = --again ]; then
    again=8
    shift
fi
tools/setup.sh test

export PATH=$PWD/.venv/bin:$PATH
scratch=$(mktemp -d)
regex=
only=
case ${1:-} in
    '') ;;
    all) export SCAVENGER_TESTS=all ;;
    unit) only=unit ;;
    *) regex=$1
       export SCAVENGER_TESTS=all ;;
esac
export SCAVENGER_SEED=${SCAVENGER_SEED:-$(date +%s)}
echo "== SCAVENGER_SEED=$SCAVENGER_SEED chooses the instants of campaigns"
checks=$scratch/checks
: >"$checks"
trap finish EXIT
trap 'echo "interrupted: nothing is known about the rest"; exit 130' INT TERM

# What root made in another user's checkout belongs to its owner.
finish() {
    rm -rf "$scratch"
    if [ "$(id -u)" = 0 ] && [ "$(stat -c %u .)" != 0 ]; then
        find .stestr .mypy_cache .ruff_cache doc/build scavenger_openstack \
            -user root -exec chown -h --reference=. {} + 2>/dev/null || true
    fi
}

check() {
    local name=$1
    shift
    echo "== $name"
    if "$@"; then
        echo "success $name" >>"$checks"
    else
        echo "== FAILED: $name"
        echo "fail $name" >>"$checks"
    fi
}

shell_syntax() {
    local file status=0
    for file in .ci/run tools/*.sh devstack/plugin.sh devstack/settings; do
        bash -n "$file" || status=1
    done
    return $status
}

# As tox -e docs: the manual pages are made of what is read for the first.
docs() {
    sphinx-build -W --keep-going -q -b html doc/source doc/build/html &&
        sphinx-build -W --keep-going -q -b man -d doc/build/html/.doctrees \
            doc/source doc/build/man
}

static_checks() {
    check ruff ruff check --quiet
    check mypy mypy
    check 'shell syntax' shell_syntax
    check 'documentation' docs
    if [ -e .git ]; then
        check 'release notes' reno -q lint
    else
        printf 'skip release notes\tneeds a git clone\n' >>"$checks"
    fi
}

# Run some of the tests; print subunit.  stestr ends with 1 when nothing
# matches, which is no fault when only some tests are asked for.  A test that
# hangs must not keep the summary: what still runs after some four times what a
# stage takes here is interrupted.  In a process group of its own Ctrl-C would
# not reach it.
tests() {
    local which=$1 path=$2 code=0 group=${in_group:-} stuck=$scratch/stuck.$1
    local TIMEFORMAT="== $which tests: %0R s, CPU %0U + %0S s"
    shift 2
    [ ! -t 2 ] || group=--foreground
    echo "== $which tests" >&2
    time SCAVENGER_STUCK=$stuck:$((limit_s - 30)) \
        timeout $group --signal=INT --kill-after=60 "$limit_s" stestr \
        --test-path "scavenger_openstack/tests$path" \
        ${repository:+--repo-url "$repository"} run --subunit \
        "$@" ${regex:+"$regex"} || code=$?
    if [ $code -gt 1 ] || { [ $code = 1 ] && [ -z "$regex" ]; }; then
        # The innermost place of each thread.
        echo "fail $which tests: could not be run to the end" "$(
            awk -F '["/,]' '/hread 0x/ && getline && NF > 2 {
                print $(NF-2) $NF }' "$stuck" 2>/dev/null |
                sort -u | tr '\n' ';')" >>"$checks"
    fi
}

if [ "$(id -u)" != 0 ] && [ -z "$only" ]; then
    echo "== not root: functional tests will be skipped"
fi

# Stages.  Loads that come before all else on a CPU are in one worker: two of
# them on two CPUs leave nothing to the others, and tests of minutes fail.
# Agents and VMs wait more than they work: each kind in turn, beside
# the other kinds, each worker with about the same time (tools/results.py prints
# that of each test).  What is of no kind runs in the last one.  Then what others
# would notice: an OpenStack of many processes, and by itself at the end the
# demo, whose hog has the highest CPU weight.
load='test_(attribution|attribution_odd|delay_.*|ibench|libvirt_(evidence|named)'
load+='|profil(e_commands|ing)|cpu_waits|d(irect|isk)_evidence|disk_waits)\.'
vms='test_(libvirt_(limits|lines|host|counters|odd|xml)|hypervisor'
vms+='|claims|leases|observe|privileges|tap.*)\.'
libvirtd='test_(conductor_faults|database|simulate'
libvirtd+='|libvirt(_(changes|faults|kills|life|restore|versions|words))?)\.'
agents='test_(agent|fresh_install|kills|priority|recording|running|signals'
agents+='|stop.*|sync|threads)\.'
control='test_(aggregates|api|broker_rights|commands|commands_refused|conductor'
control+='|manage|nova|placement|servers)\.'
panel='test_(conductor_http|devstack|embedded|end_to_end|horizon|metrics'
panel+='|typed_pages|wsgi_servers)\.'
guests='test_guest_.*\.'
openstack='test_openstack(_[a-z]+)?\.'
demo='test_demo\.'
cat >"$scratch/workers" <<END
- worker: ['functional\.test_guest_(cpus|demo|image)\.']
- worker: ['functional\.test_guest_(?!cpus|demo|image)']
- worker: ['functional\.$load']
- worker: ['functional\.$vms']
- worker: ['functional\.$libvirtd']
- worker: ['functional\.$agents']
- worker: ['functional\.$control']
- worker: ['functional\.$panel']
- worker: ['functional\.(?!$load|$vms|$libvirtd|$agents|$control|$panel|$guests)']
END
cat >"$scratch/units" <<END
- worker: ['tests\.unit\.[a-c]']
- worker: ['tests\.unit\.[^a-c]']
END
# Some unit tests wait: one worker more than there are CPUs.
unit() {
    tests unit /unit --concurrency "$(($(nproc) + 1))"
}

# What measures nothing here takes the CPUs that the others leave: linters, then
# the unit tests.  What came of them is printed before the demo.
# The second stestr has a directory of its own: two do not share one.
beside() {
    local in_group=--foreground repository=$scratch
    [ -n "$regex" ] || static_checks >"$scratch/said" 2>&1
    tests unit /unit --worker-file "$scratch/units" >"$scratch/subunit"
}

# In a process group that ends with this one, and in which SIGINT is not
# ignored, as bash has it in what runs in the background.
everything() {
    local other
    trap 'exit 130' INT TERM
    : >"$scratch/said"
    : >"$scratch/subunit"
    timeout "$((limit_s + 900))" env --default-signal=INT nice -n 5 \
        bash -c beside &
    other=$!
    trap 'kill "$other" 2>/dev/null || true' EXIT
    tests functional /functional --worker-file "$scratch/workers" \
        --exclude-regex "tests\.functional\.($openstack|$demo)"
    tests OpenStack /functional --serial \
        --exclude-regex "tests\.functional\.(?!$openstack)"
    wait "$other" || echo 'fail unit tests and checks: not run to the end' \
        >>"$checks"
    cat "$scratch/said" >&2
    cat "$scratch/subunit"
    tests demo /functional --serial \
        --exclude-regex "tests\.functional\.(?!$demo)"
    # The oldest Nova that is supported, too.
    if [ "${SCAVENGER_TESTS:-}" = all ] && [ -z "$regex" ]; then
        SCAVENGER_NOVA=32.0.0 tests 'Nova 32' /functional --serial \
            --exclude-regex 'tests\.functional\.(?!test_(nova|openstack)\.)'
    fi
}
limit_s=2700
[ "${SCAVENGER_TESTS:-}" != all ] || limit_s=5400
export checks limit_s regex scratch
export -f beside check static_checks docs shell_syntax tests

# Hundreds of tests start a process of the product: none of them imports what
# eventlet, which comes with oslo.messaging, resolves names with; none compiles
# the product, also where PYTHONDONTWRITEBYTECODE is set.
export EVENTLET_NO_GREENDNS=yes
python -m compileall -qq -j 0 scavenger_openstack || true

status=0
"${only:-everything}" | python tools/results.py --checks "$checks" \
    --again "$again" || status=$?
exit "$status"

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The Debian packages on a stock host, from apt install to purge.  Run as root
# in a throw-away guest with cgroup v2 and systemd, with two builds:
#
#     guest_packages.sh FIRST SECOND
#
# Each is a directory of .deb files.  Prints the seconds of each step; ends at
# the first that fails.

set -euo pipefail

first=$1 second=$2
export DEBIAN_FRONTEND=noninteractive
batch=/sys/fs/cgroup/batch.slice
leases=/run/scavenger/leases
loaded=/sys/kernel/security/apparmor/profiles
python=/usr/lib/scavenger/bin/python3
since=@0

fail() {
    echo "FAILED $*"
    systemctl status --no-pager 'scavenger-*' || true
    journalctl --no-pager -n 40 -u 'scavenger-*' || true
    exit 1
}

# "check COMMAND..." fails with the command when it does.
check() {
    "$@" >/tmp/output 2>&1 || fail "$*: $(tail -n 5 /tmp/output)"
}

not() {
    ! "$@"
}

# Wait up to $1 s until the command succeeds.
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || fail "not within time: $*"
        sleep 0.2
    done
}

step() {
    local began=$EPOCHREALTIME
    "step_$1"
    echo "STEP $1: $(elapsed "$began") s"
}

elapsed() {
    awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}'
}

apt() {
    apt-get -q -y -o DPkg::Lock::Timeout=60 "$@" </dev/null 2>&1 | tee /tmp/apt
}

# Without any network, as behind a proxy that only apt knows.
offline() {
    unshare --net apt-get -q -y -o DPkg::Lock::Timeout=60 "$@" </dev/null 2>&1 \
        | tee /tmp/apt
}

debs() {
    find "$1" -name '*.deb' ! -name '*client*' ! -name '*dashboard*' \
        -printf '%p\n'
}

# The limits of the background, as the kernel has them.
knobs() {
    (cd "$batch" && grep -H . {.,job.service}/cpu.{max,idle,weight} \
        {.,job.service}/cpuset.cpus)
}

limited() {
    compgen -G "$leases/*.json" >/dev/null && [ "$(knobs)" != "$original" ]
}

silent() {
    scavenger-agent status | grep -q '^conductor *has not answered yet'
}

running() {
    systemctl --quiet is-active scavenger-agent scavenger-restore
}

watched() {
    scavenger-agent status | grep -q '^watcher *running'
}

# What AppArmor refused to a unit, from the kernel's log.
denials() {
    journalctl --no-pager -q -o cat --since "$since" _TRANSPORT=kernel + _TRANSPORT=audit \
        | sed -n '/apparmor="DENIED".* profile="scavenger-/p' | sort -u
}

denied() {
    [ -n "$(denials)" ]
}

# "enforced UNIT PROFILE": all processes of the unit are confined.
enforced() {
    local cgroup pid
    cgroup=$(systemctl show -P ControlGroup "$1")
    [ -n "$cgroup" ] || return 1
    while read -r pid; do
        [ "$(cat "/proc/$pid/attr/current")" = "$2 (enforce)" ] || return 1
    done <"/sys/fs/cgroup$cgroup/cgroup.procs"
}

version() {
    dpkg-query -W -f '${Version}' scavenger-agent
}

step_install() {
    # An emulated CPU is 20 times slower than one of a host.
    for unit in agent restore; do
        mkdir -p "/etc/systemd/system/scavenger-$unit.service.d"
        printf '[Service]\nTimeoutStartSec=600\nTimeoutStopSec=600\n' \
            >"/etc/systemd/system/scavenger-$unit.service.d/slow.conf"
    done
    # No AppArmor is installed, and no package fetches anything by itself.
    check not command -v aa-enabled
    check apt update
    # shellcheck disable=SC2046
    check apt install --download-only $(debs "$first")
    # shellcheck disable=SC2046
    check offline install $(debs "$first")
    check not command -v cc
    check not command -v qemu-system-x86_64
}

step_observe() {
    wait_for 600 running
    wait_for 600 scavenger-agent status
    scavenger-agent status | sed 's/^/    /'
    wait_for 600 watched
    check not compgen -G "$leases/*.json"
    for unit in scavenger-conductor scavenger-conductor-http scavenger-api; do
        check not systemctl --quiet is-active "$unit"
        check not systemctl --quiet is-enabled "$unit"
    done
    check test "$(stat -c '%a %U %G' /etc/scavenger/scavenger.conf)" \
        = '640 root scavenger-control'
    check "$python" -I -c 'import oslo_messaging, flask, gunicorn'
    check apt install --no-install-recommends python3-libvirt
    check "$python" -I -c 'import libvirt'
    for program in scavenger-manage scavenger-status scavenger-conductor \
            scavenger-api scavenger-standalone scavenger-ibench \
            scavenger-demo scavenger-replay scavenger-simulate; do
        check "$program" --version
    done
    check test "$(scavenger-agent --version)" \
        = "scavenger-agent $(version)"
    # Without a compiler: the kernels are in the package.
    check scavenger-ibench build
    check python3 -c 'import scavenger_openstack.osc.plugin'
}

# AppArmor comes after the packages; from here on nothing may be denied.
step_confine() {
    check apt install --no-install-recommends apparmor
    check systemctl restart scavenger-restore scavenger-agent
    wait_for 600 running
    wait_for 600 watched
    check enforced scavenger-agent scavenger-agent
    check enforced scavenger-restore scavenger-restore
    # As the page says: log only, and back.
    local complain=/etc/apparmor.d/force-complain/scavenger-agent
    mkdir -p "${complain%/*}"
    ln -s ../scavenger-agent "$complain"
    check apparmor_parser --replace /etc/apparmor.d/scavenger-agent
    check grep -q '^scavenger-agent (complain)$' "$loaded"
    rm "$complain"
    check apparmor_parser --replace /etc/apparmor.d/scavenger-agent
    check enforced scavenger-agent scavenger-agent
    # What no rule allows is denied, whatever the capabilities say.
    check not aa-exec -p scavenger-restore -- \
        "$python" -c 'open("/etc/shadow")'
    wait_for 60 denied
    sleep 1
    since=$(date '+%F %T')
}

# Conductor and API with an SQLite database, and no broker.
step_control() {
    local conf=/etc/scavenger/control.conf unit
    printf '[DEFAULT]\ntransport_url = rabbit://a:b@127.0.0.1:5672/
[database]\nconnection = sqlite:////var/lib/scavenger-control/sqlite
[api]\nauth_strategy = noauth\n' >"$conf"
    install -d -o scavenger-control /var/lib/scavenger-control
    check setpriv --reuid=scavenger-control --regid=scavenger-control \
        --init-groups scavenger-manage --config-file "$conf" db upgrade
    for unit in conductor conductor-http api; do
        mkdir -p "/etc/systemd/system/scavenger-$unit.service.d"
        printf '[Service]\nTimeoutStartSec=600\nWatchdogSec=600
StateDirectory=scavenger-control
Environment=SCAVENGER_CONFIG_FILE=%s\n' "$conf" \
            >"/etc/systemd/system/scavenger-$unit.service.d/test.conf"
    done
    printf 'ExecStart=\nExecStart=scavenger-conductor --config-file %s\n' \
        "$conf" >>/etc/systemd/system/scavenger-conductor.service.d/test.conf
    systemctl daemon-reload
    for unit in conductor conductor-http api; do
        check systemctl start "scavenger-$unit"
        check enforced "scavenger-$unit" scavenger-control
    done
    wait_for 600 "$python" -c 'import urllib.request as r
r.urlopen("http://127.0.0.1:8799/healthcheck", timeout=60)'
    check systemctl stop scavenger-conductor scavenger-conductor-http \
        scavenger-api
    rm -r "$conf" /var/lib/scavenger-control
}

step_enforce() {
    systemd-run --quiet --slice=batch.slice --unit=job \
        -p 'Delegate=cpu cpuset io memory' \
        sh -c 'while :; do :; done'
    systemd-run --quiet --unit=web sh -c 'while :; do sleep 0.01; done'
    wait_for 60 test -e "$batch/job.service/cpuset.cpus"
    original=$(knobs)
    sed -i -e 's/^protect =.*/protect = cpu/' \
        -e 's|^background_parents =.*|background_parents = /batch.slice|' \
        -e 's|^foreground_parents =.*|foreground_parents = /system.slice|' \
        /etc/scavenger/scavenger.conf
    # A control plane that does not answer, and a token as editors write it.
    printf 'c2NhdmVuZ2Vy\n' >/tmp/token
    install -m 600 -o scavenger /tmp/token /etc/scavenger/token
    printf '[DEFAULT]\ntransport_url = rabbit://a:b@127.0.0.1:5672/
[conductor]\nenabled = true\n' >/etc/scavenger/scavenger.conf.d/test.conf
    sed 's/192.0.2.1/localhost/' \
        /usr/share/doc/scavenger-agent/examples/control-plane.conf.example \
        >/etc/systemd/system/scavenger-agent.service.d/control-plane.conf
    systemctl daemon-reload
    check systemctl restart scavenger-agent
    wait_for 600 limited
    check silent
    echo "    without a limit: $(paste -sd ' ' <<<"$original")"
    echo "    with one:        $(knobs | paste -sd ' ')"
}

# Unpacked and not configured, as after a power failure, and the agent dies.
step_half_an_upgrade() {
    # shellcheck disable=SC2046
    check dpkg --unpack $(debs "$second")
    check limited
    check systemctl kill --signal KILL scavenger-agent
    sleep 1
    wait_for 600 running
    wait_for 600 limited
}

# How long the job has no limit, from samples 20 times a second.
watch_gap() {
    local until=$1 gone=0
    while [ ! -e "$until" ]; do
        limited || gone=$((gone + 1))
        sleep 0.05
    done
    echo "    samples without a limit: $gone of 0.05 s and the time to sample"
}

step_upgrade() {
    local before
    before=$(systemctl show -P MainPID scavenger-agent)
    rm -f /tmp/upgraded
    watch_gap /tmp/upgraded &
    # shellcheck disable=SC2046
    check apt install $(debs "$second")
    local began=$EPOCHREALTIME
    wait_for 600 running
    wait_for 600 limited
    echo "    limited again $(elapsed "$began") s after apt's end"
    touch /tmp/upgraded
    wait $!
    check test "$before" != "$(systemctl show -P MainPID scavenger-agent)"
    check test "$(version)" = \
        "$(dpkg-deb -f "$second"/scavenger-agent_*.deb Version)"
    check test "$(scavenger-agent --version)" \
        = "scavenger-agent $(version)"
    check grep -q '^protect = cpu$' /etc/scavenger/scavenger.conf
}

# A limit that cannot be restored: the package stays, and so do the records.
step_refuse_removal() {
    echo '{}' >"$leases/damaged.json"
    chown scavenger:scavenger "$leases/damaged.json"
    check not apt remove scavenger-agent
    sed -n '/not removed: limits/,/delete that/s/^/    /p' /tmp/apt
    check grep -q 'not removed: limits are in force' /tmp/apt
    check compgen -G "$leases/damaged*"
    check command -v scavenger-restore
    wait_for 600 running
    rm "$leases"/damaged*
    wait_for 600 limited
}

step_remove() {
    check limited
    check apt remove 'scavenger-*' python3-scavenger-openstack
    check test "$(knobs)" = "$original"
    check not compgen -G "$leases/*"
    check not pgrep -u scavenger
    check not command -v scavenger-restore
    check test ! -e /lib/systemd/system/scavenger-agent.service
    check test -e /etc/scavenger/scavenger.conf
    check test -e /var/lib/scavenger
}

step_purge() {
    check test -e /etc/scavenger/token
    rm -r /etc/systemd/system/scavenger-*.d \
        /etc/scavenger/scavenger.conf.d/test.conf
    # The module has no configuration, so apt has forgotten it.
    check apt purge 'scavenger-*'
    local left
    left=$(find / -xdev '(' -path /opt -o -path /proc ')' -prune -o \
        '(' -name '*scavenger*' -o -user scavenger -o -user scavenger-control \
        ')' -print
        find /run /sys/fs/cgroup -name '*scavenger*')
    [ -z "$left" ] || fail "left: $left"
    check not grep -q '^scavenger' "$loaded"
    check not systemctl --quiet is-failed 'scavenger-*'
    check test "$(systemctl list-unit-files --no-legend 'scavenger*')" = ''
    check test "$(knobs)" = "$original"
}

for name in install observe confine control enforce half_an_upgrade upgrade \
        refuse_removal remove purge; do
    step "$name"
    ! denied || fail "denied: $(denials)"
done
systemctl stop job web

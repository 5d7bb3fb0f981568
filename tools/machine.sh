#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What this machine fetches packages with: apt's settings and mirror, pip's
# environment, certificates and proxies.  Sourced by tools/fresh.sh and
# tools/guest.sh, which carry it into a root of another machine.

# URI of the archive that has a suite, from the machine's own sources.
mirror() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' \
        | awk -v suite="$1" '$2 == suite && $3 == "main" {print $1; exit}'
}

# Proxy for debootstrap, which does not read apt's settings.
apt_proxy() {
    apt-config shell p Acquire::http::Proxy | sed "s/^p='\(.*\)'/\1/"
}

# Copy what apt and pip are configured with into a root.
carry_settings() {
    mkdir -p "$1/etc/apt/apt.conf.d"
    apt-config dump | grep -E '^Acquire::' \
        >"$1/etc/apt/apt.conf.d/00machine" || true
    [ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$1/etc/pip.conf"
}

# Environment of pip, with the files that it names copied into a root: a shell
# there sources /opt/machine/environment.  Proxies may have passwords, which
# must not be on a command line.
carry_environment() {
    mkdir -p "$1/opt/machine"
    install -m 600 /dev/null "$1/opt/machine/environment"
    environment "$1" >"$1/opt/machine/environment"
}

# Print it for a shell, and copy the files.
environment() {
    local name value
    exported -E '^(PIP_|SSL_CERT_FILE$|REQUESTS_CA_BUNDLE$)' \
        | while read -r name; do
        value=${!name}
        case $name in
            PIP_CERT | SSL_CERT_FILE | REQUESTS_CA_BUNDLE)
                [ -r "$value" ] || continue
                # ca-certificates replaces its own file when it is
                # installed, so ours stands elsewhere.
                cp -L "$value" "$1/opt/machine/$name.crt"
                value=/opt/machine/$name.crt
                ;;
            PIP_FIND_LINKS)
                [ -d "$value" ] || continue
                mkdir -p "$1$value"
                cp -rL "$value/." "$1$value"
                ;;
        esac
        assignment "$name" "$value"
    done
    exported -iE '^(https?|no)_proxy$' | while read -r name; do
        assignment "$name" "${!name}"
    done
}

exported() {
    compgen -e | grep "$@" || true
}

assignment() {
    printf "export %s='%s'\n" "$1" \
        "$(printf %s "$2" | sed "s/'/'\\\\''/g")"
}

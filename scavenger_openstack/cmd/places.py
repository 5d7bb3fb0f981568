# SPDX-License-Identifier: Apache-2.0

"""Where an agent keeps its state, stop file and history: found also with a
configuration that nothing else can work with, so that the kill switch can.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import glob
import os
import pathlib
import re
from typing import NamedTuple

from oslo_config import cfg

from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import check as conf_check

MAX_BYTES = 1 << 22
"""No configuration is larger."""

UNREADABLE = '\ufffd'
"""What stands for bytes that are not UTF-8, or that no path has."""

NEEDED = (('DEFAULT', 'state_dir'), ('agent', 'stop_file'),
          ('agent', 'history_dir'))


class Places(NamedTuple):
    """``proc`` is where processes are looked for.  ``guessed``: a part of
    the configuration that might name another state directory cannot be
    read, so it is the default."""

    state_dir: pathlib.Path
    stop_file: pathlib.Path
    history_dir: pathlib.Path
    proc: str
    guessed: bool = False


def of(conf: cfg.ConfigOpts) -> Places:
    """The places that a whole configuration names.

    :raises cfg.Error: an option refers to another that does not exist.
    """
    return Places(_absolute(conf_package.state_dir(conf)),
                  _absolute(conf_package.stop_file(conf)),
                  _absolute(conf_package.history_dir(conf)),
                  os.path.join(conf.root_dir, 'proc'))


def read(arguments: Sequence[str], prog: str) -> Places:
    """The places as far as they can be read: from the command line, else from
    what can be read of the files.

    :param arguments: the words for oslo.config in the command line
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument('--config-file', action='append', dest='files',
                        type=lambda path: (os.path.expanduser(path), False))
    parser.add_argument('--config-dir', action='append', dest='files',
                        type=lambda path: (os.path.expanduser(path), True))
    given, rest = parser.parse_known_args(list(arguments))
    in_files: dict[tuple[str, str], str] = {}
    whole = True
    for path in _files(given.files or []):
        whole &= _read_file(path, in_files)
    for values in (in_files, {}):
        conf = cfg.ConfigOpts()
        conf_package.register(conf)
        for (section, name), value in values.items():
            conf.set_default(name, value, None if section == 'DEFAULT'
                             else section)
        conf(rest, project='scavenger', prog=prog, default_config_files=[],
             default_config_dirs=[])
        try:
            places = of(conf)
        except cfg.Error:       # $one_that_does_not_exist
            whole = False
            continue
        break
    origin = conf.get_location('state_dir')
    return places._replace(guessed=not whole and (
        origin is None or origin.location is cfg.Locations.opt_default))


def _files(given: Sequence[tuple[str, bool]]) -> list[str]:
    """The files that :func:`.conf.read` reads, in its order.

    :param given: the paths on the command line, with whether each is to be
        a directory
    """
    named = {is_dir for _, is_dir in given}
    files = [] if False in named else _existing(conf_package.DEFAULT_CONFIG)
    if not named:
        given = [(path, True)
                 for path in _existing(conf_package.DEFAULT_CONFIG_DIR)]
    for path, is_dir in given:
        if is_dir and os.access(path, os.R_OK | os.X_OK):
            files += sorted(glob.glob(f'{glob.escape(path)}/*.conf'))
        else:
            files.append(path)
    return files


def _existing(path: str) -> list[str]:
    try:
        return conf_check.existing(path)
    except OSError:     # it may exist: reading it tells
        return [path]


def _read_file(path: str, values: dict[tuple[str, str], str]) -> bool:
    """Add what a file says of :data:`NEEDED`; return whether all of the file
    could be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, 'rb') as file:
            text = file.read(MAX_BYTES).decode(errors='replace').replace(
                '\0', UNREADABLE)
    except OSError:
        return False
    whole, section, in_value = UNREADABLE not in text, '', False
    for line in map(str.rstrip, text.splitlines()):
        if line.startswith((' ', '\t')):
            whole &= in_value       # a value that goes on is none of ours
            continue
        in_value = False
        assignment = re.fullmatch(r'([^:=]*[^:=\s])\s*[:=]\s*(.*)', line)
        if not line or line.startswith(('#', ';')):
            continue
        elif line.startswith('['):
            section = line.strip('[ ]')
            whole &= line.endswith(']')
        elif assignment and section:
            in_value = True
            key = (section, assignment[1].replace('-', '_'))
            value = assignment[2].strip('"\'')
            if key in NEEDED and value and UNREADABLE not in value:
                values[key] = value
        else:
            whole = False
    return whole


def _absolute(path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(os.path.abspath(path))

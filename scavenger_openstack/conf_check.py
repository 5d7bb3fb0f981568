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

"""What is wrong in a configuration: sentences that name the right thing."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import difflib
import math
import pathlib
import re

from oslo_config import cfg

from scavenger_openstack.types import Mode
from scavenger_openstack.types import Resource


ALIASES = ('logfile', 'logdir', 'log_config', 'log-config')
"""Old names that oslo.log still takes."""

_DETAIL = re.compile(r"detail='(.*)'")
"""Where oslo.config says which file a wrong value is in."""


def existing(path: str) -> list[str]:
    """``path`` if there is such a thing, be it readable or not.

    :raises OSError: that cannot be found out.
    """
    try:
        pathlib.Path(path).stat()
    except FileNotFoundError:
        return []
    return [path]


def not_utf8(words: Sequence[str]) -> str:
    """Which of the files in a command line is not UTF-8."""
    for word in words:
        path = pathlib.Path(word.removeprefix('--config-file=')
                            .removeprefix('--config-dir='))
        try:
            for file in (path, *sorted(path.glob('*.conf'))):
                if not file.is_dir():
                    file.read_text('utf-8')
        except UnicodeDecodeError:
            return str(file)
        except (OSError, ValueError):
            continue
    return 'a configuration file'


def files(conf: cfg.ConfigOpts
          ) -> Iterator[tuple[str, dict[str, dict[str, object]]]]:
    """Each file that was read, and the options of each of its sections."""
    paths = [*(conf.config_file or ()), *(
        str(path) for directory in conf.config_dir or ()
        for path in sorted(pathlib.Path(directory).glob('*.conf')))]
    for path in paths:
        sections: dict[str, dict[str, object]] = {}
        cfg.ConfigParser(path, sections).parse()
        yield path, sections


def is_set(conf: cfg.ConfigOpts, section: str, option: str) -> bool:
    """Whether an option is in a file, and not just at its default."""
    where = conf.get_location(option, section)
    return (where is not None
            and where.location is not cfg.Locations.opt_default)


def wrong_values(conf: cfg.ConfigOpts,
                 options: Iterable[tuple[str | None, Iterable[cfg.Opt]]]
                 ) -> Iterator[str]:
    """One sentence for each value that its option does not take."""
    for section, group in options:
        for option in group:
            name = f'[{section or "DEFAULT"}] {option.dest}'
            try:
                value = (conf[section] if section else conf)[option.dest]
            except (cfg.Error, ValueError) as exc:
                said, _, why = str(exc).replace('\n', ' ').rpartition(
                    ' is not valid: ')
                path = _DETAIL.search(said)
                yield (f'{path[1]}: ' if path else '') + f'{name}: {why}'
                continue
            if isinstance(value, float) and math.isnan(value):
                yield f'{name}: nan is not a number'


def unknown(sections: Mapping[str, Iterable[str]],
            known: Mapping[str, Collection[str]],
            free: Collection[str] = ()) -> list[str]:
    """One sentence for each section or option that does not exist.

    :param sections: what one file has: the options of each section
    :param known: all that exists
    :param free: sections of other packages, which nothing is known about
    """
    found = []
    for section in sorted(sections):
        if section in known:
            found += [f'[{section}] {option}: no such option'
                      + _right_option(section, option.replace('-', '_'), known)
                      for option in sections[section]
                      if option not in known[section]]
        elif section not in free:
            found.append(f'[{section}]: no such section'
                         + _right_section(section, [*known, *free]))
    return found


def _right_option(section: str, option: str,
                  known: Mapping[str, Collection[str]]) -> str:
    if option in known[section]:    # dashes are for the command line
        return f'; did you mean {option}?'
    homes = [f'[{other}] {option}' for other in sorted(known)
             if option in known[other]]
    if homes:
        return '; ' + ' and '.join(homes) + (
            ' is one' if len(homes) == 1 else ' are')
    for other in (section, *sorted(known)):
        close = difflib.get_close_matches(option, sorted(known[other]), 1)
        if close:
            where = '' if other == section else f'[{other}] '
            return f'; did you mean {where}{close[0]}?'
    return ''


def _right_section(section: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(section, sorted(known), 1)
    return (f'; did you mean [{close[0]}]?' if close
            else '; one of ' + ', '.join(sorted(known)))


def contradictions(modes: Mapping[str, Mode], controllers: Collection[str],
                   protect: Collection[Resource],
                   regulators: Mapping[str, Collection[Resource]],
                   detectors: Mapping[str, Collection[Resource]]
                   ) -> list[str]:
    """One sentence for each controller that could not do what it is set to.

    :param modes: the modes that the operator set, by controller
    :param controllers: those that run
    :param protect: ``[agent] protect``
    :param regulators: which resources each of them protects
    :param detectors: which resources each of them sets limits on
    """
    found = []
    limits = {**regulators, **detectors}
    for name, mode in sorted(modes.items()):
        resources = limits.get(name, ())
        if mode is Mode.ENFORCE and name not in controllers:
            found.append(
                f'[{name}] mode = enforce, but [agent] controllers does not '
                f'list {name}: add it there, or remove this mode')
        elif (mode is Mode.ENFORCE and protect and resources
              and not set(resources) & set(protect)):
            found.append(
                f'[{name}] mode = enforce, but [agent] protect does not '
                f'list {" or ".join(resources)}: add that there, or remove '
                'this mode')
    for resource in protect:
        able = [name for name, has in regulators.items() if resource in has]
        if not any(name in controllers and modes.get(name) is not Mode.OFF
                   for name in able):
            found.append(
                f'[agent] protect: {resource} takes the controller '
                f'{" or ".join(able)}: add it to [agent] controllers, and '
                'set no mode = off in its section')
    return found

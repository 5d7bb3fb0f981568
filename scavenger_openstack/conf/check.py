# SPDX-License-Identifier: Apache-2.0

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


def existing(path: str) -> list[str]:
    """``path`` if there is such a thing, be it readable or not.

    :raises OSError: that cannot be found out.
    """
    try:
        pathlib.Path(path).stat()
    except FileNotFoundError:
        return []
    return [path]


def named(words: Sequence[str]) -> Iterator[pathlib.Path]:
    """The files that a command line names."""
    for word in words:
        path = pathlib.Path(word.removeprefix('--config-file=')
                            .removeprefix('--config-dir=')).expanduser()
        try:
            yield from (path, *sorted(path.glob('*.conf')))
        except (OSError, ValueError):
            continue


def not_utf8(words: Sequence[str]) -> str:
    """Return which of the files in a command line is not UTF-8."""
    for file in named(words):
        try:
            if not file.is_dir():
                file.read_text('utf-8')
        except UnicodeDecodeError:
            return str(file)
        except (OSError, ValueError):
            continue
    return 'a configuration file'


def no_directories(paths: Iterable[str]) -> list[str]:
    """Return one sentence for each path that is no directory."""
    return [f'{path}: not a directory' for path in paths
            if not pathlib.Path(path).expanduser().is_dir()]


def refused(text: str, words: Sequence[str]) -> str:
    """Return why oslo.config ended the program: a switch that may be on the
    command line, too, has a wrong value in a file.

    :param text: what it printed
    :param words: the command line, and the files that are read without one
    """
    why = ' '.join(text.rpartition('error: ')[2].split())
    match = re.fullmatch(r'argument --(\S+): (.*: (.*))', why)
    for path in reversed([*named(words)] if match else []):
        sections: dict[str, dict[str, list[str]]] = {}
        try:
            cfg.ConfigParser(str(path), sections).parse()
        except (OSError, ValueError, cfg.Error):
            continue
        for name, values in sections.get('DEFAULT', {}).items():
            if match and (name.replace('_', '-'), values[-1]) == (
                    match[1], match[3]):
                return f'{path}: [DEFAULT] {name}: {match[2]}'
    return why


def files(conf: cfg.ConfigOpts
          ) -> Iterator[tuple[str, dict[str, dict[str, list[str]]]]]:
    """Each file that was read, and the options of each of its sections."""
    paths = [*(conf.config_file or ()), *(
        str(path) for directory in conf.config_dir or ()
        for path in sorted(pathlib.Path(directory).glob('*.conf')))]
    for path in paths:
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(path, sections).parse()
        yield path, sections


def is_set(conf: cfg.ConfigOpts, section: str, option: str) -> bool:
    """Return whether an option is in a file, and not just at its default."""
    where = conf.get_location(option, section)
    return (where is not None
            and where.location is not cfg.Locations.opt_default)


def wrong_values(conf: cfg.ConfigOpts,
                 options: Iterable[tuple[str | None, Iterable[cfg.Opt]]]
                 ) -> Iterator[str]:
    """Generate one sentence for each value that its option does not take."""
    written: dict[tuple[str, str], tuple[str, str]] = {}
    for path, sections in files(conf):
        for section, values in sections.items():
            for name, texts in values.items():
                written[section, name] = (f'{path}: ', texts[-1])
    for title, group in options:
        section = title or 'DEFAULT'
        for option in group:
            path, text = written.get((section, option.dest), ('', ''))
            try:
                value = (conf[title] if title else conf)[option.dest]
            except cfg.NoSuchOptError as exc:
                why = (f'${exc.opt_name}: no such option; for a dollar sign '
                       'write $$')
            except (cfg.Error, ValueError) as exc:
                why = str(exc).replace('\n', ' ').rpartition(
                    ' is not valid: ')[2]
                if text not in why:
                    why = f'{text}: {why}'
            else:
                if value is None and option.default is not None:
                    why = 'there is no value; write one, or remove the line'
                elif isinstance(value, float) and math.isnan(value):
                    why = f'{text or str(value)!r} is not a number'
                else:
                    continue
            yield f'{path}[{section}] {option.dest}: {why}'


def no_plugins(conf: cfg.ConfigOpts, option: str, names: Collection[str],
               installed: Collection[str]) -> list[str]:
    """Return a sentence for each name in an option of [agent] that no package
    has."""
    where = conf.get_location(option, 'agent')
    file = (f'{where.detail}: ' if where is not None
            and where.location is cfg.Locations.user else '')
    return [f'{file}[agent] {option}: {name!r} is not one of '
            + ', '.join(sorted(installed))
            for name in names if name not in installed]


def unknown(sections: Mapping[str, Iterable[str]],
            existing: Mapping[str, Collection[str]],
            free: Collection[str] = ()) -> list[str]:
    """Return a sentence for each section or option that does not exist.

    :param sections: what one file has: the options of each section
    :param existing: all sections and options that exist
    :param free: sections of other packages, which nothing is known about
    """
    sentences = []
    for section in sorted(sections):
        if section in existing:
            sentences += [f'[{section}] {option}: no such option'
                          + _right_option(
                              section, option.replace('-', '_'), existing)
                          for option in sections[section]
                          if option not in existing[section]]
        elif section not in free:
            sentences.append(f'[{section}]: no such section'
                             + _right_section(section, [*existing, *free],
                                              sorted(existing)))
    return sentences


def _right_option(section: str, option: str,
                  existing: Mapping[str, Collection[str]]) -> str:
    if option in existing[section]:    # dashes are for the command line
        return f'; did you mean {option}?'
    homes = [f'[{other}]' for other in sorted(existing)
             if option in existing[other]]
    if homes:
        return (f'; {homes[0]} {option} is one' if len(homes) == 1 else
                f'; it is one of {", ".join(homes[:-1])} and {homes[-1]}')
    for other in (section, *sorted(existing)):
        close = difflib.get_close_matches(option, sorted(existing[other]), 1)
        if close:
            where = '' if other == section else f'[{other}] '
            return f'; did you mean {where}{close[0]}?'
    return ''


def _right_section(section: str, existing: Collection[str],
                   listed: Sequence[str]) -> str:
    close = difflib.get_close_matches(section, sorted(existing), 1)
    return (f'; did you mean [{close[0]}]?' if close
            else '; one of ' + ', '.join(listed))


def contradictions(modes: Mapping[str, Mode], controllers: Collection[str],
                   protect: Collection[Resource],
                   regulators: Mapping[str, Collection[Resource]],
                   detectors: Mapping[str, Collection[Resource]]
                   ) -> list[str]:
    """Return one sentence for each controller that could not do what it is set
    to.

    :param modes: the modes that the operator set, by controller
    :param controllers: those that run
    :param protect: ``[agent] protect``
    :param regulators: which resources each of them protects
    :param detectors: which resources each of them sets limits on
    """
    sentences = []
    limits = {**regulators, **detectors}
    for name, mode in sorted(modes.items()):
        resources = limits.get(name, ())
        if mode is Mode.ENFORCE and name not in controllers:
            sentences.append(
                f'[{name}] mode = enforce, but [agent] controllers does not '
                f'list {name}: add it there, or remove this mode')
        elif (mode is Mode.ENFORCE and protect and resources
              and not set(resources) & set(protect)):
            sentences.append(
                f'[{name}] mode = enforce, but [agent] protect does not '
                f'list {" or ".join(resources)}: add that there, or remove '
                'this mode')
    for resource in protect:
        able = [name for name, has in regulators.items() if resource in has]
        if not any(name in controllers and modes.get(name) is not Mode.OFF
                   for name in able):
            sentences.append(
                f'[agent] protect: {resource} takes the controller '
                f'{" or ".join(able)}: add it to [agent] controllers, and '
                'set no mode = off in its section')
    return sentences

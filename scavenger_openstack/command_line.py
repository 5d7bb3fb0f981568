# SPDX-License-Identifier: Apache-2.0


"""The command line of every program: commands with options of their own,
``--version``, and one sentence for what is wrong.

Standard library only, so that ``--help`` and what is wrong are there at once;
what a program works with is imported in the function that needs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import difflib
import math
import re
from typing import Any
from typing import NoReturn

from scavenger_openstack import errors

_SENTENCES = (
    (r'argument (\S+?)(?:/\S+)?: invalid int value: (.*)',
     r'\1: \2 is not a whole number'),
    (r'argument (\S+?)(?:/\S+)?: invalid float value: (.*)',
     r'\1: \2 is not a number'),
    (r'argument (\S+?)(?:/\S+)?: expected (?:one|at least one) argument',
     r'\1 needs a value'),
    (r'argument (\S+?)(?:/\S+)?: ignored explicit argument .*',
     r'\1 takes no value'),
    (r'argument (\S+?)(?:/\S+)?: not allowed with argument (\S+)',
     r'\1 cannot be together with \2'),
    (r'argument (\S+?)(?:/\S+)?: (.*)', r'\1: \2'),
    (r'the following arguments are required: (.*)', r'\1 is missing'))
"""What argparse says, and what is said for it."""

_CHOICE = re.compile(r'argument (\S+?)(?:/\S+)?: invalid choice: '
                     r'(.+?) \(choose from (.*)\)', re.DOTALL)

_UNITS_S = {'ms': 1e-3, 's': 1, 'm': 60, 'h': 3600, 'd': 86400,
            'w': 7 * 86400}
_PART = r'([0-9]*\.?[0-9]+)(ms|[smhdw])'

COMMANDS = 'command', 'action'
"""How those that are nested are called in what is said."""


class Parser(argparse.ArgumentParser):
    """Of a program, or of one of its commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{'allow_abbrev': False, **kwargs})
        self.commands: dict[str, Parser] = {}
        self.dest = ''
        self.required = False

    def chosen(self, options: argparse.Namespace) -> Parser:
        """The parser of the command that was given, or this one."""
        name = getattr(options, self.dest) if self.dest else None
        return self.commands[name].chosen(options) if name else self

    def error(self, message: str) -> NoReturn:
        """
        :raises ConfigError: always
        """
        raise errors.ConfigError(
            f'{self._sentence(message)}; see {self.prog} --help')

    def _sentence(self, message: str) -> str:
        choice = _CHOICE.fullmatch(message)
        if choice:
            name, value, choices = choice.groups()
            known = [one.strip('\'" ') for one in choices.split(',')]
            close = difflib.get_close_matches(value.strip('\'"'), known, 1)
            if name in COMMANDS:
                return f'{value} is no command; ' + (
                    f'did you mean {close[0]}?' if close
                    else f'one of {", ".join(known)}')
            return f'{name}: {value} is not one of {", ".join(known)}'
        for pattern, sentence in _SENTENCES:
            found = re.fullmatch(pattern, message, re.DOTALL)
            if found:
                message = found.expand(sentence)
                break
        return message

    def options(self) -> list[str]:
        """The names of all options, those of its commands, too."""
        return [*self._option_string_actions,
                *(name for command in self.commands.values()
                  for name in command.options())]


def program(name: str, description: str, **more: Any) -> Parser:
    """The parser of a program.

    :param name: what the operator types
    """
    parser = Parser(prog=name, description=description, **more)
    parser.add_argument('--version', action=_Version,
                        help='print the version and end')
    return parser


def add_commands(parser: Parser, dest: str = 'command', *,
                 required: bool = True) -> Callable[..., Parser]:
    """What adds one command, by its name and what it is for."""
    action = parser.add_subparsers(dest=dest, title='commands')
    parser.commands, parser.dest = action.choices, dest
    parser.required = required

    def add(name: str, text: str, more: str = '', **kwargs: Any) -> Parser:
        return action.add_parser(
            name, help=text.replace('%', '%%'),
            description=f'{text[0].upper()}{text[1:]}. {more}', **kwargs)

    return add


def add_configuration(parser: Parser, *, host: bool = True,
                      before: bool = False) -> None:
    """Which configuration to read.

    :param host: the program looks at this host, and at an agent's state
    :param before: the options may stand before the command
    """
    group = _Group(parser, 'configuration', before)
    group.add('--config-file', 'PATH',
              'read this file instead of /etc/scavenger/scavenger.conf and '
              'scavenger.conf.d; can be given more than once: of an option '
              'that is in several files the last one counts')
    group.add('--config-dir', 'DIR',
              'read the *.conf files in there, too, instead of those in '
              '/etc/scavenger/scavenger.conf.d')
    if host:
        group.add('--state-dir', 'DIR',
                  'where the agent keeps leases, status and lock '
                  '(default: /run/scavenger)')
        group.add('--root-dir', 'DIR',
                  'where /proc and /sys are looked for (default: /)')


def add_logging(parser: Parser, *, before: bool = False) -> None:
    """Where the log goes.  More of it can be set in a file."""
    group = _Group(parser, 'log', before, hidden=before)
    group.add('--debug', None, 'log more, to look for a fault')
    group.add('--log-file', 'PATH', 'log to this file, not to standard error')
    group.add('--log-dir', 'DIR', 'log to PROGRAM.log in there, or to the '
                                  '--log-file in there')
    group.add('--log-config-append', 'PATH',
              'read how to log from this file of Python\'s logging')
    group.add('--use-journal', None, 'log to the journal of systemd')
    group.add('--use-json', None, 'log lines are JSON')
    group.add('--use-syslog', None, 'log to syslog')


def parse(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """The options in ``words``.

    :raises ConfigError: something is wrong, in one sentence.
    :raises SystemExit: help or the version was asked for, and is printed.
    """
    options, rest = parser.parse_known_args(words)
    chosen = parser.chosen(options)
    if rest:
        chosen.error(_unknown(rest[0], parser, chosen))
    if chosen.required:
        chosen.error('a command is missing: one of '
                     + ', '.join(chosen.commands))
    return options


def configuration(options: argparse.Namespace) -> list[str]:
    """The words in a command line that are for oslo.config."""
    return [*(options.words_before or ()),
            *(getattr(options, 'words', None) or ())]


def duration_s(text: str) -> float | None:
    """The seconds of ``10ms``, ``90s``, ``30m``, ``2h``, ``3d``, ``1w`` or
    ``1h30m``; ``None`` if the text is no duration."""
    if not re.fullmatch(f'(?:{_PART})+', text):
        return None
    return sum(float(count) * _UNITS_S[unit]
               for count, unit in re.findall(_PART, text))


def number(least: float = -math.inf, most: float = math.inf, *,
           whole: bool = False) -> Callable[[str], Any]:
    """What reads a number within bounds."""
    def read(text: str) -> float:
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a {"whole " if whole else ""}number'
            ) from None
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a finite number')
        if value < least:
            raise argparse.ArgumentTypeError(
                f'{text} is too small, the smallest is {least:g}')
        if value > most:
            raise argparse.ArgumentTypeError(
                f'{text} is too large, the largest is {most:g}')
        return value

    return read


def _unknown(word: str, parser: Parser, chosen: Parser) -> str:
    if not word.startswith('-'):
        return f'{word!r} is one word too many'
    name = word.partition('=')[0]
    homes = [f'{parser.prog} {command}' for command, its
             in parser.commands.items() if name in its.options()]
    if homes:
        return f'{name} is an option of {" and ".join(homes)} only'
    close = difflib.get_close_matches(name, chosen.options(), 1)
    return (f'no such option: {name}'
            + (f'; did you mean {close[0]}?' if close else ''))


class _Group:
    """Options that oslo.config is handed as they are."""

    def __init__(self, parser: Parser, title: str, before: bool,
                 hidden: bool = False) -> None:
        self._group = parser.add_argument_group(title)
        self._dest = 'words_before' if before else 'words'
        self._hidden = hidden

    def add(self, name: str, metavar: str | None, text: str) -> None:
        self._group.add_argument(
            name, dest=self._dest, action=_Forward, metavar=metavar,
            nargs=0 if metavar is None else None,
            help=argparse.SUPPRESS if self._hidden else text)


class _Forward(argparse.Action):

    def __call__(self, parser: argparse.ArgumentParser,
                 namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        name = self.option_strings[0]
        if self.nargs is None and not values:
            parser.error(f'argument {name}: expected one argument')
        word = name if self.nargs == 0 else f'{name}={values}'
        setattr(namespace, self.dest,
                [*(getattr(namespace, self.dest) or ()), word])


class _Version(argparse.Action):

    def __init__(self, option_strings: Sequence[str], dest: str,
                 **kwargs: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0,
                         **kwargs)

    def __call__(self, parser: argparse.ArgumentParser,
                 namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        from scavenger_openstack import version
        print(parser.prog, version())
        parser.exit()

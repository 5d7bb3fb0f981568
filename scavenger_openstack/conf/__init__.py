# SPDX-License-Identifier: Apache-2.0

"""The configuration as a whole: all sections, reading files, what is wrong.

The options of each group are in a module of this folder.  What an algorithm
lets an operator tune is a field of its ``Params``: its options are made from
those (``params``), so that number, help and bounds stand once.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from importlib import metadata
import io
import logging
import os
import pathlib
import traceback

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.algorithms.perfiso import io_shares
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import params as scavenger_params
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack.conf import cgroups as conf_cgroups
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import cloud as conf_cloud
from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.conf import host as conf_host
from scavenger_openstack.conf import libraries as conf_libraries
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack import errors
from scavenger_openstack.knobs import RESOURCE_OF
from scavenger_openstack.metrics import options as metrics_options
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import printable
from scavenger_openstack.types import Resource

LOG = logging.getLogger(__name__)

DEFAULT_CONFIG = '/etc/scavenger/scavenger.conf'
DEFAULT_CONFIG_DIR = DEFAULT_CONFIG + '.d'
DEFAULT_SYNC_DIR = '/var/lib/scavenger/sync'
PRESETS = pathlib.Path(__file__).parent / 'presets'

PARAMS: dict[str, type] = {'scavenger': scavenger_params.Params,
                           'perfiso': perfiso.Params,
                           'io_shares': io_shares.Params,
                           'cpi2': cpi2.Params,
                           'perfcloud': perfcloud.Params,
                           'attribution': attribution.Params}

DRIVERS = frozenset({'host', 'replay'})

REGULATORS: Mapping[str, tuple[Resource, ...]] = {
    'scavenger': (Resource.CPU, Resource.MEMORY, Resource.NETWORK),
    'perfiso': (Resource.CPU,),
    'io_shares': (Resource.DISK,)}
"""The regulators, and what each of them protects."""

DETECTORS: Mapping[str, tuple[Resource, ...]] = {
    'attribution': (Resource.CPU, Resource.DISK, Resource.NETWORK),
    'cpi2': (Resource.CPU, Resource.DISK),
    'perfcloud': (Resource.CPU, Resource.DISK)}
"""The detectors, and what they set limits on."""

UNTRIED = frozenset({'cpi2', 'perfcloud'})
"""Detectors that do not check that a limit helps: their papers do not."""

SECTIONS: dict[str, list[cfg.Opt]] = {'agent': [
                                          *conf_agent.AGENT_OPTS,
                                          *metrics_options.SECTIONS['agent']],
                                      'cgroups': conf_cgroups.CGROUPS_OPTS,
                                      'network': conf_host.NETWORK_OPTS,
                                      'libvirt': conf_host.LIBVIRT_OPTS,
                                      'perf': conf_host.PERF_OPTS,
                                      'conductor': [
                                          *conf_control.CONDUCTOR_OPTS,
                                          *metrics_options.SECTIONS['conductor']],
                                      'replay': conf_agent.REPLAY_OPTS,
                                      'database': conf_control.DATABASE_OPTS,
                                      'api': [*conf_control.API_OPTS,
                                              *metrics_options.SECTIONS['api']],
                                      **conf_cloud.SECTIONS}


def list_opts() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return all options, for oslo-config-generator."""
    return [(None, conf_agent.COMMON_OPTS), *SECTIONS.items(),
            *((name, conf_params.opts_of(params))
              for name, params in PARAMS.items())]


def register(conf: cfg.ConfigOpts) -> None:
    log.register_options(conf)
    # oslo.log would print to standard output, where our JSON goes.
    conf.set_default('use_stderr', True)
    conf.register_cli_opts(conf_agent.COMMON_OPTS)
    for section, options in SECTIONS.items():
        conf.register_opts(options, section)
    for section, params in PARAMS.items():
        conf.register_opts(conf_params.opts_of(params), section)


def of_preset(name: str = '') -> cfg.ConfigOpts:
    """Return the configuration of a fresh install, with a file of
    :data:`PRESETS` if one is named; this host's files do not count."""
    conf = cfg.ConfigOpts()
    register(conf)
    conf([], project='scavenger', default_config_files=[
        str(PRESETS / f'{name}.conf')] if name else [],
        default_config_dirs=[])
    return conf


def load(conf: cfg.ConfigOpts, argv: Sequence[str], prog: str) -> None:
    """Read the command line and the files into ``conf``, and check all.

    Without ``--config-file`` these are :data:`DEFAULT_CONFIG` and the files
    in :data:`DEFAULT_CONFIG_DIR`, if they exist: never one in a home
    directory.

    :raises ConfigError: with all findings; or a file cannot be read.
    """
    read(conf, argv, prog)
    wrong = findings(conf)
    if wrong:
        raise errors.ConfigError(*wrong)


def check_files(conf: cfg.ConfigOpts) -> None:
    """Read the files of ``conf`` again, without changing it, and check all.

    :raises ConfigError: with all findings; or one cannot be read.
    """
    again = cfg.ConfigOpts()
    register(again)
    load(again, [*(f'--config-file={path}' for path in conf.config_file or ()),
                 *(f'--config-dir={path}' for path in conf.config_dir or ())],
         conf.prog)


def read(conf: cfg.ConfigOpts, argv: Sequence[str], prog: str) -> None:
    """Read the command line and the files, whatever they say.

    :raises ConfigError: a file cannot be read or has no sections and
        options, or the command line is wrong.
    """
    from scavenger_openstack import version
    named = any(word.partition('=')[0] == '--config-file' for word in argv)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(
                output):
            conf(argv, project='scavenger', prog=prog,
                 version=version(),
                 default_config_files=conf_check.existing(DEFAULT_CONFIG),
                 default_config_dirs=[] if named else conf_check.existing(
                     DEFAULT_CONFIG_DIR))
    except UnicodeDecodeError as exc:
        path = conf_check.not_utf8(
            [*argv, DEFAULT_CONFIG, DEFAULT_CONFIG_DIR])
        raise errors.ConfigError(f'{path}: not UTF-8: {exc}') from exc
    except OSError as exc:
        raise errors.ConfigError(
            f'{exc.filename}: the configuration cannot be read: '
            f'{exc.strerror}') from exc
    except (cfg.Error, ValueError) as exc:
        raise errors.ConfigError(str(exc).replace('\n', ' ')) from exc
    except SystemExit as exc:
        if not exc.code:        # it was asked for help
            print(output.getvalue(), end='')
            raise
        raise errors.ConfigError(conf_check.refused(
            output.getvalue(), [*argv, DEFAULT_CONFIG, DEFAULT_CONFIG_DIR]
        )) from exc
    wrong = conf_check.no_directories(conf.config_dir or ())
    if wrong:
        raise errors.ConfigError(*wrong)


def findings(conf: cfg.ConfigOpts) -> list[str]:
    """Return all that is wrong in what was read, each in one sentence."""
    sentences = []
    existing = {'DEFAULT': {*conf, *conf_check.ALIASES,
                            *conf_libraries.USED_DEFAULTS},
                **{name: {*conf[name]} for name, _ in list_opts() if name}}
    files = [(path, conf_libraries.without_unused(sections))
             for path, sections in conf_check.files(conf)]
    free = {*conf_libraries.USED_SECTIONS, *conf_libraries.named_sections(
        sections for _, sections in files)}
    if any(sections.keys() - existing.keys() - free for _, sections in files):
        free |= _plugins('scavenger.controllers')
    for path, sections in files:
        sentences += [f'{path}: {what}' for what in conf_check.unknown(
            sections, existing, free)]
    values = list(conf_check.wrong_values(conf, list_opts()))
    if not values:
        sentences += [*conf_host.wrong_links(conf), *_no_plugins(conf)]
        sentences += conf_check.contradictions(
            {name: Mode(conf[name].mode) for name in PARAMS
             if conf_check.is_set(conf, name, 'mode')},
            [*conf.agent.controllers, perfiso.Controller.name],
            conf.agent.protect, REGULATORS, DETECTORS)
    return sentences + values


class LogFilter(logging.Filter):
    """Keeps what terminals obey, and ends of lines, out of what is logged:
    tenants choose names, and others say what is wrong with them.

    Each line of a traceback is indented: none can be taken for a line of the
    log, whatever the text of the exception is.

    :param beside: changes each line before that
    """

    def __init__(self, beside: Callable[[str], str] = str) -> None:
        super().__init__()
        self._beside = beside

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except (TypeError, ValueError):     # of a library: not a line less
            text = f'{record.msg} {record.args!r}'
        record.msg, record.args = printable(self._beside(text)), None
        more = record.stack_info or ''
        if isinstance(record.exc_info, tuple):
            more = ''.join(traceback.format_exception(
                *record.exc_info)) + more
        if more:
            record.exc_text = '\n'.join(
                f'    {printable(self._beside(line))}'
                for line in more.rstrip('\n').split('\n'))
        # Else a formatter does it again.
        record.exc_info = record.stack_info = None
        return True


def set_up_log(conf: cfg.ConfigOpts, beside: Callable[[str], str] = str
               ) -> None:
    """Log as the options say.

    :param beside: see :class:`LogFilter`
    """
    log.setup(conf, 'scavenger')
    if not conf.debug:
        # Six lines at each start, of no use to an operator.
        logging.getLogger('alembic.runtime.plugins').setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogFilter(beside))
    log_unused(conf)


def log_unused(conf: cfg.ConfigOpts) -> None:
    """Log what the files have for libraries that are not used here."""
    for sentence in conf_libraries.unused(conf_check.files(conf)):
        LOG.warning('%s', sentence)


def _no_plugins(conf: cfg.ConfigOpts) -> list[str]:
    sentences = []
    for option, group, names, own in (
            ('controllers', 'scavenger.controllers', conf.agent.controllers,
             PARAMS.keys() - {perfiso.Controller.name}),
            ('driver', 'scavenger.drivers', [conf.agent.driver], DRIVERS)):
        if not own.issuperset(names):
            sentences += conf_check.no_plugins(conf, option, names,
                                               own | _plugins(group))
    return sentences


def _plugins(group: str) -> set[str]:
    """Return the names of a group's plugins in all packages.

    This takes 20 ms, and few hosts have any but ours.
    """
    return {point.name for point in metadata.entry_points(group=group)}


def mode(conf: cfg.ConfigOpts, name: str) -> Mode:
    """Return how far a controller may go.

    What its section says; else it enforces if it is the regulator of a
    resource that ``[agent] protect`` lists.
    """
    if (not conf_check.is_set(conf, name, 'mode')
            and set(REGULATORS.get(name, ())) & set(conf.agent.protect)):
        return Mode.ENFORCE
    return Mode(conf[name].mode)


def limited_knobs(protect: Sequence[Resource]) -> frozenset[Knob]:
    """The knobs that may be set with this ``[agent] protect``."""
    return frozenset(knob for knob in Knob
                     if not protect or RESOURCE_OF[knob] in protect)


def state_dir(conf: cfg.ConfigOpts) -> pathlib.Path:
    return pathlib.Path(conf.state_dir)


def stop_file(conf: cfg.ConfigOpts) -> pathlib.Path:
    """Return the path of the kill switch."""
    return _kept(conf, conf.agent.stop_file, conf_agent.DEFAULT_STOP_FILE)


def history_dir(conf: cfg.ConfigOpts) -> pathlib.Path:
    """Where events are kept."""
    return _kept(conf, conf.agent.history_dir, conf_agent.DEFAULT_HISTORY_DIR)


def sync_dir(conf: cfg.ConfigOpts) -> pathlib.Path:
    """Return the directory of the last directives."""
    return _kept(conf, None, DEFAULT_SYNC_DIR)


def _kept(conf: cfg.ConfigOpts, given: str | None, default: str
          ) -> pathlib.Path:
    """Return the directory as given; else one in the state directory, but for
    the default one, which a reboot empties."""
    if given:
        return pathlib.Path(given)
    if os.path.realpath(conf.state_dir) == os.path.realpath(
            conf_agent.DEFAULT_STATE_DIR):
        return pathlib.Path(default)
    return state_dir(conf) / pathlib.Path(default).name

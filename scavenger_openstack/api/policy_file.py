# SPDX-License-Identifier: Apache-2.0

"""What is wrong with the rules that an operator wrote."""

from __future__ import annotations

import difflib

from oslo_config import cfg
from oslo_policy import policy

from scavenger_openstack.api import policies
from scavenger_openstack import errors

_NOBODY = '!'
"""What oslo.policy makes of a rule that it cannot read, besides a log line."""


def check(conf: cfg.ConfigOpts) -> None:
    """Do nothing if the file and the directory of policies can be used.

    :raises ConfigError: they cannot be read, or have rules that do not exist
        or cannot be understood.
    """
    enforcer = policies.enforcer(conf)
    path = conf.oslo_policy.policy_file
    try:
        enforcer.load_rules(force_reload=True)
        enforcer.check_rules(raise_on_violation=True)
    except policy.InvalidDefinitionError as exc:
        raise errors.ConfigError(
            f'{path}: a rule refers to one that does not exist, or to '
            f'itself: {exc}') from exc
    except errors.MISREAD as exc:
        raise errors.ConfigError(
            f'{path}: not lines of "name": "rule": {exc!r:.200}') from exc
    except (OSError, cfg.Error) as exc:
        raise errors.ConfigError(f'{path}: {exc}') from exc
    names = [rule.name for rule in policies.list_rules()]
    problems = []
    for name, rule in enforcer.file_rules.items():
        if name.startswith('interference:') and name not in names:
            close = difflib.get_close_matches(name, names, 1)
            problems.append(f'{name}: no such rule' + (
                f'; did you mean {close[0]}?' if close else ''))
        elif (str(rule.check) == _NOBODY
              and str(rule.check_str).strip() != _NOBODY):
            problems.append(f'{name}: "{rule.check_str}" cannot be '
                            'understood, and refuses every request')
    if problems:
        raise errors.ConfigError(f'{path}: ' + '; '.join(sorted(problems)))

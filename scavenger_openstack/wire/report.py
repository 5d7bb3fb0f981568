# SPDX-License-Identifier: Apache-2.0

"""What an agent reports to the conductor, and what it gets back.

An agent calls ``sync(report) -> answer`` every few seconds.  The report has
entries, which the agent sends again until they are acknowledged, so a
report may arrive twice: the conductor applies an entry once, by host, run and
sequence.  Times are UNIX times in seconds, unless a name says otherwise.

Fields that another release does not know are ignored, and those that it lacks
have defaults.  A type of entry that it does not know is left out by
:mod:`.received`, and any :data:`.texts.Word` is taken as it is.  A new meaning
of a field is a new field; what cannot be said so is a new :data:`SCHEMA`, and
agents and conductors of two schemas do not work together.  Each message says
its own; a default is not sent, so that of the field is 1 for ever.

Names are those of :func:`.fit.name`: the agent's own unless these are too long
or not printable.  A text that is not of its kind in :mod:`.texts` makes a
report of another type, which is refused: the agent then finds the entry.
"""

from __future__ import annotations

from typing import Annotated
from typing import Any
from typing import Literal

import msgspec
from msgspec import Meta

from scavenger_openstack import grounds
from scavenger_openstack.wire.patterns import LAST_S
from scavenger_openstack.wire.texts import CpuList
from scavenger_openstack.wire.texts import GivenName
from scavenger_openstack.wire.texts import GivenSentence
from scavenger_openstack.wire.texts import Host
from scavenger_openstack.wire.texts import Id
from scavenger_openstack.wire.texts import IncidentId
from scavenger_openstack.wire.texts import Line
from scavenger_openstack.wire.texts import MaybeGivenName
from scavenger_openstack.wire.texts import MaybeId
from scavenger_openstack.wire.texts import MaybeInstance
from scavenger_openstack.wire.texts import MaybeName
from scavenger_openstack.wire.texts import MaybeProject
from scavenger_openstack.wire.texts import Name
from scavenger_openstack.wire.texts import Sentence
from scavenger_openstack.wire.texts import ShortWord
from scavenger_openstack.wire.texts import ThreadName
from scavenger_openstack.wire.texts import Word

SCHEMA = 1

MAX_REPORT_BYTES = 1 << 20
"""A report is at most this long; RPC brokers bear little more."""
MAX_ANSWER_BYTES = 4 << 20
MAX_ENTRY_BYTES = 256 << 10
MAX_ENTRIES = 500
"""Entries of one report; the rest waits for the next."""
MAX_MISSING = 20
MAX_PARTS = 50
"""Controllers and knobs of a host."""
MAX_GROUNDS = grounds.MOST
MAX_THREADS = 8
"""Threads of the host in one ground."""
MAX_ANSWERED = 32
"""Incidents that one limit answers."""
MAX_REFUSED = 200
"""Sentences of one report; there may be more."""

Count = Annotated[int, Meta(ge=0, le=2 ** 53)]
Sequence = Annotated[int, Meta(ge=1, le=2 ** 53)]
Time = Annotated[float, Meta(ge=0, le=LAST_S)]
NotNegative = Annotated[float, Meta(ge=0)]
Value = float | CpuList
"""A limit: a number in the unit of its knob, or a CPU list."""
GivenValue = float | Annotated[str, Meta(max_length=4096)]

Resource = Literal['cpu', 'memory', 'network', 'disk']
Amounts = Annotated[dict[Word, NotNegative], Meta(max_length=MAX_PARTS)]
"""By resource or by knob, in the unit of it."""
Grade = Annotated[str, Meta(pattern=r'\A[A-Z]?\Z')]
Priority = Literal['foreground', 'background']
Mode = Literal['off', 'observe', 'enforce']
Knob = Literal['cpu_cores', 'cpu_set', 'cpu_idle', 'memory_bytes',
               'io_bytes_per_s', 'io_ops_per_s', 'egress_bytes_per_s',
               'ingress_bytes_per_s', 'llc_ways', 'paused']
GroundKind = Literal['direct', 'share', 'timing', 'experiment']
Outcome = Literal['open', 'confirmed', 'refuted', 'unclear', 'ended']
"""What agents of this release send.  A report takes other words, too: an
agent of a later release may know more resources, modes, knobs, kinds or
outcomes than its conductor."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes over the wire: values, in JSON objects."""


class Workload(Wire, frozen=True):
    """A VM or a container on a host.

    ``id`` is the name that the host's agent has for it; ``instance`` the
    UUID of a VM, '' for containers, ``project`` '' where it is not known.
    ``floor`` maps a knob to the value below which no limit goes.
    """

    id: Name
    priority: Priority
    kind: ShortWord = 'container'
    source: MaybeName = 'default'
    instance: MaybeInstance = ''
    display_name: MaybeName = ''
    flavor: MaybeName = ''
    project: MaybeProject = ''
    application: MaybeName = ''
    vcpus: NotNegative = 1.0
    floor: Amounts = {}


class Precision(Wire, frozen=True):
    """Ends of a controller's trials since the agent has been installed."""

    confirmed: Count = 0
    refuted: Count = 0
    unclear: Count = 0


class Facts(Wire, frozen=True):
    """How the host and its agent are now.

    ``enforcing`` is false while the kill switch of the host is on, or no
    controller may set limits.  ``stopped`` says why, '' when it is not.
    ``capacity``, ``headroom`` and ``used`` are by resource, in its knob's
    unit: what the host has, what background work could use besides what it
    has now, and what it uses now.
    ``grade`` is A, B or C for what can be measured here, '' when unknown.
    ``own_modes`` are the modes that the host's file says, which directives
    only make more careful; ``limited`` the knobs that may be set there,
    ``None`` when not known; ``missing`` says what protecting or measuring a
    resource lacks.
    ``refused`` says of each part of the directives that is not followed here
    why: 'mode NAME', 'override ID', 'parameter NAME', 'priority ID',
    'application ID', 'floor ID', FIELD that was left out, 'more FIELD' cut.
    ``dropped`` counts entries that there was no room for, statistics
    before others; ``set_aside`` those that the conductor did not take.
    ``spool_bytes`` waits to be reported, the oldest for ``waiting_s``.
    ``suffering`` says of each workload that suffers and has no incident how,
    and why it has none.
    ``remembered`` has the seconds since the last limit of each antagonist was
    removed that disturbs nothing now.
    """

    version: MaybeName = ''
    enforcing: bool = False
    stopped: Sentence = ''
    grade: Grade = ''
    cpu_model: MaybeName = ''
    modes: Annotated[dict[Name, Word], Meta(max_length=MAX_PARTS)] = {}
    own_modes: Annotated[dict[Name, Word], Meta(max_length=MAX_PARTS)] = {}
    limited: Annotated[list[Word], Meta(max_length=MAX_PARTS)] | None = None
    missing: Annotated[list[Sentence], Meta(max_length=MAX_MISSING)] = []
    capacity: Amounts = {}
    headroom: Amounts = {}
    used: Amounts = {}
    precision: Annotated[dict[Name, Precision],
                         Meta(max_length=MAX_PARTS)] = {}
    tick_cpu_share: NotNegative | None = None
    spool_bytes: Count = 0
    dropped: Count = 0
    set_aside: Count = 0
    waiting_s: NotNegative = 0.0
    refused: Annotated[dict[Name, Sentence], Meta(max_length=MAX_REFUSED)] = {}
    suffering: Annotated[dict[Name, Sentence], Meta(max_length=50)] = {}
    remembered: Annotated[dict[Name, NotNegative], Meta(max_length=50)] = {}


class Suspect(Wire, frozen=True):
    """A workload that may disturb the victim, and the score it got.

    An antagonist that was named ``earlier`` disturbs no more, and may have no
    score now.
    """

    workload: Name
    score: float | None = None
    antagonist: bool = False
    earlier: bool = False


class Ground(Wire, frozen=True):
    """Why a workload, '' for the host itself, is named: see
    :class:`.grounds.Ground`."""

    kind: ShortWord
    workload: MaybeName = ''
    share: Annotated[float, Meta(ge=-1, le=1)] | None = None
    waited_s: NotNegative | None = None
    window_s: NotNegative | None = None
    threads: Annotated[list[ThreadName], Meta(max_length=MAX_THREADS)] = []
    chance: Annotated[float, Meta(ge=0, le=1)] | None = None
    before: float | None = None
    after: float | None = None


class Series(Wire, frozen=True):
    """One signal of one workload over an incident: times and values."""

    workload: Name
    signal: Name
    times_s: Annotated[list[Time], Meta(max_length=120)]
    values: Annotated[list[float | None], Meta(max_length=120)]


class Entry(Wire, frozen=True, tag_field='type'):
    """One thing that happened; ``sequence`` grows by one in each run."""

    sequence: Sequence
    time_s: Time


class Incident(Entry, frozen=True, tag='incident'):
    """An incident as it is now.  ``begun_s`` is when it began."""

    id: IncidentId
    what: Literal['began', 'changed', 'ended']
    begun_s: Time
    victim: Name
    signal: Name
    value: float | None = None
    threshold: float | None = None
    cause: MaybeName = ''
    controller: MaybeName = ''
    action: Sentence = ''
    outcome: Word = 'open'
    suspects: Annotated[list[Suspect], Meta(max_length=64)] = []
    grounds: Annotated[list[Ground], Meta(max_length=MAX_GROUNDS)] = []
    evidence: Annotated[list[Series], Meta(max_length=9)] = []


class Limit(Entry, frozen=True, tag='limit'):
    """A limit was set, changed or removed.

    ``since_s`` is when its owner set it or took it over; ``original`` what the
    knob holds without it; ``lowest`` and ``highest`` what it was since the
    entry before.  ``incidents`` are the ids of those that it answers.
    """

    workload: Name
    knob: Word
    what: Literal['set', 'changed', 'removed']
    since_s: Time
    owner: Name
    value: Value | None = None
    original: Value | None = None
    lowest: Value | None = None
    highest: Value | None = None
    reason: Sentence = ''
    why: Sentence = ''
    incidents: Annotated[list[IncidentId],
                         Meta(max_length=MAX_ANSWERED)] = []


class Kill(Entry, frozen=True, tag='kill'):
    """Processes of a background container were killed."""

    workload: Name
    processes: Count
    owner: Name
    reason: Sentence = ''


class AgentEvent(Entry, frozen=True, tag='agent'):
    """The agent started, ended, or may set limits no more or again.

    After 'started' nothing of an earlier run of this host is in force or open:
    its limits were restored, and incidents that go on get another id.
    """

    what: Literal['started', 'state', 'ended']
    detail: Sentence = ''
    pid: Count = 0


class Statistics(Entry, frozen=True, tag='statistics'):
    """What a signal of an application was in one hour on a CPU model.  An hour
    has several, of other samples each; ``m2``, the sum of squared differences
    from the mean, lets them merge.  Source: CPI2, section 3.1."""

    project: MaybeProject
    application: Name
    cpu_model: MaybeName
    signal: Name
    hour_s: Time
    n: Annotated[int, Meta(ge=1, le=2 ** 53)]
    mean: float
    m2: NotNegative
    least: float
    most: float
    cpu_cores: NotNegative | None = None


class Profiling(Entry, frozen=True, tag='profiling'):
    """A profile that was asked for is being measured, is measured, or is not.

    ``id`` is that of :class:`ProfilingOrder`, ``seconds`` how long it took,
    ``detail`` why it ended without a profile.  ``profile`` is one in JSON, '',
    if there is none: see :mod:`.wire.profile`.
    """

    id: Id
    what: Literal['began', 'measured', 'ended']
    workload: Name
    seconds: NotNegative = 0.0
    detail: Sentence = ''
    profile: Line = ''


class OtherEntry(Entry, frozen=True, tag='other'):
    """An entry of a type that this release does not know, see
    :mod:`.received`; ``entry_type`` is that."""

    entry_type: Word


AnyEntry = (Incident | Limit | Kill | AgentEvent | Statistics | Profiling
            | OtherEntry)


class Report(Wire, frozen=True):
    """What an agent says.

    ``run_id`` is new at each start of the agent; entries of an earlier run
    come under that run's id.  ``workloads`` is all of them, or ``None`` when
    the conductor has them already: its last answer had the same digest.
    ``directives_digest`` is of the directives that the agent holds.
    """

    host: Host
    boot_id: Id
    run_id: Id
    sent_s: Time
    schema: int = 1
    facts: Facts = Facts()
    workloads_digest: MaybeId = ''
    workloads: Annotated[list[Workload], Meta(max_length=2000)] | None = None
    entries: Annotated[list[AnyEntry], Meta(max_length=MAX_ENTRIES)] = []
    directives_digest: MaybeId = ''


class ReportSender(Wire, frozen=True):
    """The part of a report that says which host it is of."""

    host: Host


class Override(Wire, frozen=True):
    """An operator's limit: ``value`` on ``knob``, ``None`` for no limit.

    Knobs and modes of directives are any name: an agent leaves out those that
    it does not know, and follows the rest.
    """

    id: GivenName
    workload: GivenName
    knob: GivenName
    value: GivenValue | None
    reason: GivenSentence
    expires_s: Time
    instance: MaybeGivenName = ''


class Tag(Wire, frozen=True):
    """The priority, and perhaps the application, that an operator gave.

    ``floor`` is what the flavor says: knob -> value below which no limit
    goes.  ``protect`` false: no detector limits others for its sake.
    """

    instance: GivenName
    priority: Priority
    application: MaybeGivenName = ''
    source: MaybeGivenName = ''
    floor: Annotated[dict[GivenName, NotNegative], Meta(max_length=50)] = {}
    protect: bool = True


class Spec(Wire, frozen=True):
    """What a signal of an application usually is.  Source: CPI2, 3.1."""

    project: MaybeGivenName
    application: GivenName
    cpu_model: MaybeGivenName
    signal: GivenName
    mean: float
    stddev: NotNegative
    n: Count
    cpu_cores: NotNegative | None = None


class Budget(Wire, frozen=True):
    """How many new limits detectors may set in the minute that ends then."""

    limits: Count
    until_s: Time


class ProfilingOrder(Wire, frozen=True):
    """The profile of a workload is to be measured, by injection.

    ``form`` is long or short.  Not begun after ``until_s``, and ended after
    ``seconds`` at the latest.
    """

    id: Id
    workload: GivenName
    form: GivenName
    seconds: NotNegative
    until_s: Time
    instance: MaybeGivenName = ''


class Directives(Wire, frozen=True):
    """What the control plane wants of a host.

    ``protection`` false is the kill switch: every limit goes, and none is
    set; ``protection_reason`` says why.  ``modes`` and ``parameters``
    (section.option) replace what the host's file says, as far as the agent
    follows them.  ``exempt`` lists instances and projects that only an
    override may limit.  ``governed``: each answer has a budget.  ``notice``
    is for the operator of the host.  ``left_out`` are the fields of which
    there is more than an answer holds.  ``profiling`` is what is to be
    measured, as long as it is.
    """

    issued_s: Time
    digest: Id
    schema: int = 1
    protection: bool = True
    protection_reason: GivenSentence = ''
    modes: dict[GivenName, GivenName] = {}
    parameters: dict[GivenName, float | GivenSentence] = {}
    tags: Annotated[list[Tag], Meta(max_length=2000)] = []
    exempt: Annotated[list[GivenName], Meta(max_length=2000)] = []
    overrides: Annotated[list[Override], Meta(max_length=2000)] = []
    specs: Annotated[list[Spec], Meta(max_length=10000)] = []
    governed: bool = False
    notice: GivenSentence = ''
    profiling: ProfilingOrder | None = None
    left_out: Annotated[list[GivenName], Meta(max_length=MAX_PARTS)] = []


class Answer(Wire, frozen=True):
    """What the conductor answers.

    ``acknowledged`` is the last sequence of the report's run that has been
    received: the agent may forget the entries up to it, also those that the
    conductor left out.  ``time_s`` is by the conductor's clock, 0: unknown.
    ``directives`` is ``None`` when those that the agent holds still hold.
    ``budget`` is of this minute, ``None`` where there is no governor.
    """

    acknowledged: Count
    workloads_digest: MaybeId = ''
    time_s: Time = 0.0
    directives: Directives | None = None
    budget: Budget | None = None


class KillSwitch(Wire, frozen=True):
    """The part of directives that is followed whatever else is in them."""

    protection: bool = True
    protection_reason: Any = ''


class KillSwitchAnswer(Wire, frozen=True):
    """An answer of which the rest is not understood."""

    directives: KillSwitch | None = None


class Acknowledgement(Wire, frozen=True):
    """The part of an answer that counts whatever else is in it."""

    acknowledged: Count = 0

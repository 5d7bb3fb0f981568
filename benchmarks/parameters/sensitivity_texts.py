# SPDX-License-Identifier: Apache-2.0

"""What :mod:`sensitivity` says besides its figures."""

from __future__ import annotations

TRACE_DAYS = 8
PAPER_VIOLATIONS = 30

PAPER = '''\
## Beside figures 6 and 14 of the paper

Both figures are pictures without numbers beside them; what follows is
compared with what the paper's text says of them. Figure 6 (memory, the traces
of about 4,000 machines, a sample every 10 s): a smaller c and a smaller w
give more violations, and a smaller c gives more background. Figure 14 (one
service that streams, beside iperf): the same for c and a link. For the
defaults of links the paper took measured traffic; there is none here, and
simulated and made-up traffic stand in. The shape here: of all steps to the
next larger c (w), after how many there were no more violations, and no more
background?
'''
FIGURE_6 = f'''\
Figure 6 counts the most violations that any of the traces has, and the paper
chose c = 2 and w = 60 s for fewer than {PAPER_VIOLATIONS}; over which time it
does not say, the traces have {TRACE_DAYS} days. Violations of the worst unit
(day, machine, pod or host), taken to {TRACE_DAYS} days / background in % of
the capacity; last, what of the study keeps below {PAPER_VIOLATIONS}, with its
least headroom:
'''
FIGURE_14 = '''\
Figure 14 has 1 Gbit/s, of which the foreground sends 268 Mbit/s on average;
runs last 300 s after the warm-up. Violations in 300 s / background in Mbit/s
/ in % of what the foreground leaves, at w = 30 s and without a least
headroom. For the paper it is what iperf sent, here what it would have been
allowed to; the paper names 421 Mbit/s without its c, taken here for that of
the smallest, and has no number of violations there. Its background falls by a
factor of 3.7 from there to c = 2. `bursts-1` is a link with one sender, as in
the figure, heavy-tailed like the others; it is not in the tables above.
'''

INTRODUCTION = '''\
# How the reserve trades violations for background work

Scavenger (section 4.1) keeps mu + c sigma of a resource for the foreground;
mu and sigma come from w seconds. The agent keeps the highest use of the last
minutes instead, unless `reserve_rule` names another. First both, and
others, side by side; then what c and w do with the rule of the paper, which
has the like in sections 6.1 (figure 6) and 6.3 (figure 14). All with the
agent's own controller on the series below.

* A *violation* is a sample of the foreground's use above what was reserved
  before it. mu then jumps to that use, so the next sample above is judged
  again: violations are the samples above the reserve.
* *Afforded* is the mean of what background work was given, in % of the
  capacity; *of the oracle* is its share of what is left to one who knows the
  foreground's use in advance. *Overshoot* is by how much a violation was
  above the reserve, on average, in % of the capacity.
* *Held* is the share of samples for which there was a reserve to judge; the
  rest is learning: the first w, and after a gap longer than w.
* A window of seconds is a number of samples, which stands in brackets; at
  least 2. The agent takes a sample a second, so w = 60 s is 60 samples
  there and 6 on a trace of 10 s: both w and its number of samples matter,
  and only a recording of the agent has them as they will be.
* *Next hour's oracle* keeps the highest use of the coming hour: it gives away
  what no workload needs back within it. *Last day's maximum* keeps that of
  the last 24 hours. Neither has a headroom.
* *Oldest model*: how long ago the reserve was made that was in force: by the
  sample that is the maximum, or by the last violation or new phase. A reserve
  that has locked up is old.
* In the pictures no violation at all stands on the lowest line.
* The least headroom (`min_headroom`, not in the paper) is 2 % of the
  capacity; everything is also shown without.
'''

SIDE_BY_SIDE = '''\
## The rules side by side

With the c, w and least headroom in use. Of a rule that keeps a maximum the
period is named. Made-up links last four times as long here as below.
'''

OWN = '''\
## The same on your own host

Record what the agent sees, for a day at the least and a week at best, with
the controllers in `observe`, then run the study on it:

    scavenger-agent run --record FILE
    python benchmarks/parameters/sensitivity.py --recording FILE --output DIR

`DIR/sensitivity.md` then has the same tables for that host's memory, each of
its links and its IPC. It needs nothing but the package and what is in
`benchmarks/parameters/`. Say with `--memory-violations` and
`--network-violations` how many violations a day are acceptable there.
'''

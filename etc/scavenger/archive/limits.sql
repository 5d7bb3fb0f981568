-- SPDX-License-Identifier: Apache-2.0
-- What was limited, by what, and for how long?
SELECT knob, owner, COUNT(*) AS limits,
       COUNT(DISTINCT workload) AS workloads,
       SUM(removed_s - set_s) / 3600 AS limited_hours,
       MAX(removed_s - set_s) / 3600 AS longest_hours
FROM limits
GROUP BY knob, owner
ORDER BY limited_hours DESC, knob, owner

-- SPDX-License-Identifier: Apache-2.0
-- Which applications should not share a host?  CPI2, section 5.
SELECT a.application AS antagonist, v.application AS victim, a.cause,
       COUNT(DISTINCT a.host) AS hosts, SUM(a.incidents) AS incidents,
       SUM(a.confirmed) AS confirmed, SUM(a.refuted) AS refuted,
       SUM(a.interference_s) / 3600 AS interference_hours
FROM antagonist_hours a
JOIN victim_hours v
  ON v.host = a.host AND v.hour_s = a.hour_s AND v.victim = a.victim
  AND v.day = a.day
GROUP BY a.application, v.application, a.cause
ORDER BY interference_hours DESC, antagonist, victim, a.cause
LIMIT 50

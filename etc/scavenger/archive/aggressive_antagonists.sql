-- SPDX-License-Identifier: Apache-2.0
-- Which workloads disturbed an application most in a window?  CPI2, section 5.
WITH asked AS (
  SELECT 'shop' AS application, '2000-01-01' AS first_day,
         '2099-12-31' AS last_day)
SELECT a.workload, a.instance, a.project, a.application,
       SUM(a.interference_s) / 60 AS interference_minutes,
       SUM(a.incidents) AS incidents, SUM(a.confirmed) AS confirmed,
       SUM(a.refuted) AS refuted
FROM antagonist_hours a
JOIN victim_hours v
  ON v.host = a.host AND v.hour_s = a.hour_s AND v.victim = a.victim
  AND v.day = a.day
JOIN asked
  ON v.application = asked.application
  AND CAST(a.day AS VARCHAR(10)) BETWEEN asked.first_day AND asked.last_day
GROUP BY a.workload, a.instance, a.project, a.application
ORDER BY interference_minutes DESC, a.workload, a.instance
LIMIT 20

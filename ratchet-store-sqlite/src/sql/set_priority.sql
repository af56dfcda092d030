-- Gives an unfinished job another priority. [priority.job] Primary key of ratchet_jobs.
UPDATE ratchet_jobs SET priority = ?2 WHERE id = ?1 AND state < 4

-- Forgets the keys whose time has passed. [rate.forget]
-- Reads the table, which has a row for each key that was used since the last pass.
DELETE FROM ratchet_rates
WHERE key IN (SELECT key FROM ratchet_rates WHERE tat <= ?1 LIMIT ?2)

-- Leaves a definition to one node for a while. [recurring.claim] Primary key of ratchet_recurring.
UPDATE ratchet_recurring
SET revision = revision + 1, claimed_by = ?2, claimed_until = ?3
WHERE name = ?1

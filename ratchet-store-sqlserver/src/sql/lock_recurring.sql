-- A recurring definition, which nobody changes until the transaction ends. [recurring.edit]
-- [recurring.pause] Primary key of recurring. The row is written as it was: that locks it everywhere.
UPDATE {schema}.recurring SET revision = revision WHERE name = @P1;
SELECT name, incarnation, revision, definition, next_fire, last_slot, paused, declared, created_at,
       claimed_by, claimed_until
FROM {schema}.recurring WITH (UPDLOCK, ROWLOCK)
WHERE name = @P1

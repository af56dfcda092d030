-- Moves definitions on, which are locked. [recurring.fire] Primary key of recurring.
UPDATE {schema}.recurring AS recurring
SET revision = revision + 1, next_fire = fired.next_fire,
    last_slot = greatest(recurring.last_slot, fired.last_slot),
    claimed_by = NULL, claimed_until = NULL
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS fired (name, next_fire, last_slot)
WHERE recurring.name = fired.name

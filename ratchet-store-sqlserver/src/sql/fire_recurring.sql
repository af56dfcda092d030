-- Moves definitions on, which are locked. [recurring.fire] Primary key of recurring.
UPDATE recurring
SET revision = recurring.revision + 1, next_fire = fired.next_fire,
    last_slot = CASE WHEN recurring.last_slot IS NULL OR fired.last_slot > recurring.last_slot
                     THEN COALESCE(fired.last_slot, recurring.last_slot)
                     ELSE recurring.last_slot END,
    claimed_by = NULL, claimed_until = NULL
FROM {schema}.recurring AS recurring
JOIN (SELECT {name given.name} AS name, given.next_fire, given.last_slot
      FROM OPENJSON(@P1) WITH (name nvarchar(256), next_fire bigint, last_slot bigint) AS given)
    AS fired ON recurring.name = fired.name

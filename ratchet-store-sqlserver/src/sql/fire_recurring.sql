-- Moves definitions on, which are locked. [recurring.fire] Primary key of recurring.
DECLARE @fired TABLE (name nvarchar(128) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY,
                      next_fire bigint NULL, last_slot bigint NULL);
INSERT INTO @fired (name, next_fire, last_slot)
SELECT {name given.name}, given.next_fire, given.last_slot
FROM OPENJSON(@P1) WITH (name nvarchar(256), next_fire bigint, last_slot bigint) AS given;
UPDATE recurring
SET revision = recurring.revision + 1, next_fire = fired.next_fire,
    last_slot = CASE WHEN recurring.last_slot IS NULL OR fired.last_slot > recurring.last_slot
                     THEN COALESCE(fired.last_slot, recurring.last_slot)
                     ELSE recurring.last_slot END,
    claimed_by = NULL, claimed_until = NULL
FROM @fired AS fired
INNER LOOP JOIN {schema}.recurring AS recurring WITH (FORCESEEK, ROWLOCK)
    ON recurring.name = fired.name

-- A row if the resource is known. [permit.unknown] Primary key.
SELECT 1 FROM ratchet_permits WHERE resource = ?1

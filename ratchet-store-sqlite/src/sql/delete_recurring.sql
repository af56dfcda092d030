-- Deletes a recurring definition. [recurring.delete] Primary key of ratchet_recurring.
DELETE FROM ratchet_recurring WHERE name = ?1

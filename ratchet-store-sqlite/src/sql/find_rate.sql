-- What is remembered of a key. [rate.exact] Primary key.
SELECT tat FROM ratchet_rates WHERE key = ?1

-- Whether a job has an open link. [link.requeue] [signal.deliver] Primary key of ratchet_links.
SELECT EXISTS (SELECT 1 FROM ratchet_links WHERE child = ?1 AND state = 0)

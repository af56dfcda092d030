-- Gives a stored job a tag. [tag.set] Primary key of ratchet_job_tags.
INSERT INTO ratchet_job_tags (tag, job) VALUES (?1, ?2) ON CONFLICT DO NOTHING

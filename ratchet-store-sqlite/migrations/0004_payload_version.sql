-- Which form the payload has; none means 1.
ALTER TABLE ratchet_job_data ADD COLUMN payload_version INTEGER;

-- Which form the payload has; none means 1.
ALTER TABLE {schema}.job_data ADD COLUMN payload_version integer;

-- The last checkpoint of a job. [claim.whole] Primary key of ratchet_job_notes.
SELECT checkpoint FROM ratchet_job_notes WHERE job = ?1
